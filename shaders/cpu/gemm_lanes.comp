// Computes what gemm.comp does, with the same bits. A workgroup is a subgroup, and computes a tile of ROWS rows and 4 LANES
// columns. An invocation has 4 columns of all rows: it loads its elements of B, and those of A are passed round.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "../common/numbers.glsl"
#include "../common/elements.glsl"
#include "../common/store_words.glsl"
#include "lanes.glsl"
#include "../common/matrices.glsl"
layout(constant_id = 0) const uint WORKGROUP = 1;
layout(constant_id = 1) const uint ROWS = 4;       // a multiple of 4
layout(constant_id = 2) const uint A_BY_K = 0;     // whether A is loaded by 4 elements along K, not by 4 rows
layout(constant_id = 4) const uint A_IN_VECS = 0;  // whether these are vec4s in memory
layout(constant_id = 5) const uint B_IN_VECS = 0;  // whether 4 columns of B are
layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;
layout(binding = 0) readonly buffer AVecs { uvec4 a_vecs[]; };
layout(binding = 1) readonly buffer BVecs { uvec4 b_vecs[]; };
const uint BLOCK = A_BY_K != 0 ? 4 * LANES : LANES;  // numbers along K of which A is loaded at once

// Return 4 elements of a matrix, of which `count` are inside. The others are 0, and are not loaded.
#define LOAD_FOUR(name, elements, vecs, in_vecs) \
vec4 name(uint place, uint stride, uint count) \
{ \
    if (in_vecs != 0) return mix(uintBitsToFloat(vecs[whole(count == 0 ? 0 : place / 4)]), vec4(0.0), bvec4(count == 0)); \
    vec4 x; \
    [[unroll]] for (uint i = 0; i < 4; ++i) \
        x[i] = mix(0.0, LOAD_ELEMENT(elements, whole(i < count ? place + i * stride : 0)), i < count); \
    return x; \
}
LOAD_FOUR(load_a, a_elements, a_vecs, A_IN_VECS)
LOAD_FOUR(load_b, b_elements, b_vecs, B_IN_VECS)

// Returns how many of 4 elements from `first` on lie before `end`.
uint inside(uint first, uint end) { return min(max(first, end) - first, 4); }

void main()
{
    find_tile(ROWS, 4 * LANES);
    uint column = first_column + 4 * LANE;
    vec4 sums[ROWS];
    [[unroll]] for (uint row = 0; row < ROWS; ++row) sums[row] = vec4(0.0);
    [[dont_unroll]] for (uint first_k = 0; first_k < matrices.inner; first_k += BLOCK) {
        vec4 own[ROWS];  // if 4 rows are loaded together, a quarter of it
        [[unroll]] for (uint i = 0; i < (A_BY_K != 0 ? ROWS : ROWS / 4); ++i) {
            uint row = first_row + (A_BY_K != 0 ? i : 4 * i), k = first_k + (A_BY_K != 0 ? 4 * LANE : LANE);
            uint place = a_start + row * matrices.a_stride_row + k * matrices.a_stride_k;
            own[i] = A_BY_K != 0 ? load_a(place, matrices.a_stride_k, row < matrices.rows ? inside(k, matrices.inner) : 0)
                                 : load_a(place, matrices.a_stride_row, k < matrices.inner ? inside(row, matrices.rows) : 0);
        }
        uint turn = 0;
        [[dont_unroll]] do {
            vec4 b[4];
            [[unroll]] for (uint i = 0; i < 4; ++i) {
                uint k = first_k + 4 * turn + i, place = b_start + k * matrices.b_stride_k + column * matrices.b_stride_column;
                b[i] = load_b(place, matrices.b_stride_column, k < matrices.inner ? inside(column, matrices.columns) : 0);
            }
            [[unroll]] for (uint row = 0; row < ROWS; ++row)
                [[unroll]] for (uint i = 0; i < 4; ++i) {
                    float a = A_BY_K != 0 ? own[row][i] : own[row / 4][row % 4];
                    a = subgroupShuffle(a, A_BY_K != 0 ? turn : 4 * turn + i);
                    sums[row] = fma(vec4(a), b[i], sums[row]);
                }
        } while (++turn < BLOCK / 4);
    }
    // These are loops, so that the code of the activation stands here once.
    ROW_LOOP for (uint row = 0; row < ROWS; ++row) {
        vec4 found = sums[0];
        [[unroll]] for (uint i = 1; i < ROWS; ++i) found = mix(found, sums[i], bvec4(row == i));
        ROW_LOOP for (uint c = 0; c < 4; ++c) store_result(first_row + row, column + c, found[c]);
    }
}
