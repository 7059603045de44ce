// Finds an element's place in tensors of up to 8 dimensions with any strides. Dimensions are numbered from the innermost. The
// outermost is always number 7: its index is the `rest` after all divisions. A tensor without gaps has only that one, so
// nothing is divided for it.
//   EACH_ELEMENT(element)      loops over the elements of an invocation. It also ends when there are nearly 2^32 of them
//   EACH_INNER_DIMENSION(DO)   does DO(n) for the dimensions inside the outermost, 0 to 6
//   NEXT_INDEX(n)              sets `index` to the index along dimension n, and divides `rest` by its size; use it within DO
// The push constants `tensors` must have `elements` and size_0 to size_6.
layout(constant_id = 0) const uint WORKGROUP = 1;
layout(constant_id = 1) const uint INNER_DIMENSIONS = 0;
layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;

#define INVOCATIONS (gl_NumWorkGroups.x * WORKGROUP)
#define EACH_ELEMENT(element) for (uint element = gl_GlobalInvocationID.x; element < tensors.elements; \
    element = tensors.elements - element > INVOCATIONS ? element + INVOCATIONS : tensors.elements)
#define EACH_INNER_DIMENSION(DO) \
    if (INNER_DIMENSIONS > 0) { DO(0) } if (INNER_DIMENSIONS > 1) { DO(1) } if (INNER_DIMENSIONS > 2) { DO(2) } \
    if (INNER_DIMENSIONS > 3) { DO(3) } if (INNER_DIMENSIONS > 4) { DO(4) } if (INNER_DIMENSIONS > 5) { DO(5) } \
    if (INNER_DIMENSIONS > 6) { DO(6) }
#define NEXT_INDEX(n) uint index = rest % tensors.size_##n; rest /= tensors.size_##n;
