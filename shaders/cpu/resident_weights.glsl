// Keeps recurrent weights in private memory for a whole dispatch. A workgroup holds all units of its part, an invocation
// UNITS_AT_ONCE of them, and each loads its weights once. All code that uses them is unrolled and indexes their arrays by
// constants: so a weight is read as any operand is, while a load from a buffer takes some fifty instructions. If a variable
// were an index anywhere, the code would take three times as long to compile. There are several arrays because llvmpipe's
// coroutine pass looks at every pair of uses of each array.
layout(constant_id = 46) const uint ARRAY_COLUMNS = 32;  // columns of h whose weights one array holds
const uint HIDDEN_COLUMNS = HIDDEN_VECS * 4;  // a multiple of ARRAY_COLUMNS

#define DECLARE_WEIGHTS(n) float weights_##n[ARRAY_COLUMNS * UNITS_AT_ONCE * GATES];
EACH_PRIVATE_ARRAY(DECLARE_WEIGHTS)
vec4 resident_biases[UNITS_AT_ONCE], resident_peepholes[UNITS_AT_ONCE];

// Loads the weights. The code of a load stands here once for all arrays, because loads take compilers longest.
void load_resident_weights()
{
    ROW_LOOP for (uint load = 0; load < HIDDEN_LOADS; ++load) {
        uvec4 loaded[UNITS_AT_ONCE * GATES];
        [[unroll]] for (uint u = 0; u < UNITS_AT_ONCE; ++u) {
            uint start = weights_start(direction, unit_of(u), HIDDEN_LOADS);
            [[unroll]] for (uint gate = 0; gate < GATES; ++gate)
                loaded[u * GATES + gate] = hidden_weights[weights_place(start, load, gate)];
        }
#define FILL_ARRAY(n) \
        if (n * ARRAY_COLUMNS < HIDDEN_COLUMNS) \
            ONCE_IF(load * VECS_PER_LOAD * 4 / ARRAY_COLUMNS == n) \
                [[unroll]] for (uint i = 0; i < ARRAY_COLUMNS * UNITS_AT_ONCE * GATES; ++i) { \
                    uint column = n * ARRAY_COLUMNS + i / (UNITS_AT_ONCE * GATES); \
                    float w = unpack_weights(loaded[i % (UNITS_AT_ONCE * GATES)], column / 4 % VECS_PER_LOAD)[column % 4]; \
                    weights_##n[i] = mix(weights_##n[i], w, column / 4 / VECS_PER_LOAD == load); \
                }
        EACH_PRIVATE_ARRAY(FILL_ARRAY)
    }
    [[unroll]] for (uint u = 0; u < UNITS_AT_ONCE; ++u) {
        resident_biases[u] = hidden_extra(0, unit_of(u));
        if (HAS_PEEPHOLE != 0) resident_peepholes[u] = hidden_extra(1, unit_of(u));
    }
}

// Sets sums to the products of a row of h with the weights of the phase's gates, plus the recurrent biases.
void multiply_resident(out vec4 sums[UNITS_AT_ONCE], uint phase, uint r)
{
    [[unroll]] for (uint u = 0; u < UNITS_AT_ONCE; ++u) sums[u] = resident_biases[u];
#define MULTIPLY_ARRAY(n) \
    if (n * ARRAY_COLUMNS < HIDDEN_COLUMNS) \
        [[unroll]] for (uint block = 0; block < ARRAY_COLUMNS; block += LANES * 4) { \
            vec4 own = load_state_vec(source, r, (n * ARRAY_COLUMNS + block) / 4 + LANE); \
            [[unroll]] for (uint lane = 0; lane < LANES; ++lane) { \
                vec4 h = subgroupShuffle(own, lane); \
                [[unroll]] for (uint c = 0; c < 4; ++c) \
                    [[unroll]] for (uint u = 0; u < UNITS_AT_ONCE; ++u) \
                        [[unroll]] for (uint gate = first_gate(phase); gate < end_gate(phase); ++gate) \
                            sums[u][gate] += h[c] * weights_##n[((block + lane * 4 + c) * UNITS_AT_ONCE + u) * GATES + gate]; \
            } \
        }
    EACH_PRIVATE_ARRAY(MULTIPLY_ARRAY)
}
