// What suits drivers that mask invocations instead of branching.

// They run both sides of an if, but a loop only as often as it says.
#define ONCE_IF(condition) for (uint once = 0; once < uint(condition); ++once)

#ifdef SHUFFLE
// An element of an array that is in registers. By an index, the array would go to memory, and compiling take seconds.
real4 pick(real4 values[TILE], uint i)
{
    real4 value = values[0];
    [[unroll]] for (uint k = 1; k < TILE; ++k) value = mix(value, values[k], bvec4(i == k));
    return value;
}
#define PICK(values, i) pick(values, i)
#else
#define PICK(values, i) values[i]
#endif
