// DirectML's activations in float32, by their ids (numbers.glsl). a and b are the descriptor's parameters, in DirectML's order.
// All of them return NaN for NaN. Only is_nan() ensures that: drivers may compile a comparison and a choice to min or max,
// which return the other operand, and some drivers' exp gives a number.

// Returns x between low and high, or NaN.
float bounded(float x, float low, float high) { return mix(mix(mix(x, low, x < low), high, high < x), x, is_nan(x)); }

// Sets exp(x), and exp(x) - 1 without cancellation near 0. NaN gives NaN.
void exponentials(float x, out float e, out float e_minus_1)
{
    float series = x * (1.0 + x * (1.0 / 2.0 + x * (1.0 / 6.0 + x * (1.0 / 24.0 + x * (1.0 / 120.0 +
                   x * (1.0 / 720.0 + x * (1.0 / 5040.0 + x * (1.0 / 40320.0))))))));
    e = mix(exp(x), x, is_nan(x));
    e_minus_1 = mix(e - 1.0, series, abs(x) < 0.5);
}

// Returns log(1 + x), for 0 <= x <= 1.
float log_1_plus(float x)
{
    float small = x * (1.0 - x * (1.0 / 2.0 - x * (1.0 / 3.0 - x * (1.0 / 4.0))));
    return mix(log(1.0 + x), small, x < 0.01);
}

// Returns 1 - erf(x), to a relative error of 1.2e-7 (Numerical Recipes' Chebyshev fit, which holds in the tail too)
float complementary_error(float x)
{
    float z = abs(x), t = 1.0 / (1.0 + 0.5 * z);
    float series = t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806 + t * (0.27886807 +
                   t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277))))))));
    float e, unused;
    exponentials(-z * z - 1.26551223 + series, e, unused);
    return x < 0.0 ? 2.0 - t * e : t * e;
}

// Most compilers inline every call before they know the id. So all activations share one exponential, and there are no early
// returns and no branches, but mix().
float activation(uint id, float a, float b, float x)
{
    bool is_tanh = id == TANH || id == SCALED_TANH, is_softplus = id == SOFTPLUS || id == PARAMETRIC_SOFTPLUS;
    bool is_sigmoid = id == SIGMOID || id == SWISH, is_hard = id == HARD_SIGMOID || id == HARD_SWISH;
    float y = x;  // the argument of the exponential, before its sign and factor
    if (id == CELU) y = x / a;
    if (id == SOFTPLUS || id == SWISH) y = a * x;
    if (id == SCALED_TANH || id == PARAMETRIC_SOFTPLUS) y = b * x;
    float e, e_minus_1;
    exponentials(mix(mix(y, -abs(y), is_softplus || is_sigmoid), -2.0 * abs(y), is_tanh), e, e_minus_1);

    float result = x;  // the result of IDENTITY
    if (is_sigmoid) result = mix(1.0, e, y < 0.0) / (1.0 + e);
    if (is_tanh) result = mix(-e_minus_1, e_minus_1, y < 0.0) / (2.0 + e_minus_1);
    if (id == SCALED_TANH) result = a * result;
    if (id == SOFTSIGN) result = x / (1.0 + abs(x));
    if (is_softplus) result = mix(y, 0.0, y < 0.0) + log_1_plus(e);
    if (id == SOFTPLUS) result = result / a;
    if (id == PARAMETRIC_SOFTPLUS) result = a * result;
    if (id == ELU || id == CELU || id == SCALED_ELU) result = mix(x, a * e_minus_1, x < 0.0);
    if (id == SCALED_ELU) result = b * result;
    if (id == LINEAR || is_hard) result = a * x + b;
    if (is_hard) result = bounded(result, 0.0, 1.0);
    if (id == SWISH || id == HARD_SWISH) result = x * result;
    if (id == LEAKY_RELU) result = mix(x, a * x, x < 0.0);
    if (id == RELU) result = mix(x, 0.0, x < 0.0);
    if (id == THRESHOLDED_RELU) result = mix(x, 0.0, x <= a);
    if (id == SHRINK) result = mix(mix(0.0, x - a, x > b), x + a, x < -b);
    if (id == GELU) result = 0.5 * x * complementary_error(-0.70710678118654752 * x);
    return id == SIGMOID || id == TANH ? result : mix(result, x, is_nan(x));  // these two have it from exponentials()
}

// The gates have the activations f, g and h in each direction, and ONNX's `clip` bounds their arguments.
DECLARE_PLACES
layout(constant_id = 118) const uint HAS_CLIP = 0;
layout(constant_id = 119) const uint CLIP = 0;  // the bound, as a float's bits
const uint F = 0, G = 1, H = 2;

float activate_place(uint place, float x)
{
    return activation(AT_PLACE(ACTIVATION, place), uintBitsToFloat(AT_PLACE(PARAM_A, place)),
                      uintBitsToFloat(AT_PLACE(PARAM_B, place)), x);
}

float activate(uint which, float x)
{
    return DIRECTIONS == 1 || direction == 0 ? activate_place(which, x) : activate_place(which + 3, x);
}

float clip(float x)
{
    float bound = uintBitsToFloat(CLIP);
    return HAS_CLIP != 0 ? bounded(x, -bound, bound) : x;
}
