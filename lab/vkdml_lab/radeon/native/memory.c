// Loads, stores and atomics: issued at one time, done at another, and seen by the wave when it has waited for them. Loads of one kind
// come back in their order, scalar loads in any; stores are done in any order but to the same words.
static Pending *spare[4096];
static int spares;

static Pending *issue(Wave *w, Queue *q, const Instruction *i, u64 lanes, u32 words);
static void finish_to(Wave *w, Queue *q, int most);

static int is_shared(const Pending *p) { return p->i->op >= OP_ds_load && p->i->op <= OP_ds_atomic; }
static int is_load(const Pending *p)
{
    const u16 op = p->i->op;
    return op == OP_buffer_load || op == OP_global_load || op == OP_ds_load || (p->i->flags & GLC && op == OP_buffer_atomic);
}

static u8 *shared_word(Wave *w, const Instruction *i, u32 at, u32 bytes, u32 lds_bytes)
{
    if ((u64)at + bytes <= lds_bytes) return w->group->lds + at;
    found(w, OUTSIDE_LDS, i, at);
    return NULL;
}

// Whether the waves of a workgroup order their accesses of a word by barriers
static void check_race(Wave *w, const Instruction *i, u32 at, int writes)
{
    enum { MANY = 0xffff };
    SharedWord *word = &w->group->words[at / 4];
    const u32 barriers = w->group->barriers;
    const int is_atomic = i->op == OP_ds_atomic, me = w->index;
    if (word->is_written && word->written_at == barriers && word->writer != me && !(word->is_atomic && is_atomic))
        found(w, LDS_RACE, i, at);
    if (writes) {
        if (word->read_at == barriers + 1 && word->reader != me) found(w, LDS_RACE, i, at);
        word->is_written = 1, word->is_atomic = is_atomic, word->writer = me, word->written_at = barriers;
    } else {
        word->reader = word->read_at == barriers + 1 && word->reader != me ? MANY : me;
        word->read_at = barriers + 1;  // 0: never
    }
}

static void do_shared(Wave *w, Pending *p, u32 lds_bytes)
{
    const Instruction *i = p->i;
    const u32 half = i->flags & TWO ? p->words / 2 : p->words;
    for (int l = 0; l < w->width; l++) {
        if (!(p->mask >> l & 1)) continue;
        for (u32 k = 0; k < p->words; k++) {
            const u32 offset = k < half ? k * 4 : (u32)(i->immediate[1] - i->immediate[0]) + (k - half) * 4;
            const u32 at = (u32)p->address[l] + offset;
            u8 *memory = shared_word(w, i, at, i->size, lds_bytes);
            if (!memory) {
                p->data[k][l] = 0;
                continue;
            }
            if (at % i->size) found(w, MISALIGNED, i, at);
            check_race(w, i, at, i->op != OP_ds_load);
            if (i->op == OP_ds_load) {
                if (!w->group->words[at / 4].is_written) found(w, UNWRITTEN_LDS, i, at);
                p->data[k][l] = 0;
                memcpy(&p->data[k][l], memory, i->size);
            } else if (i->op == OP_ds_store)
                memcpy(memory, &p->data[k][l], i->size);
            else {
                u32 word;
                memcpy(&word, memory, 4);
                word = atomic_of(i->immediate[1], word, p->data[k][l]);
                memcpy(memory, &word, 4);
            }
        }
    }
}

static void do_sent_of_group(Wave *w);
static u32 lds_of_dispatch;

// Reads or writes memory
static void perform(Wave *w, Pending *p)
{
    if (p->done) return;
    const Instruction *i = p->i;
    if (is_shared(p)) {  // in their order
        for (int n = 0; w->shared.of[n] != p; n++)
            if (is_shared(w->shared.of[n])) perform(w, w->shared.of[n]);
        do_shared(w, p, lds_of_dispatch);
    } else if (i->op == OP_scalar_load) {
        for (u32 k = 0; k < p->words; k++) p->data[0][k] = p->address[k] ? load_scalar(w, i, p->address[k]) : 0;
    } else {
        const int loads = is_load(p);
        if (loads) do_sent_of_group(w);
        View view = {0};
        for (int l = 0; l < w->width; l++) {
            if (!(p->mask >> l & 1)) continue;
            for (u32 k = 0; k < p->words; k++) {
                const u64 va = p->address[l] + 4 * k;
                if (!loads) store(w, i, va, i->size, p->data[k][l]);
                else p->data[k][l] = p->address[l] ? load(w, i, va, i->size, &view) : 0;
            }
        }
    }
    p->done = 1;
}

static void finish(Wave *w, Pending *p)
{
    perform(w, p);
    const Instruction *i = p->i;
    if (i->op == OP_scalar_load)
        for (u32 k = 0; k < p->words; k++) {
            const u32 r = i->to.reg + k;
            w->s[r] = p->data[0][k], w->scalar_written[r] = 1, w->scalar_due[r]--;
        }
    else if (is_load(p))
        for (u32 k = 0; k < p->words; k++) {
            const u32 r = i->to.reg + k;
            w->written[r] = 1, w->due[r]--;
            for (int l = 0; l < w->width; l++) {
                if (!(p->mask >> l & 1)) continue;
                u32 word = p->data[k][l], *to = &w->v[r][l];
                if (i->flags & SIGNED) word = i->size == 1 ? (u32)(i8)word : (u32)(i16)word;
                *to = i->flags & D16 ? (*to & 0xffff0000) | (word & 0xffff) : i->flags & D16_HIGH ? (*to & 0xffff) | word << 16 : word;
            }
        }
    if (spares < (int)(sizeof spare / sizeof *spare)) spare[spares++] = p;
    else free(p);
}

static void take(Queue *q, int at)
{
    memmove(&q->of[at], &q->of[at + 1], (--q->count - at) * sizeof *q->of);
}

static void finish_to(Wave *w, Queue *q, int most)
{
    while (q->count > most) {
        Pending *p = q->of[0];
        perform(w, p);  // while it is in its queue
        take(q, 0);
        finish(w, p);
    }
}

// Of scalar loads, which come back in any order, a count above 0 says nothing: it is what may be left of the others
static void wait_shared(Wave *w, int most)
{
    Queue *q = &w->shared;
    if (!most) finish_to(w, q, 0);
    int ordered = 0;
    for (int n = 0; n < q->count; n++) ordered += is_shared(q->of[n]);
    for (int n = 0; n < q->count && ordered > most;) {
        Pending *p = q->of[n];
        if (!is_shared(p)) {
            n++;
            continue;
        }
        perform(w, p);
        take(q, n);
        finish(w, p);
        ordered--;
    }
}

static int overlap(const Pending *p, const Pending *q)
{
    if (p->high <= q->low || q->high <= p->low) return 0;
    const u64 bytes = p->words > 1 ? 4 * p->words : p->i->size, others = q->words > 1 ? 4 * q->words : q->i->size;
    for (int l = 0; l < MOST_LANES; l++)
        if (p->mask >> l & 1)
            for (int m = 0; m < MOST_LANES; m++)
                if (q->mask >> m & 1 && p->address[l] < q->address[m] + others && q->address[m] < p->address[l] + bytes) return 1;
    return 0;
}

// A store, after the earlier ones to the same words
static void perform_store(Wave *w, Pending *p)
{
    for (int n = 0; w->stores.of[n] != p; n++)
        if (!w->stores.of[n]->done && overlap(w->stores.of[n], p)) perform(w, w->stores.of[n]);
    perform(w, p);
}

// Before an access is done, the wave's own stores to the same words
static void perform_before(Wave *w, const Pending *p)
{
    for (int n = 0; n < w->stores.count; n++)
        if (!w->stores.of[n]->done && w->stores.of[n] != p && overlap(w->stores.of[n], p)) perform(w, w->stores.of[n]);
}

static void some_store(Wave *w)
{
    if (w->stores.count) perform_store(w, w->stores.of[draw() % w->stores.count]);
}

// "S_WAITCNT_DEPCTR" vm_vsrc(0): all accesses have left the wave. A core keeps their order, but a workgroup's waves may be on two
static void send_all(Wave *w, int on_two_cores)
{
    if (on_two_cores) return;
    for (int n = 0; n < w->shared.count; n++)
        if (is_shared(w->shared.of[n])) perform(w, w->shared.of[n]);
    for (int n = 0; n < w->stores.count; n++) w->stores.of[n]->sent = 1;
    for (int n = 0; n < w->loads.count; n++) perform(w, w->loads.of[n]);
}

static void do_sent_of_group(Wave *w)
{
    for (Wave *of = w->group->waves; of < w->group->waves + w->group->wave_count; of++)
        for (int n = 0; n < of->stores.count; n++)
            if (of->stores.of[n]->sent && !of->stores.of[n]->done) perform_store(of, of->stores.of[n]);
}

static Pending *issue(Wave *w, Queue *q, const Instruction *i, u64 lanes, u32 words)
{
    if (q->count == MOST_PENDING) finish_to(w, q, MOST_PENDING - 1);
    Pending *p = spares ? spare[--spares] : malloc(sizeof *p);
    p->i = i, p->mask = lanes, p->words = words, p->done = p->sent = 0, p->low = ~0ull, p->high = 0;
    q->of[q->count++] = p;
    return p;
}

// A load's registers: garbage until it is waited for
static void expect(Wave *w, const Queue *q, const Pending *p)
{
    const Instruction *i = p->i;
    const Queue *other = q == &w->loads ? &w->shared : &w->loads;
    for (u32 r = i->to.reg; r < (u32)i->to.reg + p->words; r++) {
        for (int n = 0; w->due[r] && n < other->count; n++)
            if (is_load(other->of[n]) && r - other->of[n]->i->to.reg < other->of[n]->words && other->of[n]->mask & p->mask)
                found(w, EARLY_WRITE, i, r);
        w->due[r]++;
        for (int l = 0; !(i->flags & (D16 | D16_HIGH)) && l < w->width; l++)
            if (p->mask >> l & 1) w->v[r][l] = 0x7fb0dead;
    }
}

static int is_time(void) { return !settings.late || (settings.late == 1 && draw() & 1); }

static void scalar_load(Wave *w, const Instruction *i)
{
    const Operand *base = &i->source[0];
    Pending *p = issue(w, &w->shared, i, 0, i->to.words);
    u64 va = read_scalar(w, i, base), limit = ~0ull;
    const u64 offset = (u64)(i64)i->immediate[0] + read_scalar(w, i, &i->source[1]);
    va &= ADDRESS;
    if (base->words == 4) limit = w->s[base->reg + 2];  // a descriptor
    for (u32 k = 0; k < p->words; k++) {
        const u64 at = (offset & ~3ull) + 4 * k;
        const int is_inside = at + 4 <= limit;
        if (!is_inside) found(w, OUTSIDE_BUFFER, i, at);
        p->address[k] = is_inside ? (va & ~3ull) + at : 0;
        const u32 r = i->to.reg + k;
        if (w->scalar_due[r]) found(w, EARLY_WRITE, i, 256 + r);
        w->scalar_due[r]++;
        w->s[r] = 0x7fb0dead;
    }
    if (is_time()) perform(w, p);
}

// Each lane's address, and the lanes whose access is inside of the buffer
static u64 addresses_of(Wave *w, const Instruction *i, u64 *address, u32 bytes)
{
    const u64 lanes = exec_of(w);
    const Operand *o = &i->source[0], *descriptor = &i->source[1];
    const u32 align = i->size < 4 ? i->size : 4;
    if (o->kind == VECTOR) check_vector(w, i, o->reg, o->words);
    if (i->op >= OP_ds_load) {
        for (int l = 0; l < MOST_LANES; l++) address[l] = (u32)(w->v[o->reg][l] + i->immediate[0]);
        return lanes;
    }
    if (i->op >= OP_global_load) {
        const u64 base = read_scalar(w, i, descriptor) + (i64)i->immediate[0];
        for (int l = 0; l < MOST_LANES; l++) {
            address[l] = (base + w->v[o->reg][l] + (o->words == 2 ? (u64)w->v[o->reg + 1][l] << 32 : 0)) & ADDRESS;
            if (lanes >> l & 1 && address[l] % align) found(w, MISALIGNED, i, address[l]);
        }
        return lanes;
    }
    const u64 base = read_scalar(w, i, descriptor) & ADDRESS;
    const u32 *words = &w->s[descriptor->reg], shift = (u32)read_scalar(w, i, &i->source[2]);
    if (words[1] >> 16 & 0x3fff) found(w, REFUSED, i, words[1]);  // a stride
    u64 inside = 0;
    for (int l = 0; l < MOST_LANES; l++) {
        const u64 at = (u64)(u32)((i->flags & OFFEN ? w->v[o->reg][l] : 0) + i->immediate[0]) + shift;
        const int is_inside = at + bytes <= words[2];
        address[l] = is_inside ? base + at : 0;
        inside |= (u64)is_inside << l;
        if (!(lanes >> l & 1)) continue;
        if (at % align) found(w, MISALIGNED, i, at);
        if (!is_inside) found(w, OUTSIDE_BUFFER, i, at);
    }
    return lanes & inside;
}

static void hold(Wave *w, Pending *p, const Operand *o, u32 first)  // what is stored
{
    check_vector(w, p->i, o->reg, o->words);
    for (u32 k = 0; k < o->words; k++) memcpy(p->data[first + k], w->v[o->reg + k], sizeof p->data[0]);
    if (p->i->flags & D16_HIGH)
        for (int l = 0; l < MOST_LANES; l++) p->data[0][l] >>= 16;
}

static void vector_memory(Wave *w, const Instruction *i)
{
    const u16 op = i->op;
    const int shared = op >= OP_ds_load, loads = op == OP_buffer_load || op == OP_global_load || op == OP_ds_load;
    const int atomic = op == OP_buffer_atomic, returns = loads || (atomic && i->flags & GLC);
    Queue *q = shared ? &w->shared : returns ? &w->loads : &w->stores;
    const u32 words = i->to.words + (loads ? 0 : i->to2.words), bytes = words > 1 ? 4 * words : i->size;
    u64 address[MOST_LANES];
    const u64 inside = addresses_of(w, i, address, bytes);
    Pending *p = issue(w, q, i, loads ? exec_of(w) : inside, words);
    memcpy(p->address, address, sizeof address);
    for (int l = 0; l < w->width; l++)
        if (p->mask >> l & 1 && address[l]) {
            if (address[l] < p->low) p->low = address[l];
            if (address[l] + bytes > p->high) p->high = address[l] + bytes;
        }
    if (!loads) hold(w, p, &i->to, 0);
    if (i->to2.kind) hold(w, p, &i->to2, i->to.words);
    if (!shared && (returns || atomic)) perform_before(w, p);
    if (atomic) {  // done where memory is, lane by lane
        for (int l = 0; l < w->width; l++) {
            u8 *memory = p->mask >> l & 1 ? to_store(w, i, address[l], 4, w->core) : NULL;
            u32 old = 0;
            if (memory) memcpy(&old, memory, 4), memcpy(memory, &(u32){atomic_of(i->immediate[1], old, p->data[0][l])}, 4);
            Line *kept = &lines[w->core][address[l] / LINE_BYTES % LINES];
            if (memory && kept->line == address[l] / LINE_BYTES) kept->line = 0;
            p->data[0][l] = old;
        }
        p->done = 1;
        if (returns) p->mask = exec_of(w);
    }
    if (returns) expect(w, q, p);
    if (loads || shared) {
        if (is_time()) perform(w, p);
    } else if (!settings.late)
        perform_store(w, p);
    else if (is_time())
        some_store(w);
}
