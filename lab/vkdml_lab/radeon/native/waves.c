// The waves of a dispatch: one runs for a few instructions, then another one, in a random order and each at a pace of its own.

static int branches(const Wave *w, const Instruction *i) {
    const int is_vcc_zero = !(w->s[VCC_REG] | (w->width == 64 ? w->s[VCC_REG + 1] : 0)), is_exec_zero = !exec_of(w);
    switch (i->op) {
#include "branch.inc"
    }
    return 0;
}

// Instructions between lanes and scalars, or across lanes
static void across_lanes(Wave *w, Instruction *i, u32 *result, u32 *second) {
    const Operand *from = &i->source[0];
    const u64 lanes = exec_of(w);
    w->product_words = 0;
    u32 lane = i->source[1].kind ? (u32)read_scalar(w, i, &i->source[1]) & (w->width - 1) : lanes ? __builtin_ctzll(lanes) : 0;
    if (i->op == OP_v_readfirstlane_b32 || i->op == OP_v_readlane_b32)
        write_scalar(w, i, &i->to, read_vector(w, i, from, result)[lane]);
    else if (i->op == OP_v_writelane_b32)
        w->v[i->to.reg][lane] = (u32)read_scalar(w, i, from), w->written[i->to.reg] = 1;
    else {  // "V_SWAP_B32"
        memcpy(second, read_vector(w, i, &i->to, second), MOST_LANES * sizeof *second);
        write_vector(w, i, i->to.reg, read_vector(w, i, from, result));
        write_vector(w, i, from->reg, second);
    }
}

static void other(Wave *w, Instruction *i, u32 *result, u32 *second, const Dispatch *d) {
    switch (i->op) {
    case OP_nothing: case OP_buffer_gl1_inv: break;  // a GPU's middle cache has nothing that its first one had not
    case OP_buffer_gl0_inv: cleaned[w->core] = ++now; break;
    case OP_s_endpgm:
        for (int kind = 0; kind < KINDS; kind++) wait_until(w, kind, 0);
        free(w->clock);
        w->state = OVER, w->clock = NULL;
        break;
    case OP_s_barrier: if (d->waves > 1) w->state = AT_BARRIER; break;
    case OP_s_waitcnt:
        for (int kind = 0; kind < KINDS; kind++) wait_until(w, kind, i->immediate[kind]);
        break;
    case OP_s_waitcnt_depctr: if (!(i->immediate[0] >> 2 & 7) && !(d->wgp && d->waves > 1)) send_all(w); break;
    case OP_s_getpc_b64: write_scalar(w, i, &i->to, d->program->va + i->pc + 4); break;
    case OP_scalar_load: scalar_load(w, i); break;
    case OP_v_wmma_f32_16x16x16_f16: case OP_v_wmma_f32_16x16x16_bf16: multiply_matrices(w, i); break;
    case OP_v_nop: w->product_words = 0; break;
    default:
        if (i->op >= OP_scratch_load) vector_memory(w, i);
        else across_lanes(w, i, result, second);
    }
}

static void step(Wave *w, const Dispatch *d) {
    Instruction *i = &d->program->instructions[w->pc];
    u32 result[MOST_LANES], second[MOST_LANES];
    int next = w->pc + 1;
    i->runs++;
    if (w->queues[STORES].count && draw() % (settings.late == 2 ? 1024 : 16) == 0) some_store(w);
    if (i->op <= LAST_COMPARING) w->product_words = 0;
    if (i->op <= LAST_VECTOR) {
        vector(w, i, result, NULL);
        if (i->flags & DUAL) {  // both read before one writes
            vector(w, i + 1, second, NULL);
            write_vector(w, i + 1, i[1].to.reg, second);
            next++;
        }
        write_vector(w, i, i->to.reg, result);
    } else if (i->op <= LAST_COMPARING) {
        const u64 bits = vector(w, i, result, second);
        if (i->op <= LAST_CARRYING) write_vector(w, i, i->to.reg, result);
        if (i->op <= LAST_WIDE) write_vector(w, i, i->to.reg + 1, second);
        else if (i->op <= LAST_CARRYING) write_scalar(w, i, &i->to2, bits);
        else if (i->flags & SETS_EXEC) set_exec(w, bits ^ broken(i, OF_SCALARS));
        else write_scalar(w, i, &i->to, bits);
    } else if (i->op <= LAST_SCALAR)
        scalar(w, i);
    else if (i->op <= LAST_BRANCH)
        next = branches(w, i) ^ (int)broken(i, 1) ? i->target : next;
    else
        other(w, i, result, second, d);
    w->pc = next;
}

// A wave as the hardware starts it ("Initial Wave State"), with what COMPUTE_PGM_RSRC2 asks for in scalar registers. The others
// are noise that looks like NaN
static void start_wave(Wave *w, const Dispatch *d, Group *group, int index) {
    u32 at = 0;
    const u32 asked = d->starts_with, number = group->number, left = d->threads - index * d->wave;
    const u32 id[3] = {number % d->groups[0], number / d->groups[0] % d->groups[1], number / d->groups[0] / d->groups[1]};
    memset(w, 0, offsetof(Wave, v));
    w->group = group, w->index = index, w->width = d->wave, w->core = group->core + (d->wgp ? index & 1 : 0);
    w->pace = (u32)(1000 * pow(0.05, draw() % 1000 / 1000.0));
    for (u32 r = 0; r < d->registers; r++)
        for (int l = 0; l < MOST_LANES; l++) w->v[r][l] = r ? 0x7fc00000 ^ (draw() & 0xffffff) << 3 : index * d->wave + l;
    for (int r = 0; r < SCALARS; r++) w->s[r] = draw() * 2654435761u;
    w->scratch_words = d->scratch_words;
    for (u32 n = 0; n < d->scratch_words; n++)
        for (int l = 0; l < w->width; l++) w->scratch[n][l] = 0x7fc00000 ^ (draw() & 0xffffff) << 3;
    for (; at < (asked >> 1 & 31); at++) w->s[at] = d->user[at], w->scalar_written[at] = 1;
    for (int n = 0; settings.rdna < 4 && n < 3; n++)
        if (asked >> (7 + n) & 1) w->s[at] = id[n], w->scalar_written[at++] = 1;
    if (settings.rdna == 4) {  // in registers of their own
        w->s[TTMP9_REG] = id[0], w->s[TTMP7_REG] = id[2] << 16 | id[1], w->s[TTMP8_REG] = index << 25;
        w->scalar_written[TTMP9_REG] = w->scalar_written[TTMP7_REG] = w->scalar_written[TTMP8_REG] = 1;
    }
    if (asked >> 10 & 1) w->s[at] = (u32)!index << 31 | index << 20 | d->waves, w->scalar_written[at++] = 1;
    if (asked & 1) w->s[at] = 0, w->scalar_written[at] = 1;  // where the wave's begins
    set_exec(w, left >= d->wave ? (d->wave == 64 ? ~0ull : LOW32) : (1ull << left) - 1);
    w->scalar_written[EXEC_REG] = w->scalar_written[EXEC_REG + 1] = w->written[0] = 1;
}

static void start_group(Group *group, const Dispatch *d, u32 number) {
    free(group->clock);
    group->number = number, group->clock = NULL, group->began = now;
    for (u32 n = 0; n < d->lds_bytes / 4; n++) group->data[n] = 0x7fc00000 ^ draw(), group->words[n] = (Word){0};
    for (u32 n = 0; n < d->waves; n++) start_wave(&group->waves[n], d, group, n);
}

// Waves at a barrier go on when all that have not ended are there. Returns how many have not ended
static int meet(Group *group) {
    int count[3] = {0};
    for (int n = 0; n < group->wave_count; n++) count[group->waves[n].state]++;
    if (count[AT_BARRIER] && !count[RUNS]) meet_at_barrier(group);
    return group->wave_count - count[OVER];
}

static void set_denormals(u32 mode) {  // "MODE": bit 4 keeps those of sources, bit 5 those of results
    const u32 usual = 0x1f80, zero_sources = 0x40, zero_results = 0x8000;
    _mm_setcsr(usual | (mode >> 4 & 1 ? 0 : zero_sources) | (mode >> 5 & 1 ? 0 : zero_results));
}

// Runs all workgroups of a dispatch, at most settings.resident at a time and in a random order
static void run_waves(const Dispatch *d) {
    static const int bursts[] = {1, 1, 2, 5, 20, 100};
    const u32 csr = _mm_getcsr(), total = d->groups[0] * d->groups[1] * d->groups[2];
    u32 living = settings.resident < total ? (u32)settings.resident : total, next = 0;
    const size_t group_bytes = living * sizeof(Group), wave_bytes = living * d->waves * sizeof(Wave);
    Group *groups = reserve(group_bytes), **live = malloc(living * sizeof *live);
    u32 *order = malloc(total * sizeof *order);
    began = now, all_waves = reserve(wave_bytes), wave_count = living * d->waves, group_waves = d->waves;
    set_denormals(d->mode);
    for (u32 n = 0; n < total; n++) {  // shuffled
        const u32 k = draw() % (n + 1);
        order[n] = order[k], order[k] = n;
    }
    for (; next < living; next++) {
        Group *group = live[next] = &groups[next];
        group->wave_count = d->waves, group->waves = all_waves + next * d->waves, group->core = 2 * next;
        group->lds = (Range){0, d->lds_bytes, (u8 *)group->data, group->words};
        start_group(group, d, order[next]);
    }
    while (living && !(report.kinds >> FAULT)) {
        const u32 drawn = draw() % living;
        Wave *w = &live[drawn]->waves[draw() % d->waves];
        if (w->state != RUNS || draw() % 1000 > w->pace) continue;
        for (int burst = bursts[draw() % 6]; burst && w->state == RUNS; burst--, w->steps++, report.executed++) step(w, d);
        if (w->state != OVER && w->steps > (u64)settings.budget) found(ENDLESS, &d->program->instructions[w->pc], w->steps);
        if (w->state == RUNS || meet(w->group)) continue;
        if (next < total) start_group(w->group, d, order[next++]);
        else live[drawn] = live[--living];
    }
    _mm_setcsr(csr);
    forget();
    munmap(groups, group_bytes), munmap(all_waves, wave_bytes), free(order), free(live);
}
