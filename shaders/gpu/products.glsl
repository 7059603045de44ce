// Multiplies h with the recurrent weights, adds up the products, and loads the input's part of the gates. A workgroup computes
// TURN_UNITS units at once, each by COLUMN_GROUPS invocations: invocation `i` has unit i % TURN_UNITS, and of its weights the
// loads k * COLUMN_GROUPS + i / TURN_UNITS. The first REGISTER_LOADS of these stay in registers for the whole dispatch,
// SHARED_LOADS more in shared memory. The rest is streamed, STREAM_LOADS at once, with the next ones under way while these are
// multiplied.
// Weights lie as [direction][unit / TOGETHER][load][gate][unit % TOGETHER]; biases and peephole weights follow.
layout(constant_id = 70) const uint COLUMN_GROUPS = 1;
layout(constant_id = 71) const uint REGISTER_LOADS = 0;
layout(constant_id = 72) const uint SHARED_LOADS = 0;
layout(constant_id = 73) const uint STREAM_LOADS = 1;  // divides the number of streamed loads
layout(constant_id = 74) const uint TOGETHER = 1;
layout(constant_id = 75) const uint SPLIT_BIAS = 0;    // bit g is set if gate g's recurrent bias is not in the input's part
const uint SUMS = ROWS * GATES;                         // the sums of an invocation
const uint BLOCK = STREAM_LOADS * GATES;                // loads that are streamed at once
const uint TURN_UNITS = WORKGROUP / COLUMN_GROUPS;
const uint GROUP_LOADS = HIDDEN_LOADS / COLUMN_GROUPS;  // an invocation's loads of a gate
const uint KEPT_LOADS = REGISTER_LOADS + SHARED_LOADS;
const uint LAST_BLOCK = GROUP_LOADS > KEPT_LOADS ? GROUP_LOADS - STREAM_LOADS : KEPT_LOADS;
layout(binding = 3) readonly buffer HiddenWeights { uvec4 hidden_weights[]; };
shared uvec4 kept_in_shared[SHARED_LOADS != 0 ? SHARED_LOADS * GATES * WORKGROUP : 1];
uvec4 kept[REGISTER_LOADS != 0 ? REGISTER_LOADS * GATES : 1];
uvec4 next[BLOCK];
uint column_group;   // the column group of this invocation
uint unit;           // the unit that it computes
uint weights_start;  // where its weights start
vec4 recurrent_bias;

// Another file defines this: it returns four neighbouring numbers of the vector that R multiplies, for row r of the tile.
vec4 source_vec(uint r, uint vec);

uint packed_unit() { return min(unit, UNITS - 1); }  // a workgroup may have more units than are packed

vec4 hidden_extra(uint which)
{
    uint end_of_weights = DIRECTIONS * HIDDEN_LOADS * GATES * UNITS;
    return uintBitsToFloat(hidden_weights[end_of_weights + (which * DIRECTIONS + direction) * UNITS + packed_unit()]);
}

// Sets this invocation's unit. first: the first of the units that the workgroup computes at once.
void begin_units(uint first)
{
    column_group = gl_LocalInvocationID.x / TURN_UNITS;
    unit = first + gl_LocalInvocationID.x % TURN_UNITS;
    uint block = packed_unit() / TOGETHER;
    weights_start = ((direction * UNITS + block * TOGETHER) * HIDDEN_LOADS + column_group * TOGETHER) * GATES
                  + packed_unit() % TOGETHER;
    if (SPLIT_BIAS != 0) recurrent_bias = hidden_extra(0);
    if (HAS_PEEPHOLE != 0) peephole = hidden_extra(1);
}

uvec4 load_weights(uint k, uint gate) { return hidden_weights[weights_start + (k * COLUMN_GROUPS * GATES + gate) * TOGETHER]; }

void keep_weights(uint first, uint end)
{
    [[unroll]] for (uint k = 0; k < REGISTER_LOADS; ++k)
        [[unroll]] for (uint gate = first; gate < end; ++gate) kept[k * GATES + gate] = load_weights(k, gate);
    if (SHARED_LOADS != 0) {
        for (uint k = 0; k < SHARED_LOADS; ++k)
            [[unroll]] for (uint gate = first; gate < end; ++gate)
                kept_in_shared[(k * GATES + gate) * WORKGROUP + gl_LocalInvocationID.x] = load_weights(REGISTER_LOADS + k, gate);
    }
}

void load_block(uint block, uint first, uint end)
{
    [[unroll]] for (uint k = 0; k < STREAM_LOADS; ++k)
        [[unroll]] for (uint gate = first; gate < end; ++gate) next[k * GATES + gate] = load_weights(block + k, gate);
}

// Starts to load the first streamed weights, while h is fetched.
void prefetch_weights(uint first, uint end)
{
    if (KEPT_LOADS < GROUP_LOADS) load_block(KEPT_LOADS, first, end);
}

// Adds a load's products. Each sum is one chain of multiply-adds in the order of the columns, so it is the same in all tilings.
void multiply_load(inout float sums[SUMS], uint k, uvec4 weights[GATES], uint first, uint end)
{
    [[unroll]] for (uint vec = 0; vec < VECS_PER_LOAD; ++vec)
        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
            vec4 h = source_vec(r, (k * COLUMN_GROUPS + column_group) * VECS_PER_LOAD + vec);
            [[unroll]] for (uint gate = first; gate < end; ++gate) {
                vec4 weight = unpack_weights(weights[gate], vec);
                float sum = sums[r * GATES + gate];
                sums[r * GATES + gate] = fma(h.w, weight.w, fma(h.z, weight.z, fma(h.y, weight.y, fma(h.x, weight.x, sum))));
            }
        }
}

void multiply_block(inout float sums[SUMS], uint block, uvec4 weights[BLOCK], uint first, uint end)
{
    [[unroll]] for (uint k = 0; k < STREAM_LOADS; ++k) {
        uvec4 loaded[GATES];
        [[unroll]] for (uint gate = first; gate < end; ++gate) loaded[gate] = weights[k * GATES + gate];
        multiply_load(sums, block + k, loaded, first, end);
    }
}

// Sets this invocation's part of the sums over all columns, for the gates from first to end.
void multiply_columns(out float sums[SUMS], uint first, uint end)
{
    [[unroll]] for (uint i = 0; i < SUMS; ++i) sums[i] = 0.0;
    uvec4 weights[GATES];
    [[unroll]] for (uint k = 0; k < REGISTER_LOADS; ++k) {
        [[unroll]] for (uint gate = first; gate < end; ++gate) weights[gate] = kept[k * GATES + gate];
        multiply_load(sums, k, weights, first, end);
    }
    if (SHARED_LOADS != 0) {
        [[unroll]] for (uint k = 0; k < SHARED_LOADS; ++k) {
            [[unroll]] for (uint gate = first; gate < end; ++gate)
                weights[gate] = kept_in_shared[(k * GATES + gate) * WORKGROUP + gl_LocalInvocationID.x];
            multiply_load(sums, REGISTER_LOADS + k, weights, first, end);
        }
    }
    if (KEPT_LOADS < GROUP_LOADS) {
        [[dont_unroll]] for (uint block = KEPT_LOADS; block < LAST_BLOCK; block += STREAM_LOADS) {
            uvec4 these[BLOCK];
            [[unroll]] for (uint i = 0; i < BLOCK; ++i) these[i] = next[i];
            load_block(block + STREAM_LOADS, first, end);
            multiply_block(sums, block, these, first, end);
        }
        multiply_block(sums, LAST_BLOCK, next, first, end);
    }
}

// Sums over the column groups go through shared memory: each group has a vec4 there, with a component for each gate. If there
// are many groups, SPLIT invocations first add up a share each. An invocation finishes FINISHED rows of its unit: its i-th is
// row column_group + i * COLUMN_GROUPS of the tile.
const uint FINISHED = (ROWS + COLUMN_GROUPS - 1) / COLUMN_GROUPS;
const uint SPLIT = COLUMN_GROUPS < 16 ? 1 : 4, SHARE = COLUMN_GROUPS / SPLIT;
const uint SHARES = (ROWS * SPLIT + COLUMN_GROUPS - 1) / COLUMN_GROUPS;  // shares that an invocation adds
const uint SUM_VECS = ROWS * WORKGROUP;

// Another file defines these: it says where the sums are, and begin_sums waits until they may be written there.
vec4 load_sums(uint place);
void store_sums(uint place, vec4 sums);
void begin_sums();

uint place_of_sums(uint r, uint group) { return r * WORKGROUP + group * TURN_UNITS + gl_LocalInvocationID.x % TURN_UNITS; }
// Returns the sum of `count` groups that are `stride` apart.
vec4 sum_of(uint place, uint count, uint stride)
{
    vec4 total = load_sums(place);
    [[unroll]] for (uint i = 1; i < count; ++i) total += load_sums(place + i * stride * TURN_UNITS);
    return total;
}

// Stores this invocation's sums for the others. Call it in all invocations, before recurrent_part.
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

// Returns the recurrent part of the gates from first to end, for row r of the tile.
vec4 recurrent_part(uint r, uint first, uint end)
{
    uint place = place_of_sums(r, 0);
    vec4 recurrent = SPLIT > 1 ? sum_of(place, SPLIT, SHARE) : sum_of(place, COLUMN_GROUPS, 1);
    [[unroll]] for (uint gate = first; gate < end; ++gate)
        if (((SPLIT_BIAS >> gate) & 1) != 0) recurrent[gate] += recurrent_bias[gate];
    return recurrent;
}

// The input's part of the gates, from gpu/projection.comp: [step][direction][row][unit], a vec4 with a component for each gate.
// It is volatile so that no compiler moves its loads behind a wait, where nothing hides them.
layout(binding = 0) readonly volatile buffer Gates { uvec4 gates[]; };

vec4 input_part(uint step, uint row)
{
    uint start = ((step - dispatch.gates_step) * DIRECTIONS + direction) * dispatch.batch;
    return uintBitsToFloat(gates[(start + min(row, dispatch.batch - 1)) * UNITS + packed_unit()]);
}
