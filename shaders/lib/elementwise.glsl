// DirectML's elementwise activations. The ids are the `shader_id`s of activations.py; a and b are the descriptor's
// parameters, in DirectML's order. NaN goes through all of them: a comparison with NaN is false, and that branch keeps it.
#ifdef PAIRS
#include "pair_functions.glsl"
#else
#include "functions.glsl"
#endif

const uint IDENTITY = 0, ELU = 1, CELU = 2, HARD_SIGMOID = 3, LEAKY_RELU = 4, LINEAR = 5, PARAMETRIC_SOFTPLUS = 6, RELU = 7,
           SCALED_ELU = 8, SCALED_TANH = 9, SHRINK = 10, SIGMOID = 11, SOFTPLUS = 12, SOFTSIGN = 13, TANH = 14,
           THRESHOLDED_RELU = 15, GELU = 16;

// Each costly function is called in one place: drivers put every call in line before they know which activation it is for,
// and compile for seconds otherwise.
real elementwise(uint id, float param_a, float param_b, real x)
{
    real a = number(param_a), b = number(param_b), zero = number(0.0), one = number(1.0);
    bool is_tanh = id == TANH || id == SCALED_TANH;
    bool is_softplus = id == SOFTPLUS || id == PARAMETRIC_SOFTPLUS;

    // What the exponential is of, in those that have one: y, -|y| or -2 |y|
    real y = x;
    if (id == CELU) y = divide(x, a);
    if (id == SOFTPLUS) y = multiply(a, x);
    if (id == SCALED_TANH || id == PARAMETRIC_SOFTPLUS) y = multiply(b, x);
    bool is_negative = less(y, zero);
    real magnitude = is_negative ? negate(y) : y;
    real exponent = is_tanh ? magnitude * -2.0 : (is_softplus || id == SIGMOID ? negate(magnitude) : y);
    real e, e_minus_1;
    exponentials(exponent, e, e_minus_1);

    if (is_tanh || id == SIGMOID || id == SOFTSIGN) {
        real numerator = is_tanh ? negate(e_minus_1) : (id == SOFTSIGN ? x : (is_negative ? e : one));
        real denominator = is_tanh ? add(number(2.0), e_minus_1) : add(one, id == SOFTSIGN ? magnitude : e);
        real quotient = divide(numerator, denominator);
        if (is_tanh && is_negative) quotient = negate(quotient);
        return id == SCALED_TANH ? multiply(a, quotient) : quotient;
    }
    if (is_softplus) {
        real logarithm = log_1_plus(e);
        if (!is_negative) logarithm = add(y, logarithm);
        return id == SOFTPLUS ? divide(logarithm, a) : multiply(a, logarithm);
    }
    switch (id) {
    case ELU:
    case CELU: return less(x, zero) ? multiply(a, e_minus_1) : x;
    case SCALED_ELU: return multiply(b, is_negative ? multiply(a, e_minus_1) : x);
    case HARD_SIGMOID: {
        real line = add(multiply(a, x), b);
        return less(line, zero) ? zero : (less(one, line) ? one : line);
    }
    case LINEAR: return add(multiply(a, x), b);
    case LEAKY_RELU: return is_negative ? multiply(a, x) : x;
    case RELU: return is_negative ? zero : x;
    case THRESHOLDED_RELU: return less_or_equal(x, a) ? zero : x;
    case SHRINK:
        if (less(x, negate(b))) return add(x, a);
        if (less(b, x)) return subtract(x, a);
        return isnan(leading(x)) ? x : zero;
#ifndef PAIRS
    case GELU: return 0.5 * x * complementary_error(-0.70710678118654752 * x);
#endif
    default: return x;
    }
}
