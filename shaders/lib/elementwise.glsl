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

// Each costly function is called in one place, and small choices are no branches: drivers put every call in line before they
// know which activation it is for, and compile for minutes otherwise.
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
    real magnitude = choose(is_negative, negate(y), y);
    real exponent = choose(is_tanh, magnitude * -2.0, choose(is_softplus || id == SIGMOID, negate(magnitude), y));
    real e, e_minus_1;
    exponentials(exponent, e, e_minus_1);

    real result = x;  // IDENTITY's
    if (is_tanh || id == SIGMOID || id == SOFTSIGN) {
        real numerator = choose(is_tanh, negate(e_minus_1), choose(id == SOFTSIGN, x, choose(is_negative, e, one)));
        real denominator = choose(is_tanh, add(number(2.0), e_minus_1), add(one, choose(id == SOFTSIGN, magnitude, e)));
        result = divide(numerator, denominator);
        result = choose(is_tanh && is_negative, negate(result), result);
        result = choose(id == SCALED_TANH, multiply(a, result), result);
    } else if (is_softplus) {
        result = log_1_plus(e);
        result = choose(is_negative, result, add(y, result));
        if (id == SOFTPLUS) result = divide(result, a);
        else result = multiply(a, result);
    } else if (id == ELU || id == CELU || id == SCALED_ELU) {
        result = choose(less(x, zero), multiply(a, e_minus_1), x);
        result = choose(id == SCALED_ELU, multiply(b, result), result);
    } else if (id == LINEAR || id == HARD_SIGMOID) {
        real line = add(multiply(a, x), b);
        result = choose(id == LINEAR, line, choose(less(line, zero), zero, choose(less(one, line), one, line)));
    } else if (id == LEAKY_RELU) {
        result = choose(is_negative, multiply(a, x), x);
    } else if (id == RELU) {
        result = choose(is_negative, zero, x);
    } else if (id == THRESHOLDED_RELU) {
        result = choose(less_or_equal(x, a), zero, x);
    } else if (id == SHRINK) {
        result = choose(less(x, negate(b)), add(x, a), choose(less(b, x), subtract(x, a), choose(isnan(leading(x)), x, zero)));
    }
#ifndef PAIRS
    else if (id == GELU) result = 0.5 * x * complementary_error(-0.70710678118654752 * x);
#endif
    return result;
}
