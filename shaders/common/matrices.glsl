// Declares the matrices of a GEMM, alpha A B + beta C, and stores elements of its output. Strides count elements; a transposed
// matrix has other strides. Workgroups: x tiles, from first_tile on.
const uint DIRECTIONS = 1, direction = 0;  // activations.glsl then takes the activation f of direction 0
#include "activations.glsl"
layout(constant_id = 3) const uint HAS_C = 0;
layout(push_constant) uniform Matrices {
    uint first_tile; uint row_tiles; uint column_tiles;
    uint inner_batches;  // the size of the second of the four dimensions
    uint rows; uint columns; uint inner;  // GEMM's M, N and K
    uint a_stride_outer; uint a_stride_batch; uint a_stride_row; uint a_stride_k;
    uint b_stride_outer; uint b_stride_batch; uint b_stride_k; uint b_stride_column;
    uint c_stride_outer; uint c_stride_batch; uint c_stride_row; uint c_stride_column;
    uint output_stride_outer; uint output_stride_batch; uint output_stride_row; uint output_stride_column;
    uint alpha; uint beta;  // floats, as their bits
} matrices;
layout(binding = 0) buffer A { uint a_elements[]; };
layout(binding = 1) buffer B { uint b_elements[]; };
layout(binding = 2) buffer C { uint c_elements[]; };
layout(binding = 3) buffer Output { STORED results[]; };
uint first_row, first_column, a_start, b_start, c_start, output_start;  // of the workgroup's tile, and of its matrices
void find_tile(uint tile_rows, uint tile_columns)
{
    uint tile = matrices.first_tile + gl_WorkGroupID.x, tiles = matrices.row_tiles * matrices.column_tiles;
    uint batch = tile / tiles % matrices.inner_batches, outer = tile / tiles / matrices.inner_batches;
    first_row = tile / matrices.column_tiles % matrices.row_tiles * tile_rows;
    first_column = tile % matrices.column_tiles * tile_columns;
    a_start = outer * matrices.a_stride_outer + batch * matrices.a_stride_batch;
    b_start = outer * matrices.b_stride_outer + batch * matrices.b_stride_batch;
    c_start = outer * matrices.c_stride_outer + batch * matrices.c_stride_batch;
    output_start = outer * matrices.output_stride_outer + batch * matrices.output_stride_batch;
}

// Stores an element of the output, if it exists. sum: the element of A B.
void store_result(uint row, uint column, float sum)
{
    if (row < matrices.rows && column < matrices.columns) {
        float y = uintBitsToFloat(matrices.alpha) * sum;
        if (HAS_C != 0) {
            float c = LOAD_ELEMENT(c_elements, c_start + row * matrices.c_stride_row + column * matrices.c_stride_column);
            y += uintBitsToFloat(matrices.beta) * c;
        }
        y = activate(F, y);
        STORE_ELEMENT(results, output_start + row * matrices.output_stride_row + column * matrices.output_stride_column, y);
    }
}
