// Registers, and what is found where they are read and written: never written, or a load to them is under way.
static Report report;

static void found(u32 kind, Instruction *i, u64 detail) {  // each kind and place once, with a count
    const int pc = i ? i->pc : -1;
    report.kinds |= 1ull << kind;
    for (u32 n = 0; n < report.found_count; n++)
        if (report.found[n].kind == kind && report.found[n].pc == pc) return (void)report.found[n].count++;
    if (report.found_count < MOST_FOUND) report.found[report.found_count++] = (Found){kind, pc, 1, detail};
}

static inline u32 broken(Instruction *i, u32 bits) { return i->op == settings.broken ? bits : 0; }  // what is wrong of a result
enum { OF_LANES = 0x00100010, OF_SCALARS = 4 };

static inline u64 exec_of(const Wave *w) { return w->width == 64 ? (u64)w->s[EXEC_REG + 1] << 32 | w->s[EXEC_REG] : w->s[EXEC_REG]; }
static inline void set_exec(Wave *w, u64 lanes) {
    w->s[EXEC_REG] = (u32)lanes;
    if (w->width == 64) w->s[EXEC_REG + 1] = (u32)(lanes >> 32);
}

// Whether a load to the register is under way in lanes that are active
static int is_due(const Wave *w, const Queue *q, u32 reg, u64 lanes) {
    for (int n = 0; n < q->count; n++) {
        const Operand *to = &q->of[n]->i->to;
        if (q->of[n]->loads && reg - to->reg < to->words && q->of[n]->mask & lanes) return 1;
    }
    return 0;
}

static void check_due(Wave *w, u32 kind, Instruction *i, u32 reg) {
    if (is_due(w, &w->queues[LOADS], reg, exec_of(w)) || is_due(w, &w->queues[SHARED], reg, exec_of(w))) found(kind, i, reg);
}

static void check_vector(Wave *w, Instruction *i, u32 reg, u32 words) {
    for (u32 r = reg; r < reg + words; r++) {
        if (w->due[r]) check_due(w, EARLY_READ, i, r);
        if (!w->written[r] && exec_of(w)) found(UNWRITTEN_VECTOR, i, r);
    }
}

static u64 read_scalar(Wave *w, Instruction *i, const Operand *o) {
    if (o->kind == CONSTANT) return o->words == 2 ? (u64)(i64)(i32)o->value : o->value;
    if (o->kind != SCALAR || o->reg == NULL_REG) return 0;
    if (o->reg == SCC_REG) return w->scc;
    const int words = o->words >= 2 ? 2 : 1;
    for (int r = o->reg; r < o->reg + words; r++) {
        if (w->scalar_due[r]) found(EARLY_READ, i, 256 + r);
        if (!w->scalar_written[r]) found(UNWRITTEN_SCALAR, i, 256 + r);
    }
    return words == 2 ? (u64)w->s[o->reg + 1] << 32 | w->s[o->reg] : w->s[o->reg];
}

static void write_scalar(Wave *w, Instruction *i, const Operand *o, u64 value) {
    if (o->kind != SCALAR || o->reg == NULL_REG) return;
    value ^= broken(i, OF_SCALARS);
    for (int n = 0; n < (o->words >= 2 ? 2 : 1); n++) {
        const int r = o->reg + n;
        if (w->scalar_due[r]) found(EARLY_WRITE, i, 256 + r);
        w->s[r] = (u32)(value >> 32 * n), w->scalar_written[r] = 1;
    }
}

// A source's word in each lane, with its modifiers: the register's own memory if there are none
static const u32 *read_vector(Wave *w, Instruction *i, const Operand *o, u32 *copy) {
    if (o->kind == VECTOR) {
        check_vector(w, i, o->reg, o->words);
        if (!o->modifiers && !o->bits) return w->v[o->reg];
        memcpy(copy, w->v[o->reg], sizeof w->v[0]);
    } else {
        const u32 word = (u32)read_scalar(w, i, o);
        for (int l = 0; l < MOST_LANES; l++) copy[l] = word;
    }
    const u32 modifiers = o->modifiers, mask = mask_of(o);
    for (int l = 0; (modifiers || o->bits) && l < MOST_LANES; l++) {
        copy[l] = copy[l] >> o->shift & mask;
        if (modifiers & HALF) copy[l] = word_of(from_half(copy[l]));
        if (modifiers & ABS) copy[l] &= 0x7fffffff;
        if (modifiers & NEG) copy[l] ^= 0x80000000;
    }
    return copy;
}

static void write_vector(Wave *w, Instruction *i, u32 reg, const u32 *words) {
    if (w->due[reg]) check_due(w, EARLY_WRITE, i, reg);
    const u64 lanes = exec_of(w);
    const u32 wrong = broken(i, OF_LANES);
    w->written[reg] = 1;
    if (lanes == (w->width == 64 ? ~0ull : LOW32) && !wrong) memcpy(w->v[reg], words, w->width * sizeof *words);
    else
        for (int l = 0; l < w->width; l++)
            if (lanes >> l & 1) w->v[reg][l] = words[l] ^ wrong;
}
