// Computes alpha A B + beta C of matrices of float32 or float16, and applies an activation (GEMM). All sums are float32. A
// workgroup computes a square tile of the output. Blocks of A's columns and B's rows go through shared memory, and an
// invocation has 4 rows and 4 columns of the tile in registers. A sum is one chain of multiply-adds along K.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "common/numbers.glsl"
#include "common/elements.glsl"
#include "common/store_STORAGE.glsl"
#include "common/matrices.glsl"
layout(constant_id = 0) const uint WORKGROUP = 1;
layout(constant_id = 1) const uint TILE = 4;   // rows, and columns, of a tile
layout(constant_id = 2) const uint BLOCK = 1;  // numbers along K in a block
layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;
const uint LANES = TILE / 4, TURNS = TILE * BLOCK / WORKGROUP;
const uint PITCH = LANES + 1;  // one more, so that neighbouring invocations store to different banks
shared vec4 a_tile[BLOCK * PITCH];  // [k][4 rows]
shared vec4 b_tile[BLOCK * PITCH];  // [k][4 columns]
shared vec4 products[TILE * LANES];  // [row][4 columns]

// Sets a block item's place along K and across, without a branch: a driver that unrolls would make too many of them to compile.
void find_place(uint item, bool by_k, out uint k, out uint across)
{
    uvec2 place = mix(uvec2(item / TILE, item % TILE), uvec2(item % BLOCK, item / BLOCK), bvec2(by_k));
    k = place.x;
    across = place.y;
}

// Loads a block into shared memory, with zeros for places outside of the matrices, from where nothing is loaded. Neighbouring
// invocations load neighbouring elements: along K if a matrix lies so in memory.
void load_block(uint first_k)
{
    bool a_by_k = matrices.a_stride_k <= matrices.a_stride_row, b_by_k = matrices.b_stride_k < matrices.b_stride_column;
    [[unroll]] for (uint turn = 0; turn < TURNS; ++turn) {
        uint item = turn * WORKGROUP + gl_LocalInvocationID.x;
        uint k, row;
        find_place(item, a_by_k, k, row);
        bool is_inside = first_row + row < matrices.rows && first_k + k < matrices.inner;
        uint place = a_start + (first_row + row) * matrices.a_stride_row + (first_k + k) * matrices.a_stride_k;
        place = is_inside ? place : a_start;
        float x = LOAD_ELEMENT(a_elements, place);
        a_tile[k * PITCH + row / 4][row % 4] = is_inside ? x : 0.0;
    }
    [[unroll]] for (uint turn = 0; turn < TURNS; ++turn) {
        uint item = turn * WORKGROUP + gl_LocalInvocationID.x;
        uint k, column;
        find_place(item, b_by_k, k, column);
        bool is_inside = first_column + column < matrices.columns && first_k + k < matrices.inner;
        uint place = b_start + (first_k + k) * matrices.b_stride_k + (first_column + column) * matrices.b_stride_column;
        place = is_inside ? place : b_start;
        float x = LOAD_ELEMENT(b_elements, place);
        b_tile[k * PITCH + column / 4][column % 4] = is_inside ? x : 0.0;
    }
}

// Adds a block's products to the sums, each of which has a row's 4 columns.
void multiply_block(inout vec4 sums[4], uint row_lane, uint column_lane)
{
    [[unroll]] for (uint k = 0; k < BLOCK; ++k) {
        vec4 a = a_tile[k * PITCH + row_lane], b = b_tile[k * PITCH + column_lane];
        [[unroll]] for (uint i = 0; i < 4; ++i) sums[i] = fma(vec4(a[i]), b, sums[i]);
    }
}

void main()
{
    find_tile(TILE, TILE);
    uint column_lane = gl_LocalInvocationID.x % LANES, row_lane = gl_LocalInvocationID.x / LANES;
    vec4 sums[4] = vec4[4](vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
    [[dont_unroll]] for (uint first_k = 0; first_k < matrices.inner; first_k += BLOCK) {
        load_block(first_k);
        barrier();
        multiply_block(sums, row_lane, column_lane);
        barrier();
    }
    [[unroll]] for (uint i = 0; i < 4; ++i) products[(row_lane * 4 + i) * LANES + column_lane] = sums[i];
    barrier();
    // This is a loop, so that the code of the activation stands here once.
    [[dont_unroll]] for (uint item = gl_LocalInvocationID.x; item < TILE * TILE; item += WORKGROUP)
        store_result(first_row + item / TILE, first_column + item % TILE, products[item / 4][item % 4]);
}
