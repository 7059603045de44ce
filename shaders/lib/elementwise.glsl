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

    real result = x;  // IDENTITY's
    if (is_tanh || id == SIGMOID || id == SOFTSIGN) {
        real numerator = is_tanh ? negate(e_minus_1) : (id == SOFTSIGN ? x : (is_negative ? e : one));
        real denominator = is_tanh ? add(number(2.0), e_minus_1) : add(one, id == SOFTSIGN ? magnitude : e);
        result = divide(numerator, denominator);
        if (is_tanh && is_negative) result = negate(result);
        if (id == SCALED_TANH) result = multiply(a, result);
    } else if (is_softplus) {
        result = log_1_plus(e);
        if (!is_negative) result = add(y, result);
        result = id == SOFTPLUS ? divide(result, a) : multiply(a, result);
    } else if (id == ELU || id == CELU || id == SCALED_ELU) {
        if (less(x, zero)) result = multiply(a, e_minus_1);
        if (id == SCALED_ELU) result = multiply(b, result);
    } else if (id == LINEAR || id == HARD_SIGMOID) {
        result = add(multiply(a, x), b);
        if (id == HARD_SIGMOID) result = less(result, zero) ? zero : (less(one, result) ? one : result);
    } else if (id == LEAKY_RELU) {
        if (is_negative) result = multiply(a, x);
    } else if (id == RELU) {
        if (is_negative) result = zero;
    } else if (id == THRESHOLDED_RELU) {
        if (less_or_equal(x, a)) result = zero;
    } else if (id == SHRINK) {
        if (less(x, negate(b))) result = add(x, a);
        else if (less(b, x)) result = subtract(x, a);
        else if (!isnan(leading(x))) result = zero;
    }
#ifndef PAIRS
    else if (id == GELU) result = 0.5 * x * complementary_error(-0.70710678118654752 * x);
#endif
    return result;
}
