// Products for tiles of many rows: a subgroup's invocations hold rows, not units. Row v * LANES + LANE of the tile is vector v
// of its invocation, of up to four. A block of BLOCK_COLUMNS columns of all rows lies in private arrays that are indexed by
// constants alone, as all that multiplies it is unrolled: so it is read as any operand is, and only weights are loaded, once
// for all rows. There are several arrays because llvmpipe's coroutine pass looks at every pair of uses of each. Define before
// including: BLOCK_VECTOR(v, vec), vec4 number vec of vector v's row, and BLOCK_WEIGHTS, a buffer.
const uint VECTORS = ROWS / LANES;
layout(constant_id = 42) const uint BLOCK_COLUMNS = 16;
layout(constant_id = 46) const uint ARRAY_COLUMNS = 16;  // of one array
const uint LOAD_COLUMNS = LANES * VECS_PER_LOAD * 4;  // of the weights that a subgroup loads at once
const uint BLOCK_LOADS = BLOCK_COLUMNS / (VECS_PER_LOAD * 4);

#define DECLARE_COLUMNS(n) float columns_##n[ARRAY_COLUMNS * VECTORS];
EACH_PRIVATE_ARRAY(DECLARE_COLUMNS)

// A component that a variable tells; by an index, the vector would go to memory
float of_vector(vec4 values, uint v)
{
    return v < 2 ? (v == 0 ? values.x : values.y) : (v == 2 ? values.z : values.w);
}

void load_block(uint block)
{
#define LOAD_COLUMNS_OF(n) \
    if (n * ARRAY_COLUMNS < BLOCK_COLUMNS) \
        ROW_LOOP for (uint v = 0; v < VECTORS; ++v) \
            ROW_LOOP for (uint vec = 0; vec < ARRAY_COLUMNS / 4; ++vec) { \
                vec4 x = BLOCK_VECTOR(v, (block * BLOCK_COLUMNS + n * ARRAY_COLUMNS) / 4 + vec); \
                ROW_LOOP for (uint c = 0; c < 4; ++c) columns_##n[(vec * 4 + c) * VECTORS + v] = of_vector(x, c); \
            }
    EACH_PRIVATE_ARRAY(LOAD_COLUMNS_OF)
}

// The block's products with BLOCK_WEIGHTS for a gate of a unit, a component a vector. They are packed
// [direction][block][unit][gate][load of the block], of `loads` loads in all blocks.
vec4 multiply_block(uint block, uint loads, uint direction, uint gate, uint unit)
{
    uint first = ((direction * loads + block * BLOCK_LOADS) * UNITS + unit * BLOCK_LOADS) * GATES + gate * BLOCK_LOADS;
    float sums[VECTORS];
    [[unroll]] for (uint v = 0; v < VECTORS; ++v) sums[v] = 0.0;
    vec4 own[VECS_PER_LOAD];
#define MULTIPLY_COLUMNS_OF(n) \
    if (n * ARRAY_COLUMNS < BLOCK_COLUMNS) { \
        if (n * ARRAY_COLUMNS % LOAD_COLUMNS == 0) { \
            uvec4 loaded = BLOCK_WEIGHTS[first + n * ARRAY_COLUMNS / LOAD_COLUMNS * LANES + LANE]; \
            [[unroll]] for (uint vec = 0; vec < VECS_PER_LOAD; ++vec) own[vec] = unpack_weights(loaded, vec); \
        } \
        [[unroll]] for (uint i = 0; i < ARRAY_COLUMNS / 4; ++i) { \
            uint vec = n * ARRAY_COLUMNS % LOAD_COLUMNS / 4 + i; \
            vec4 w = subgroupShuffle(own[vec % VECS_PER_LOAD], vec / VECS_PER_LOAD); \
            [[unroll]] for (uint c = 0; c < 4; ++c) \
                [[unroll]] for (uint v = 0; v < VECTORS; ++v) sums[v] += w[c] * columns_##n[(i * 4 + c) * VECTORS + v]; \
        } \
    }
    EACH_PRIVATE_ARRAY(MULTIPLY_COLUMNS_OF)
    vec4 products = vec4(0.0);
    [[unroll]] for (uint v = 0; v < VECTORS; ++v) products[v] = sums[v];
    return products;
}

// `gates` for loops whose invocations hold rows: [step][direction][tile][unit][gate][lane], a vec4 with a component a vector
uint gates_place_of_tile(uint step, uint direction, uint tile, uint unit, uint gate)
{
    return whole(((((step * DIRECTIONS + direction) * dispatch.tiles + tile) * UNITS + unit) * GATES + gate) * LANES + LANE);
}
