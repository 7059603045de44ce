// The numbers that everything is computed and carried in, and their arithmetic: `real`, and `real4`, four of them.
// They are float and vec4, or, in the *_pairs kernels, unevaluated sums of two floats: about 48 bits, from float32
// arithmetic alone, because kp enables no shaderFloat64.
#ifdef PAIRS
#include "pairs.glsl"
#else
const uint REAL4_WORDS = 4;
#define real float
#define real4 vec4

real number(float x) { return x; }
float leading(real x) { return x; }
real add(real a, real b) { return a + b; }
real subtract(real a, real b) { return a - b; }
real multiply(real a, real b) { return a * b; }
real divide(real a, real b) { return a / b; }
real negate(real a) { return -a; }
real choose(bool condition, real a, real b) { return mix(b, a, condition); }  // without a branch
bool less(real a, real b) { return a < b; }
bool less_or_equal(real a, real b) { return a <= b; }

real component(real4 v, uint i) { return v[i]; }
void set_component(inout real4 v, uint i, real x) { v[i] = x; }
void add_dot(inout real4 acc, uint i, real4 a, real4 b) { acc[i] += dot(a, b); }
#define ZERO4 vec4(0)
#ifdef SHUFFLE  // CPU drivers index arrays as fast by variables as by constants, and compile a loop faster
#define ROW_LOOP [[dont_unroll]]
#else
#define ROW_LOOP [[unroll]]
#endif

// Buffers of real4 are declared as uvec4s.
#define GET_REAL4(buffer, i) uintBitsToFloat(buffer[i])
#define SET_REAL4(buffer, i, value) buffer[i] = floatBitsToUint(value)
#endif
