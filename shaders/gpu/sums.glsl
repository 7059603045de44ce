// The sums over the column groups, through shared memory: of each group a vec4, with a component a gate. Of many groups, SPLIT
// invocations add a share each first. An invocation finishes FINISHED rows of its unit: row column_group + i * COLUMN_GROUPS of the
// tile is its `i`.
const uint FINISHED = (ROWS + COLUMN_GROUPS - 1) / COLUMN_GROUPS;
const uint SPLIT = COLUMN_GROUPS < 16 ? 1 : 4, SHARE = COLUMN_GROUPS / SPLIT;
const uint SHARES = (ROWS * SPLIT + COLUMN_GROUPS - 1) / COLUMN_GROUPS;  // that an invocation adds
const uint SUM_VECS = ROWS * WORKGROUP;

// Another file defines: where they are, and that they may be written there
vec4 load_sums(uint place);
void store_sums(uint place, vec4 sums);
void begin_sums();

uint place_of_sums(uint r, uint group) { return r * WORKGROUP + group * TURN_UNITS + gl_LocalInvocationID.x % TURN_UNITS; }
// Of `count` groups, `stride` apart
vec4 sum_of(uint place, uint count, uint stride)
{
    vec4 total = load_sums(place);
    [[unroll]] for (uint i = 1; i < count; ++i) total += load_sums(place + i * stride * TURN_UNITS);
    return total;
}

// Then all invocations may call recurrent_part
void share_sums(float sums[SUMS], uint first, uint end)
{
    begin_sums();
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        vec4 of_gates = vec4(0.0);
        [[unroll]] for (uint gate = first; gate < end; ++gate) of_gates[gate] = sums[r * GATES + gate];
        store_sums(place_of_sums(r, column_group), of_gates);
    }
    barrier();
    if (SPLIT > 1) {
        [[unroll]] for (uint i = 0; i < SHARES; ++i) {
            uint share = column_group + i * COLUMN_GROUPS, r = share / SPLIT;
            uint place = place_of_sums(r, share % SPLIT * SHARE);
            if (r < ROWS) store_sums(place, sum_of(place, SHARE, 1));
        }
        barrier();
    }
}

// Of the gates from first to end
vec4 recurrent_part(uint r, uint first, uint end)
{
    uint place = place_of_sums(r, 0);
    vec4 recurrent = SPLIT > 1 ? sum_of(place, SPLIT, SHARE) : sum_of(place, COLUMN_GROUPS, 1);
    [[unroll]] for (uint gate = first; gate < end; ++gate)
        if (((SPLIT_BIAS >> gate) & 1) != 0) recurrent[gate] += recurrent_bias[gate];
    return recurrent;
}
