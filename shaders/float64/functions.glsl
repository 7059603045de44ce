// The transcendental functions that activations use, in pairs of floats, to about 1e-13. They treat NaN and infinities as IEEE
// arithmetic does.

#define INFINITY uintBitsToFloat(0x7F800000u)

bool is_nan(real x) { return (floatBitsToUint(x.x) & 0x7FFFFFFFu) > 0x7F800000u; }  // drivers may compile isnan() to false

// Return 1 / (i + 2), and 1 / (2 i + 1), by choices: an array that a variable indexes would go to memory.
real inverse_of(int i) { return i == 0 ? vec2(0.5, 0.0) : (i == 1 ? vec2(0.33333334, -9.9341076e-09) : vec2(0.25, 0.0)); }

real odd_inverse(int i)
{
    real first = i == 0 ? vec2(1.0, 0.0) : (i == 1 ? vec2(0.33333334, -9.9341076e-09) : vec2(0.2, -2.9802322e-09));
    real next = i == 3 ? vec2(0.14285715, -6.386212e-09) : vec2(0.11111111, -8.278423e-10);
    real last = i == 5 ? vec2(0.09090909, -2.709302e-09) : vec2(0.07692308, -2.865607e-09);
    return i < 3 ? first : (i < 5 ? next : last);
}

// Sets exp(x) and exp(x) - 1, both to full precision.
void exponentials(real x, out real e, out real e_minus_1)
{
    bool in_range = abs(x.x) <= 87.0;
    float k = in_range ? roundEven(x.x * 1.4426950408889634) : 0.0;
    // k ln 2 is subtracted, with ln 2 in three floats. The first has so few bits that its multiples are exact.
    real r = subtract(x, two_sum(k * 0.693145751953125, 0.0));
    r = subtract(r, add(two_product(k, 1.428606765330187e-06), number(k * 5.497923e-14)));
    r *= 0.0625;
    // The Taylor series: its far terms are so small that floats are precise enough for them.
    float far = r.x * (1.0 / 5.0) * (1.0 + r.x * (1.0 / 6.0) * (1.0 + r.x * (1.0 / 7.0)));
    real one = number(1.0);
    real series = add(one, number(far));
    [[dont_unroll]] for (int i = 2; i >= 0; --i) series = add(one, multiply(multiply(r, inverse_of(i)), series));
    r = multiply(r, series);
    [[dont_unroll]] for (int i = 0; i < 4; ++i) r = multiply(r, add(number(2.0), r));  // makes exp(16 r) - 1 of exp(r) - 1
    float scale = power_of_2(int(k));
    e = add(number(1.0), r) * scale;
    e_minus_1 = add(r * scale, two_sum(scale, -1.0));
    if (!in_range) {  // here NaN gives NaN
        e = number(x.x < 0.0 ? 0.0 : (x.x > 0.0 ? INFINITY : x.x));
        e_minus_1 = number(x.x < 0.0 ? -1.0 : e.x);
    }
}

// Returns log(1 + x), for 0 <= x <= 1, as 2 artanh(x / (2 + x)).
real log_1_plus(real x)
{
    real s = divide(x, add(number(2.0), x));
    real square = multiply(s, s);
    float far = 1.0 / 15.0 + square.x * (1.0 / 17.0 + square.x * (1.0 / 19.0 + square.x * (1.0 / 21.0 + square.x *
                (1.0 / 23.0 + square.x * (1.0 / 25.0 + square.x * (1.0 / 27.0 + square.x * (1.0 / 29.0)))))));
    real series = number(far);
    [[dont_unroll]] for (int i = 6; i >= 0; --i) series = add(odd_inverse(i), multiply(square, series));
    return multiply(s * 2.0, series);
}
