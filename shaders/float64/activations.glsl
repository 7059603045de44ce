// DirectML's activations, in pairs of floats, by their ids (numbers.glsl), but without GELU, SWISH and HARD_SWISH. a and b are
// the descriptor's parameters, in DirectML's order. All return NaN for NaN, by is_nan(), as in common/activations.glsl.
#include "functions.glsl"

// Drivers inline every call before they know which activation needs it, and would compile for minutes. So each costly function
// is called in one place, and small choices are made without branches.
real activation(uint id, float param_a, float param_b, real x)
{
    real a = number(param_a), b = number(param_b), zero = ZERO, one = number(1.0);
    bool is_tanh = id == TANH || id == SCALED_TANH;
    bool is_softplus = id == SOFTPLUS || id == PARAMETRIC_SOFTPLUS;

    // Activations with an exponential take it of y, -|y| or -2 |y|.
    real y = x;
    if (id == CELU) y = divide(x, a);
    if (id == SOFTPLUS) y = multiply(a, x);
    if (id == SCALED_TANH || id == PARAMETRIC_SOFTPLUS) y = multiply(b, x);
    bool is_negative = less(y, zero);
    real magnitude = choose(is_negative, negate(y), y);
    real exponent = choose(is_tanh, magnitude * -2.0, choose(is_softplus || id == SIGMOID, negate(magnitude), y));
    real e, e_minus_1;
    exponentials(exponent, e, e_minus_1);

    real result = x;  // the result of IDENTITY
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
        result = choose(less(x, negate(b)), add(x, a), choose(less(b, x), subtract(x, a), zero));
    }
    return choose(is_nan(x), x, result);
}

// The gates have the activations f, g and h in each direction, and ONNX's `clip` bounds their arguments.
DECLARE_PLACES
layout(constant_id = 118) const uint HAS_CLIP = 0;
layout(constant_id = 119) const uint CLIP = 0;  // the bound, as a float's bits
const uint F = 0, G = 1, H = 2;

// The place is chosen at run time, so that the code of the activations stands here once.
real activate(uint which, real x)
{
    uint place = DIRECTIONS == 1 ? which : direction * 3 + which;
    return activation(AT_PLACE(ACTIVATION, place), uintBitsToFloat(AT_PLACE(PARAM_A, place)),
                      uintBitsToFloat(AT_PLACE(PARAM_B, place)), x);
}

real clip(real x)
{
    real bound = number(uintBitsToFloat(CLIP));
    real bounded = choose(less(bound, x), bound, choose(less(x, negate(bound)), negate(bound), x));
    return choose(HAS_CLIP != 0 && !is_nan(x), bounded, x);
}
