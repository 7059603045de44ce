// The transcendental functions that activations are made of, in float32. NaN goes through all of them (a comparison with NaN
// is false, and that branch keeps x), and no exponential overflows for an argument whose result is finite.

// exp, and NaN for NaN, which not every driver's exp gives
float exponential(float x) { return mix(exp(x), x, isnan(x)); }

// exp(x) and exp(x) - 1, the latter without cancellation near 0
void exponentials(float x, out float e, out float e_minus_1)
{
    float series = x * (1.0 + x * (1.0 / 2.0 + x * (1.0 / 6.0 + x * (1.0 / 24.0 + x * (1.0 / 120.0 +
                   x * (1.0 / 720.0 + x * (1.0 / 5040.0 + x * (1.0 / 40320.0))))))));
    e = exponential(x);
    e_minus_1 = mix(e - 1.0, series, abs(x) < 0.5);
}

// log(1 + x), for 0 <= x <= 1
float log_1_plus(float x)
{
    float small = x * (1.0 - x * (1.0 / 2.0 - x * (1.0 / 3.0 - x * (1.0 / 4.0))));
    return mix(log(1.0 + x), small, x < 0.01);
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
