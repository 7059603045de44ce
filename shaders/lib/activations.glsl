// DirectML's elementwise activations. The case numbers are the `shader_id`s of activations.py.
// NaN goes through all of them (a comparison with NaN is false, and that branch keeps x), and no exponential overflows
// for an argument whose result is finite.
layout(constant_id = 32) const uint ACTIVATION_0 = 0;  // f, g, h of direction 0, then of direction 1
layout(constant_id = 33) const uint ACTIVATION_1 = 0;
layout(constant_id = 34) const uint ACTIVATION_2 = 0;
layout(constant_id = 35) const uint ACTIVATION_3 = 0;
layout(constant_id = 36) const uint ACTIVATION_4 = 0;
layout(constant_id = 37) const uint ACTIVATION_5 = 0;
layout(constant_id = 38) const uint PARAM_A_0 = 0;     // bits of their float parameters, in DirectML's order
layout(constant_id = 39) const uint PARAM_A_1 = 0;
layout(constant_id = 40) const uint PARAM_A_2 = 0;
layout(constant_id = 41) const uint PARAM_A_3 = 0;
layout(constant_id = 42) const uint PARAM_A_4 = 0;
layout(constant_id = 43) const uint PARAM_A_5 = 0;
layout(constant_id = 44) const uint PARAM_B_0 = 0;
layout(constant_id = 45) const uint PARAM_B_1 = 0;
layout(constant_id = 46) const uint PARAM_B_2 = 0;
layout(constant_id = 47) const uint PARAM_B_3 = 0;
layout(constant_id = 48) const uint PARAM_B_4 = 0;
layout(constant_id = 49) const uint PARAM_B_5 = 0;
layout(constant_id = 50) const uint HAS_CLIP = 0;
layout(constant_id = 51) const uint CLIP = 0;          // bits of the bound

// exp, and NaN for NaN, which not every driver's exp gives
float exponential(float x) { return isnan(x) ? x : exp(x); }

// exp(x) - 1 without cancellation near 0
float exp_minus_1(float x)
{
    float series = x * (1.0 + x * (1.0 / 2.0 + x * (1.0 / 6.0 + x * (1.0 / 24.0 + x * (1.0 / 120.0 +
                   x * (1.0 / 720.0 + x * (1.0 / 5040.0 + x * (1.0 / 40320.0))))))));
    return abs(x) < 0.5 ? series : exponential(x) - 1.0;
}

// log(1 + exp(x))
float log_1_plus_exp(float x)
{
    float e = exponential(-abs(x));
    float small = e * (1.0 - e * (1.0 / 2.0 - e * (1.0 / 3.0 - e * (1.0 / 4.0))));
    return (x < 0.0 ? 0.0 : x) + (e < 0.01 ? small : log(1.0 + e));
}

float sigmoid(float x)
{
    float e = exponential(-abs(x));
    return (x < 0.0 ? e : 1.0) / (1.0 + e);
}

float hyperbolic_tangent(float x)
{
    float e = exp_minus_1(-2.0 * abs(x));
    float t = -e / (2.0 + e);
    return x < 0.0 ? -t : t;
}

// 1 - erf(x), to a relative error of 1.2e-7 (Numerical Recipes' Chebyshev fit, which holds in the tail too)
float complementary_error(float x)
{
    float z = abs(x);
    float t = 1.0 / (1.0 + 0.5 * z);
    float series = t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806 + t * (0.27886807 +
                   t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277))))))));
    float tail = t * exponential(-z * z - 1.26551223 + series);
    return x < 0.0 ? 2.0 - tail : tail;
}

float elementwise(uint id, float a, float b, float x)
{
    switch (id) {
    case 1:  return x < 0.0 ? a * exp_minus_1(x) : x;                          // ELU
    case 2:  return x < 0.0 ? a * exp_minus_1(x / a) : x;                      // CELU
    case 3:  { float y = a * x + b; return y < 0.0 ? 0.0 : (y > 1.0 ? 1.0 : y); }  // HARD_SIGMOID
    case 4:  return x < 0.0 ? a * x : x;                                       // LEAKY_RELU
    case 5:  return a * x + b;                                                 // LINEAR
    case 6:  return a * log_1_plus_exp(b * x);                                 // PARAMETRIC_SOFTPLUS
    case 7:  return x < 0.0 ? 0.0 : x;                                         // RELU
    case 8:  return b * (x < 0.0 ? a * exp_minus_1(x) : x);                    // SCALED_ELU
    case 9:  return a * hyperbolic_tangent(b * x);                             // SCALED_TANH
    case 10: return x < -b ? x + a : (x > b ? x - a : (isnan(x) ? x : 0.0));   // SHRINK
    case 11: return sigmoid(x);                                                // SIGMOID
    case 12: return log_1_plus_exp(a * x) / a;                                 // SOFTPLUS
    case 13: return x / (1.0 + abs(x));                                        // SOFTSIGN
    case 14: return hyperbolic_tangent(x);                                     // TANH
    case 15: return x <= a ? 0.0 : x;                                          // THRESHOLDED_RELU
    case 16: return 0.5 * x * complementary_error(-0.70710678118654752 * x);   // GELU
    default: return x;                                                         // IDENTITY
    }
}

float activate_f(float x)
{
    return direction == 0 ? elementwise(ACTIVATION_0, uintBitsToFloat(PARAM_A_0), uintBitsToFloat(PARAM_B_0), x)
                          : elementwise(ACTIVATION_3, uintBitsToFloat(PARAM_A_3), uintBitsToFloat(PARAM_B_3), x);
}

float activate_g(float x)
{
    return direction == 0 ? elementwise(ACTIVATION_1, uintBitsToFloat(PARAM_A_1), uintBitsToFloat(PARAM_B_1), x)
                          : elementwise(ACTIVATION_4, uintBitsToFloat(PARAM_A_4), uintBitsToFloat(PARAM_B_4), x);
}

float activate_h(float x)
{
    return direction == 0 ? elementwise(ACTIVATION_2, uintBitsToFloat(PARAM_A_2), uintBitsToFloat(PARAM_B_2), x)
                          : elementwise(ACTIVATION_5, uintBitsToFloat(PARAM_A_5), uintBitsToFloat(PARAM_B_5), x);
}

// ONNX's `clip`: bounds what goes into an activation
float clip(float x)
{
    float bound = uintBitsToFloat(CLIP);
    if (HAS_CLIP == 0) return x;
    return x > bound ? bound : (x < -bound ? -bound : x);
}
