// Loads, stores and atomics: issued at one time, done at another, and seen by the wave when it has waited for them. Loads of one
// kind come back in their order, scalar loads in any; stores are done in any order but to the same words.
static int is_time(void) { return !settings.late || (settings.late == 1 && draw() & 1); }

// Memory of a lane's own, where its registers are too few
static void perform_scratch(Wave *w, Pending *p) {
    p->stamp = 1;
    for (int l = 0; l < w->width; l++)
        for (u32 k = 0; p->mask >> l & 1 && k < p->words; k++) {
            u8 *at = (u8 *)&w->scratch[p->address[l] / 4 + k][l] + p->address[l] % 4;
            if (p->loads) p->data[k][l] = 0, memcpy(&p->data[k][l], at, p->i->size);
            else memcpy(at, &p->data[k][l], p->i->size);
        }
}

static void perform(Wave *w, Pending *p) {  // reads or writes memory
    Instruction *i = p->i;
    View view = {0};
    if (p->stamp) return;
    if (is_scratch(i)) return perform_scratch(w, p);
    set_time(w, p);
    const Queue *shared = &w->queues[SHARED];
    for (int n = 0; is_shared(i) && n < shared->count && shared->of[n] != p; n++) perform(w, shared->of[n]);  // in their order
    const u32 half = i->flags & TWO ? p->words / 2 : p->words;  // of words behind the first address
    for (int l = 0; l < w->width; l++)
        for (u32 k = 0; p->mask >> l & 1 && k < p->words; k++) {
            const i64 offset = k < half ? 4 * k : i->immediate[1] - i->immediate[0] + 4ll * (k - half);
            const u64 va = p->address[l] + offset;
            if (!p->loads) store(w, i, p->stamp, va, p->data[k][l]);
            else p->data[k][l] = is_shared(i) || p->address[l] ? load(w, i, p->stamp, va, &view) : 0;
        }
}

static void finish(Wave *w, Pending *p) {  // registers get what was loaded
    Instruction *i = p->i;
    if (p->loads) acquire(w, p);
    for (u32 k = 0, r = i->to.reg; i->op == OP_scalar_load && k < i->to.words; k++, r++)
        w->s[r] = p->data[0][k] ^ broken(i, OF_SCALARS), w->scalar_written[r] = 1, w->scalar_due[r]--;
    for (u32 k = 0, r = i->to.reg; p->loads && i->op != OP_scalar_load && k < p->words; k++, r++) {
        w->written[r] = 1, w->due[r]--;
        for (int l = 0; l < w->width; l++) {
            if (!(p->mask >> l & 1)) continue;
            u32 word = p->data[k][l] ^ broken(i, OF_LANES);
            if (i->flags & SIGNED) word = i->size == 1 ? (u32)(i8)word : (u32)(i16)word;
            w->v[r][l] = placed(i, w->v[r][l], word);
        }
    }
    free(p);
}

static void wait_until(Wave *w, int kind, int left) {  // so many are left
    Queue *q = &w->queues[kind];
    while (q->count > left) {
        Pending *p = q->of[0];
        perform(w, p);
        memmove(q->of, q->of + 1, --q->count * sizeof *q->of);
        finish(w, p);
    }
}

static int overlap(const Pending *p, const Pending *q) {
    const u64 bytes = p->words > 1 ? 4 * p->words : p->i->size, others = q->words > 1 ? 4 * q->words : q->i->size;
    const int own = is_scratch(p->i);  // each lane's
    if (own != is_scratch(q->i)) return 0;
    for (int l = 0; l < MOST_LANES; l++)
        for (int m = own ? l : 0, end = own ? l + 1 : MOST_LANES; p->mask >> l & 1 && m < end; m++)
            if (q->mask >> m & 1 && p->address[l] < q->address[m] + others && q->address[m] < p->address[l] + bytes) return 1;
    return 0;
}

// The wave's stores to the same words that were issued before are done first
static void perform_after(Wave *w, Pending *p) {
    const Queue *q = &w->queues[STORES];
    for (int n = 0; n < q->count && q->of[n] != p; n++)
        if (!q->of[n]->stamp && overlap(q->of[n], p)) perform(w, q->of[n]);
}

static void some_store(Wave *w) {
    const Queue *q = &w->queues[STORES];
    Pending *p = q->count ? q->of[draw() % q->count] : NULL;
    if (p && !p->stamp) perform_after(w, p), perform(w, p);
}

// "S_WAITCNT_DEPCTR" vm_vsrc(0): all accesses have left the wave. A core keeps their order, but a workgroup's waves may be on
// two. That other cores may see them later, clocks find
static void send_all(Wave *w) {
    for (const Queue *q = w->queues; q < w->queues + SCALAR_LOADS; q++)
        for (int n = 0; n < q->count; n++) perform(w, q->of[n]), q->of[n]->sent = 1;
}

static Pending *issue(Wave *w, int kind, Instruction *i, u64 lanes, u32 words, int loads) {
    Queue *q = &w->queues[kind];
    if (q->count == MOST_PENDING) wait_until(w, kind, 0);
    Pending *p = malloc(sizeof *p);
    p->i = i, p->mask = lanes, p->words = words, p->loads = loads, p->sent = 0;
    p->stamp = 0;
    return q->of[q->count++] = p;
}

static void scalar_load(Wave *w, Instruction *i) {
    const Operand *base = &i->source[0];
    const u64 va = read_scalar(w, i, base) & ADDRESS, offset = (u64)(i64)i->immediate[0] + read_scalar(w, i, &i->source[1]);
    const u64 limit = base->words == 4 ? w->s[base->reg + 2] : ~0ull;  // of a descriptor
    Pending *p = issue(w, SCALAR_LOADS, i, (1ull << i->to.words) - 1, 1, 1);  // a word in each lane
    for (u32 k = 0, r = i->to.reg; k < i->to.words; k++, r++) {
        const u64 at = (offset & ~3ull) + 4 * k;
        const int is_inside = at + 4 <= limit || limit == ~0ull;
        if (!is_inside) found(OUTSIDE_BUFFER, i, at);
        p->address[k] = is_inside ? (va & ~3ull) + at : 0;
        if (w->scalar_due[r]++) found(EARLY_WRITE, i, 256 + r);
        w->s[r] = 0x7fb0dead;
    }
    if (is_time()) perform(w, p);
}

// Each lane's address. Returns the lanes whose access is inside of the buffer
static u64 addresses_of(Wave *w, Instruction *i, u64 *address, u32 bytes) {
    const Operand *o = &i->source[0], *base = &i->source[1];
    const u32 align = i->size < 4 ? i->size : 4, *low = w->v[o->reg], *high = w->v[o->reg + 1];
    const int shared = is_shared(i), scratch = is_scratch(i), buffer = i->op >= OP_buffer_load && i->op < OP_global_load;
    const u64 start = shared ? 0 : read_scalar(w, i, base) & ADDRESS, shift = buffer ? (u32)read_scalar(w, i, &i->source[2]) : 0;
    const u32 first = i->flags & BY_LANE ? read_scalar(w, i, o) & 0xffff : 0;
    u64 lanes = exec_of(w);
    if (o->kind == VECTOR) check_vector(w, i, o->reg, o->words);
    if (buffer && w->s[base->reg + 1] >> 16 & 0x3fff) found(REFUSED, i, w->s[base->reg + 1]);  // a stride
    for (int l = 0; l < w->width; l++) {
        u64 at = o->kind == VECTOR ? low[l] : i->flags & BY_LANE ? first + 4 * l : 0;
        if (!shared && !buffer) at = ((o->words == 2 ? (u64)high[l] << 32 : 0) + at + (i64)i->immediate[0]);
        else at = (u32)(at + i->immediate[0]) + shift;
        address[l] = shared ? at : scratch ? (u32)(start + at) : (start + at) & ADDRESS;
        if (!(lanes >> l & 1)) continue;
        if (address[l] % align) found(MISALIGNED, i, at);
        if (scratch ? address[l] + bytes <= 4 * w->scratch_words : !buffer || at + bytes <= w->s[base->reg + 2]) continue;
        found(scratch ? OUTSIDE_SCRATCH : OUTSIDE_BUFFER, i, at);
        address[l] = 0, lanes &= ~(1ull << l);
    }
    return lanes;
}

static void hold(Wave *w, Pending *p, const Operand *o, u32 first) {  // what is stored
    check_vector(w, p->i, o->reg, o->words);
    for (u32 k = 0; k < o->words; k++)
        for (int l = 0; l < MOST_LANES; l++) p->data[first + k][l] = (w->v[o->reg + k][l] ^ broken(p->i, OF_LANES)) >> o->shift;
}

static void expect(Wave *w, Instruction *i, const Queue *other, u64 lanes) {  // garbage until it is waited for
    for (u32 r = i->to.reg; r < (u32)i->to.reg + i->to.words; r++) {
        if (w->due[r]++ && is_due(w, other, r, lanes)) found(EARLY_WRITE, i, r);
        for (int l = 0; !(i->flags & KEEPS) && l < w->width; l++)
            if (lanes >> l & 1) w->v[r][l] = 0x7fb0dead;
    }
}

static void vector_memory(Wave *w, Instruction *i) {
    const int shared = is_shared(i), reads = i->op == OP_scratch_load || i->op == OP_buffer_load || i->op == OP_global_load
              || i->op == OP_ds_load;
    const int atomic = !shared && is_atomic(i), loads = reads || (atomic && i->flags & GLC);
    const u32 words = i->to.words + (reads ? 0 : i->to2.words), bytes = words > 1 ? 4 * words : i->size;
    const u64 lanes = exec_of(w);
    u64 address[MOST_LANES];
    const u64 inside = addresses_of(w, i, address, bytes);
    if (i->op == OP_buffer_load && i->flags & GLC) look_at(read_scalar(w, i, &i->source[1]) & ADDRESS, w->s[i->source[1].reg + 2]);
    Pending *p = issue(w, shared ? SHARED : loads ? LOADS : STORES, i, reads ? lanes : inside, words, loads);
    memcpy(p->address, address, sizeof address);
    if (!reads) hold(w, p, &i->to, 0);
    if (i->to2.kind) hold(w, p, &i->to2, i->to.words);
    if (!shared && (loads || atomic)) perform_after(w, p);
    if (atomic) {
        set_time(w, p);
        // A part that gives up sets the first word of a buffer
        const u32 first = inside ? (u32)address[__builtin_ctzll(inside)] : 0;
        gave_up |= inside && i->immediate[1] == ATOMIC_or_b32 && first == w->s[i->source[1].reg];
        for (int l = 0; l < w->width; l++)
            if (inside >> l & 1) release(w, address[l]), p->data[0][l] = store(w, i, p->stamp, address[l], p->data[0][l]);
    }
    if (loads) expect(w, i, &w->queues[shared ? LOADS : SHARED], lanes);
    if (!atomic && is_time()) {
        if (loads || shared || !settings.late) perform_after(w, p), perform(w, p);
        else some_store(w);
    }
}
