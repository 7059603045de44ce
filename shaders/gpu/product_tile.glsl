// Multiplies a workgroup's tile of a matrix product: ROWS samples of X with the weights of all gates of PART_UNITS units. Both
// go through shared memory in blocks of columns, and while a block is multiplied, the next one is on its way from memory. An
// invocation has SAMPLES_AT_ONCE samples and UNITS_AT_ONCE units, with their sums in registers. A sum is one chain of
// multiply-adds, in the order of the columns: the same bits from tiles of any shape. Weights lie as [direction][unit /
// TOGETHER][load][gate][unit % TOGETHER], so a block of TOGETHER units is side by side.
layout(constant_id = 46) const uint UNIT_LANES = 1;   // invocations along a tile's units, SAMPLE_LANES times
layout(constant_id = 47) const uint BLOCK_LOADS = 1;  // loads of weights for a gate in a block
layout(constant_id = 48) const uint TOGETHER = 1;     // units whose weights lie together
const uint SAMPLE_LANES = WORKGROUP / UNIT_LANES;
const uint SAMPLES_AT_ONCE = ROWS / SAMPLE_LANES, UNITS_AT_ONCE = PART_UNITS / UNIT_LANES;
const uint SAMPLE_SUMS = UNITS_AT_ONCE * GATES, SUMS = SAMPLES_AT_ONCE * SAMPLE_SUMS;
const uint BLOCK_VECS = BLOCK_LOADS * VECS_PER_LOAD, BLOCKS = (INPUT_LOADS + BLOCK_LOADS - 1) / BLOCK_LOADS;

// The loads for a block, and the turns that the invocations take for them. In the last turn surplus invocations repeat the last
// load, so that none diverges, and store it behind the tile: two stores to a word are a race even of equal values.
const uint X_VECS = ROWS * BLOCK_VECS, X_TURNS = (X_VECS + WORKGROUP - 1) / WORKGROUP;
const uint W_LOADS = PART_UNITS * GATES * BLOCK_LOADS, W_TURNS = (W_LOADS + WORKGROUP - 1) / WORKGROUP;
const uint X_SURPLUS = X_TURNS * WORKGROUP - X_VECS, W_SURPLUS = W_TURNS * WORKGROUP - W_LOADS;

// A tile of X is [vec][sample], with two samples more, so that neighbouring vecs of a sample are in different banks.
const uint X_PITCH = ROWS + 2;
const uint X_END = BLOCK_VECS * X_PITCH, W_END = BLOCK_VECS * GATES * PART_UNITS;
shared vec4 x_tile[X_END + X_SURPLUS];
shared vec4 w_tile[W_END + W_SURPLUS];  // [vec][gate][unit]
shared uint x_starts[ROWS];

// The loads under way, still packed: unpacking would wait for them.
uvec4 next_x[X_TURNS], next_w[W_TURNS];
uint x_start[X_TURNS];

struct XPlace { uint vec; uint sample_; };  // a place within the tile
XPlace x_place(uint turn)
{
    uint i = turn * WORKGROUP + gl_LocalInvocationID.x;
    if (X_SURPLUS != 0) i = min(i, X_VECS - 1);
    return XPlace(i % BLOCK_VECS, i / BLOCK_VECS);
}

// units: which block of TOGETHER units; within: the gate and unit within a load of all of them
struct WPlace { uint units; uint load; uint within; };
WPlace w_place(uint turn)
{
    uint i = turn * WORKGROUP + gl_LocalInvocationID.x;
    if (W_SURPLUS != 0) i = min(i, W_LOADS - 1);
    uint of_load = i / (GATES * TOGETHER);
    return WPlace(of_load / BLOCK_LOADS, of_load % BLOCK_LOADS, i % (GATES * TOGETHER));
}

// Fetches four columns of a sample. For columns past its end it fetches others of the sample.
uvec4 fetch_x(uint start, uint column)
{
    if (X_IN_VECS != 0) {
        uint place = start + min(column, INPUTS - 4);
        return ELEMENT == FLOAT32 ? x_uvecs[place / 4] : uvec4(x_words[place / 2], x_words[place / 2 + 1], 0, 0);
    }
    uvec4 words;
    [[unroll]] for (uint c = 0; c < 4; ++c)
        words[c] = x_words[start + min(column + c, INPUTS - 1) * dispatch.input_stride_i >> uint(ELEMENT != FLOAT32)];
    return words;
}

// Columns past the end are 0 in X and -0 in the weights: adding their product to a sum leaves its bits as they are.
const bool X_HAS_END = BLOCKS * BLOCK_VECS * 4 != INPUTS, W_HAS_END = BLOCKS * BLOCK_LOADS != INPUT_LOADS;

vec4 unpack_x(uvec4 words, uint start, uint column)
{
    vec4 x = ELEMENT == FLOAT32 ? uintBitsToFloat(words) : vec4(two_floats(words.x), two_floats(words.y));
    if (X_IN_VECS == 0)
        [[unroll]] for (uint c = 0; c < 4; ++c) x[c] = element_of(words[c], start + (column + c) * dispatch.input_stride_i);
    if (X_HAS_END) [[unroll]] for (uint c = 0; c < 4; ++c) x[c] = column + c < INPUTS ? x[c] : 0.0;
    return x;
}

vec4 unpack_w(uvec4 words, uint vec, uint load)
{
    vec4 w = unpack_weights(words, vec);
    if (W_HAS_END) w = mix(vec4(uintBitsToFloat(0x80000000u)), w, bvec4(load < INPUT_LOADS));
    return w;
}

// Returns where a turn's load is stored: at `place`, or, past the `count` loads of a tile, behind its `end`.
uint stored_at(uint place, uint turn, uint count, uint end)
{
    uint i = turn * WORKGROUP + gl_LocalInvocationID.x;
    return (turn + 1) * WORKGROUP <= count || i < count ? place : end + i - count;
}

void store(uint block)
{
    [[unroll]] for (uint turn = 0; turn < X_TURNS; ++turn) {
        XPlace place = x_place(turn);
        vec4 x = unpack_x(next_x[turn], x_start[turn], (block * BLOCK_VECS + place.vec) * 4);
        x_tile[stored_at(place.vec * X_PITCH + place.sample_, turn, X_VECS, X_END)] = x;
    }
    [[unroll]] for (uint turn = 0; turn < W_TURNS; ++turn) {
        WPlace place = w_place(turn);
        uint unit = place.units * TOGETHER + place.within % TOGETHER, gate = place.within / TOGETHER;
        [[unroll]] for (uint vec = 0; vec < VECS_PER_LOAD; ++vec) {
            vec4 w = unpack_w(next_w[turn], vec, block * BLOCK_LOADS + place.load);
            uint row = (place.load * VECS_PER_LOAD + vec) * GATES + gate;
            w_tile[stored_at(row * PART_UNITS + unit, turn, W_LOADS, W_END)] = w;
        }
    }
}

void fetch(uint block, uint w_start)
{
    [[unroll]] for (uint turn = 0; turn < X_TURNS; ++turn) {
        XPlace place = x_place(turn);
        next_x[turn] = fetch_x(x_start[turn], (block * BLOCK_VECS + place.vec) * 4);
    }
    [[unroll]] for (uint turn = 0; turn < W_TURNS; ++turn) {
        WPlace place = w_place(turn);
        uint load = min(block * BLOCK_LOADS + place.load, INPUT_LOADS - 1);
        next_w[turn] = input_weights[w_start + (place.units * INPUT_LOADS + load) * GATES * TOGETHER + place.within];
    }
}

// Some compilers wait for each load at its use. So a few are issued before they are used; not all, as registers would spill.
const uint VECS_AT_ONCE = SAMPLES_AT_ONCE > 2 ? 1 : SUMS > 3 ? 2 : 4;
const uint SAMPLES_LOADED = SAMPLES_AT_ONCE > 4 ? 4 : SAMPLES_AT_ONCE;

void multiply_vecs(inout float sums[SUMS], uint first_vec, uint sample_lane, uint unit_lane)
{
    vec4 w[VECS_AT_ONCE * SAMPLE_SUMS], x[VECS_AT_ONCE * SAMPLES_LOADED];
    [[unroll]] for (uint v = 0; v < VECS_AT_ONCE; ++v)
        [[unroll]] for (uint u = 0; u < UNITS_AT_ONCE; ++u)
            [[unroll]] for (uint gate = 0; gate < GATES; ++gate) {
                uint row = (first_vec + v) * GATES + gate;
                w[v * SAMPLE_SUMS + u * GATES + gate] = w_tile[row * PART_UNITS + u * UNIT_LANES + unit_lane];
            }
    [[unroll]] for (uint first = 0; first < SAMPLES_AT_ONCE; first += SAMPLES_LOADED) {
        [[unroll]] for (uint v = 0; v < VECS_AT_ONCE; ++v)
            [[unroll]] for (uint s = 0; s < SAMPLES_LOADED; ++s)
                x[v * SAMPLES_LOADED + s] = x_tile[(first_vec + v) * X_PITCH + (first + s) * SAMPLE_LANES + sample_lane];
        [[unroll]] for (uint v = 0; v < VECS_AT_ONCE; ++v)
            [[unroll]] for (uint c = 0; c < 4; ++c)
                [[unroll]] for (uint s = 0; s < SAMPLES_LOADED; ++s)
                    [[unroll]] for (uint i = 0; i < SAMPLE_SUMS; ++i) {
                        uint sum = (first + s) * SAMPLE_SUMS + i;
                        sums[sum] = fma(x[v * SAMPLES_LOADED + s][c], w[v * SAMPLE_SUMS + i][c], sums[sum]);
                    }
    }
}

// Adds the products of the samples that start at x_starts to sums, [sample][unit][gate]. w_start: where the tile's weights
// start. An iteration has no branches, because some compilers would then move the loads to where their values are stored.
void multiply_tile(inout float sums[SUMS], uint w_start, uint sample_lane, uint unit_lane)
{
    [[unroll]] for (uint turn = 0; turn < X_TURNS; ++turn) x_start[turn] = x_starts[x_place(turn).sample_];
    fetch(0, w_start);
    store(0);
    [[dont_unroll]] for (uint block = 0; block < BLOCKS; ++block) {
        uint next = min(block + 1, BLOCKS - 1);  // the last block is fetched twice
        fetch(next, w_start);
        barrier();
        [[unroll]] for (uint vec = 0; vec < BLOCK_VECS; vec += VECS_AT_ONCE) multiply_vecs(sums, vec, sample_lane, unit_lane);
        barrier();
        store(next);
    }
}
