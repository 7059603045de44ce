// Computes float64 without shaderFloat64, which kp does not enable: a number is an unevaluated sum of two floats, about 48
// bits. The second is at most half a unit in the last place of the first (Dekker 1971; Hida, Li and Bailey's QD library).
// `precise` keeps compilers from rearranging sums; fma is not used, because not every driver rounds it once. Infinities and NaN
// are in the first float, and the second is 0.
#extension GL_EXT_control_flow_attributes : require
#define real vec2
struct real4 { vec4 hi; vec4 lo; };
const uint REAL4_WORDS = 8;
#define ZERO vec2(0.0)
#define ZERO4 real4(vec4(0.0), vec4(0.0))

const float LARGEST = 3.4028234e38;

float power_of_2(int exponent)  // for exponents from -126 to 127
{
    return uintBitsToFloat(uint(exponent + 127) << 23);
}

// Returns hi + lo exactly, if |lo| is small beside |hi|.
real normalized(float hi, float lo)
{
    precise float sum = hi + lo;
    precise float rest = lo - (sum - hi);
    return mix(vec2(hi, 0.0), vec2(sum, rest), bvec2(abs(hi) <= LARGEST));
}

real two_sum(float a, float b)
{
    precise float sum = a + b;
    precise float of_b = sum - a;
    precise float rest = (a - (sum - of_b)) + (b - of_b);
    return vec2(sum, rest);
}

// Splits a float into two halves of its bits, so that products of halves are exact.
vec2 halves(float a)
{
    precise float scaled = 4097.0 * a;
    precise float high = scaled - (scaled - a);
    precise float low = a - high;
    return vec2(high, low);
}

real two_product(float a, float b)
{
    precise float product = a * b;
    vec2 p = halves(a);
    vec2 q = halves(b);
    precise float rest = ((p.x * q.x - product) + p.x * q.y + p.y * q.x) + p.y * q.y;
    return vec2(product, rest);
}

real number(float x) { return vec2(x, 0.0); }
real negate(real a) { return -a; }

// Returns the sum to 2^-47 of the larger summand, which is as precise as the summands are.
real add(real a, real b)
{
    vec2 sum = two_sum(a.x, b.x);
    precise float rest = sum.y + (a.y + b.y);
    return normalized(sum.x, rest);
}

real subtract(real a, real b) { return add(a, negate(b)); }

real multiply(real a, real b)
{
    vec2 product = two_product(a.x, b.x);
    precise float rest = product.y + (a.x * b.y + a.y * b.x);
    return normalized(product.x, rest);
}

// Divides digit by digit. A driver may not round its quotient correctly, so each digit's remainder is computed exactly.
real divide(real a, real b)
{
    precise float first = a.x / b.x;
    vec2 quotient = number(first);
    if (abs(first) <= LARGEST && abs(b.x) <= LARGEST) {
        vec2 rest = a;
        vec2 digit = quotient;
        [[dont_unroll]] for (int i = 0; i < 2; ++i) {
            rest = subtract(rest, multiply(b, digit));
            precise float next = rest.x / b.x;
            digit = number(next);
            quotient = add(quotient, digit);
        }
    }
    return quotient;
}

real choose(bool condition, real a, real b) { return mix(b, a, bvec2(condition)); }  // has no branch
bool less(real a, real b) { return a.x < b.x || (a.x == b.x && a.y < b.y); }
bool less_or_equal(real a, real b) { return a.x < b.x || (a.x == b.x && a.y <= b.y); }

// Returns component i by choices: an array that a variable indexes would go to memory.
real component(real4 v, uint i)
{
    vec2 first = i == 0 ? vec2(v.hi.x, v.lo.x) : vec2(v.hi.y, v.lo.y), last = i == 2 ? vec2(v.hi.z, v.lo.z) : vec2(v.hi.w, v.lo.w);
    return i < 2 ? first : last;
}

void set_component(inout real4 v, uint i, real x)
{
    bvec4 is_i = equal(uvec4(i), uvec4(0, 1, 2, 3));
    v.hi = mix(v.hi, vec4(x.x), is_i);
    v.lo = mix(v.lo, vec4(x.y), is_i);
}

void add_dot(inout real4 acc, uint i, real4 a, real4 b)
{
    real sum = component(acc, i);
    [[dont_unroll]] for (uint c = 0; c < 4; ++c) sum = add(sum, multiply(component(a, c), component(b, c)));
    set_component(acc, i, sum);
}

// Load and store a real4, which is two uvec4s of its buffer.
#define GET_REAL4(buffer, i) real4(uintBitsToFloat(buffer[2 * (i)]), uintBitsToFloat(buffer[2 * (i) + 1]))
#define SET_REAL4(buffer, i, value) \
    { real4 v4 = value; buffer[2 * (i)] = floatBitsToUint(v4.hi); buffer[2 * (i) + 1] = floatBitsToUint(v4.lo); }
