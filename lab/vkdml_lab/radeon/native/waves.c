// The waves of a dispatch: one runs for a few instructions, then another one, in a random order and each at a pace of its own.
static u64 op_counts[OPS];

static int is_vcc_zero(const Wave *w) { return !(w->s[VCC] | (w->width == 64 ? w->s[VCC + 1] : 0)); }

static int branches(const Wave *w, u16 op)
{
    switch (op) {
    case OP_s_branch: return 1;
    case OP_s_cbranch_scc0: return !w->scc;
    case OP_s_cbranch_scc1: return w->scc;
    case OP_s_cbranch_vccz: return is_vcc_zero(w);
    case OP_s_cbranch_vccnz: return !is_vcc_zero(w);
    case OP_s_cbranch_execz: return !exec_of(w);
    default: return exec_of(w) != 0;
    }
}

// One word in each lane. Apart for each width: the compiler makes vector instructions of loops whose lengths it knows
static void vector(Wave *w, const Instruction *i, u32 *result)
{
    if (w->width == 64) vector_of(w, i, result, 64);
    else vector_of(w, i, result, 32);
}

// "V_READFIRSTLANE_B32" and what else goes from lanes to scalars or back
static void across_lanes(Wave *w, const Instruction *i, u32 *result)
{
    const Operand *from = &i->source[0];
    const u64 lanes = exec_of(w);
    u32 other[MOST_LANES], lane;
    switch (i->op) {
    case OP_v_readfirstlane_b32:
    case OP_v_readlane_b32:
        if (from->kind == VECTOR) check_vector(w, i, from->reg, 1);
        lane = i->op == OP_v_readlane_b32 ? (u32)read_scalar(w, i, &i->source[1]) & (w->width - 1) : lanes ? __builtin_ctzll(lanes) : 0;
        write_scalar(w, i, &i->to, from->kind == VECTOR ? w->v[from->reg][lane] : read_scalar(w, i, from));
        break;
    case OP_v_writelane_b32:
        lane = (u32)read_scalar(w, i, &i->source[1]) & (w->width - 1);
        w->v[i->to.reg][lane] = (u32)read_scalar(w, i, from), w->written[i->to.reg] = 1;
        break;
    case OP_v_swap_b32:
        memcpy(result, read_vector(w, i, from, other), sizeof other);
        memcpy(other, read_vector(w, i, &i->to, other), sizeof other);
        write_vector(w, i, i->to.reg, result);
        write_vector(w, i, from->reg, other);
        break;
    default: {  // "V_MBCNT_LO_U32_B32", "V_MBCNT_HI_U32_B32": the bits of lanes below
        u32 copies[2][MOST_LANES];
        const u32 *mask = read_vector(w, i, from, copies[0]), *sum = read_vector(w, i, &i->source[1], copies[1]);
        const int high = i->op == OP_v_mbcnt_hi_u32_b32 ? 32 : 0;
        for (int l = 0; l < w->width; l++) result[l] = sum[l] + __builtin_popcount(mask[l] & (u32)(((1ull << l) - 1) >> high));
        write_vector(w, i, i->to.reg, result);
    }
    }
}

static void other(Wave *w, const Instruction *i, u32 *result, const Dispatch *d)
{
    switch (i->op) {
    case OP_nothing: case OP_buffer_gl1_inv: break;  // a GPU's middle cache has nothing that its first one had not
    case OP_buffer_gl0_inv: invalidate_core(w->core); break;
    case OP_s_endpgm:
        finish_to(w, &w->stores, 0), finish_to(w, &w->loads, 0), finish_to(w, &w->shared, 0);
        w->state = OVER;
        break;
    case OP_s_barrier: if (d->waves > 1) w->state = AT_BARRIER; break;
    case OP_s_waitcnt: finish_to(w, &w->loads, i->immediate[0]), wait_shared(w, i->immediate[1]); break;
    case OP_s_waitcnt_vscnt: finish_to(w, &w->stores, i->immediate[0]); break;
    case OP_s_waitcnt_depctr: if (!(i->immediate[0] >> 2 & 7)) send_all(w, d->wgp && d->waves > 1); break;
    case OP_s_getpc_b64: write_scalar(w, i, &i->to, d->program->va + i->pc + 4); break;
    case OP_scalar_load: scalar_load(w, i); break;
    case OP_v_fma_mix_f32: case OP_v_fma_mixlo_f16: case OP_v_fma_mixhi_f16:
        fma_mix(w, i, result);
        write_vector(w, i, i->to.reg, result);
        break;
    default:
        if (i->op >= OP_buffer_load) vector_memory(w, i);
        else across_lanes(w, i, result);
    }
}

static void step(Wave *w, const Dispatch *d)
{
    const Instruction *i = &d->program->instructions[w->pc];
    u32 result[MOST_LANES], second[MOST_LANES];
    int next = w->pc + 1;
    op_counts[i->op]++;
    if (w->stores.count && draw() % (settings.late == 2 ? 1024 : 16) == 0) some_store(w);
    if (i->op <= LAST_VECTOR) {
        vector(w, i, result);
        if (i->flags & DUAL) {  // both read before one writes
            vector(w, i + 1, second);
            write_vector(w, i + 1, i[1].to.reg, second);
            op_counts[i[1].op]++, next++;
        }
        write_vector(w, i, i->to.reg, result);
    } else if (i->op <= LAST_WIDE) {
        wide_of(w, i, result, second);
        write_vector(w, i, i->to.reg, result);
        write_vector(w, i, i->to.reg + 1, second);
    } else if (i->op <= LAST_CARRYING) {
        const u64 carries = carry_of(w, i, result);
        write_vector(w, i, i->to.reg, result);
        write_scalar(w, i, &i->to2, carries);
    } else if (i->op <= LAST_COMPARING) {
        const u64 bits = compare_of(w, i);
        if (i->flags & SETS_EXEC) set_exec(w, bits);
        else write_scalar(w, i, &i->to, bits);
    } else if (i->op <= LAST_SCALAR)
        scalar(w, i);
    else if (i->op <= OP_s_cbranch_execnz && i->op >= OP_s_branch) {
        if (branches(w, i->op)) next = i->target;
    } else
        other(w, i, result, d);
    w->pc = next;
}

// A wave as the hardware starts it ("Wave State", "Initial Wave State"); what it does not set is noise, and looks like NaN
static void start_wave(Wave *w, const Dispatch *d, Group *group, int index, int slot)
{
    u32 (*v)[MOST_LANES] = w->v;
    memset(w, 0, sizeof *w);
    w->v = v, w->group = group, w->index = index, w->width = d->wave, w->core = d->wgp ? 2 * slot + (index & 1) : 2 * slot;
    w->pace = (u32)(1000 * pow(0.05, draw() % 1000 / 1000.0));
    for (u32 r = 0; r < d->registers; r++)
        for (int l = 0; l < MOST_LANES; l++) v[r][l] = 0x7fc00000 ^ (draw() & 0xffffff) << 3;
    for (int r = 0; r < SCALARS; r++) w->s[r] = draw() * 2654435761u;
    u32 at = 0;
    for (; at < d->user_count; at++) w->s[at] = d->user[at], w->scalar_written[at] = 1;
    const u32 number = group->number;
    const u32 id[3] = {number % d->groups[0], number / d->groups[0] % d->groups[1], number / d->groups[0] / d->groups[1]};
    for (int n = 0; n < 3; n++)
        if (d->has_group_id[n]) w->s[at] = id[n], w->scalar_written[at++] = 1;
    if (d->has_group_size) w->s[at] = (u32)!index << 31 | index << 20 | d->waves, w->scalar_written[at] = 1;
    const u32 left = d->threads - index * d->wave;
    set_exec(w, left >= d->wave ? (d->wave == 64 ? ~0ull : LOW32) : (1ull << left) - 1);
    w->scalar_written[EXEC] = w->scalar_written[EXEC + 1] = w->written[0] = 1;
    for (int l = 0; l < MOST_LANES; l++) v[0][l] = index * d->wave + l;
}

static void start_group(Group *group, const Dispatch *d, u32 number, int slot)
{
    group->number = number, group->barriers = 0, group->wave_count = d->waves;
    for (u32 n = 0; n < d->lds_bytes / 4; n++) ((u32 *)group->lds)[n] = 0x7fc00000 ^ draw();
    memset(group->words, 0, d->lds_bytes / 4 * sizeof *group->words);
    for (u32 n = 0; n < d->waves; n++) start_wave(&group->waves[n], d, group, n, slot);
}

// Waves at a barrier go on when all that have not ended are there. Returns how many have not ended
static int meet(Group *group)
{
    int arrived = 0, over = 0;
    for (int n = 0; n < group->wave_count; n++)
        arrived += group->waves[n].state == AT_BARRIER, over += group->waves[n].state == OVER;
    if (arrived && arrived + over == group->wave_count) {
        group->barriers++;
        for (int n = 0; n < group->wave_count; n++)
            if (group->waves[n].state == AT_BARRIER) group->waves[n].state = RUNS;
    }
    return group->wave_count - over;
}

static void set_denormals(u32 mode)  // "MODE": bit 4 keeps those of sources, bit 5 those of results
{
    const u32 usual = 0x1f80, zero_sources = 0x40, zero_results = 0x8000;
    _mm_setcsr(usual | (mode >> 4 & 1 ? 0 : zero_sources) | (mode >> 5 & 1 ? 0 : zero_results));
}

// Runs all workgroups of a dispatch, at most settings.resident at a time and in a random order. Returns whether all waves ended
static int run_waves(const Dispatch *d)
{
    static const int bursts[] = {1, 1, 2, 5, 20, 100};
    const int total = d->groups[0] * d->groups[1] * d->groups[2];
    const int slots = settings.resident < total ? (int)settings.resident : total, waves = slots * d->waves;
    Group *groups = calloc(slots, sizeof *groups);
    Wave *all = calloc(waves, sizeof *all);
    u32 (*registers)[MOST_LANES] = malloc((size_t)waves * d->registers * sizeof *registers);
    u8 *lds = malloc((size_t)slots * d->lds_bytes + 1);
    SharedWord *words = malloc(((size_t)slots * d->lds_bytes / 4 + 1) * sizeof *words);
    int *order = malloc(total * sizeof *order), *live = malloc(slots * sizeof *live), next = 0, living = 0, ok = 1;
    u64 executed = 0;
    began = now, lds_of_dispatch = d->lds_bytes;
    const u32 csr = _mm_getcsr();
    set_denormals(d->mode);
    for (int n = 0; n < total; n++) order[n] = n;
    for (int n = total - 1; n > 0; n--) {
        const int k = draw() % (n + 1), kept = order[n];
        order[n] = order[k], order[k] = kept;
    }
    for (int n = 0; n < waves; n++) all[n].v = registers + (size_t)n * d->registers;
    for (int n = 0; n < slots; n++) {
        groups[n] = (Group){.waves = all + n * d->waves, .lds = lds + (size_t)n * d->lds_bytes,
                            .words = words + (size_t)n * d->lds_bytes / 4};
        start_group(&groups[n], d, order[next++], n);
        live[living++] = n;
    }
    while (living && ok) {
        Wave *w = NULL;
        for (int tries = 0; !w; tries++) {
            const int slot = live[draw() % living];
            Wave *drawn = &groups[slot].waves[draw() % d->waves];
            if (drawn->state == RUNS && (tries > 50 || draw() % 1000 <= drawn->pace)) w = drawn;
        }
        const Instruction *i = &d->program->instructions[w->pc];
        const u64 before = executed;
        for (int burst = bursts[draw() % 6]; burst && w->state == RUNS; burst--, executed++) {
            i = &d->program->instructions[w->pc];
            step(w, d);
        }
        w->steps += executed - before;
        if (executed > (u64)settings.budget) found(w, ENDLESS, i, w->steps), ok = 0;
        for (u32 n = 0; n < report.found_count; n++) ok &= report.found[n].kind != FAULT && report.found[n].kind != REFUSED;
        if (w->state == RUNS || meet(w->group)) continue;
        const int slot = (int)(w->group - groups);
        if (next < total) start_group(&groups[slot], d, order[next++], slot);
        else
            for (int n = 0; n < living; n++)
                if (live[n] == slot) live[n] = live[--living];
    }
    report.executed = executed;
    for (int n = 0; n < waves; n++) {  // of those that did not end
        Queue *queues[3] = {&all[n].loads, &all[n].shared, &all[n].stores};
        for (int q = 0; q < 3; q++)
            while (queues[q]->count) free(queues[q]->of[--queues[q]->count]);
    }
    _mm_setcsr(csr);
    free(groups), free(all), free(registers), free(lds), free(words), free(order), free(live);
    return ok;
}
