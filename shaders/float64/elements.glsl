// Converts a float64, two words with the low one first, to a pair of floats and back by integer arithmetic. The pair has 48 of
// the 53 bits, for numbers from 2^-126 to 2^128 (full precision from 2^-100). The host refuses larger numbers.

real real_of_double(uint low, uint high)
{
    uint sign = high & 0x80000000u;
    int exponent = int(high >> 20 & 0x7FFu) - 1023;
    if (exponent > 127) {
        bool is_nan = exponent == 1024 && ((high & 0xFFFFFu) | low) != 0;
        return number(uintBitsToFloat(sign | (is_nan ? 0x7FC00000u : 0x7F800000u)));
    }
    if (exponent < -126) return number(uintBitsToFloat(sign));
    uint rounded_down = sign | uint(exponent + 127) << 23 | (high & 0xFFFFFu) << 3 | low >> 29;
    if (exponent < -101) return number(uintBitsToFloat(rounded_down));
    float rest = float(low & 0x1FFFFFFFu) * power_of_2(-29) * power_of_2(exponent - 23);
    return normalized(uintBitsToFloat(rounded_down), sign != 0 ? -rest : rest);
}

uvec2 double_of_real(real x)
{
    uint bits = floatBitsToUint(x.x);
    uint sign = bits & 0x80000000u;
    int exponent = int(bits >> 23 & 0xFFu) - 127;
    if (exponent == 128) return uvec2(0, sign | 0x7FF00000u | (bits & 0x7FFFFFu) >> 3 | uint((bits & 7u) != 0));
    if (exponent == -127) return uvec2(0, sign);
    // words: 2^52 times the first float's significand. Then the second float's share is added, which may be negative.
    uint significand = bits & 0x7FFFFFu | 0x800000u;
    uvec2 words = uvec2(significand << 29, significand >> 3);
    float rest = sign != 0 ? -x.y : x.y;
    int scale = 52 - exponent;  // from -75 to 178
    rest = scale > 120 ? rest * power_of_2(120) * power_of_2(scale - 120) : rest * power_of_2(scale);
    uint share = uint(abs(roundEven(rest)));
    uint borrow_or_carry;
    if (rest < 0.0) {
        words.x = usubBorrow(words.x, share, borrow_or_carry);
        words.y -= borrow_or_carry;
        if (words.y < 0x100000u) {  // the sum is one bit shorter
            words = uvec2(words.x << 1, words.y << 1 | words.x >> 31);
            --exponent;
        }
    } else {
        words.x = uaddCarry(words.x, share, borrow_or_carry);
        words.y += borrow_or_carry;
        if (words.y >= 0x200000u) {  // the sum is one bit longer
            words = uvec2(words.x >> 1 | words.y << 31, words.y >> 1);
            ++exponent;
        }
    }
    return uvec2(words.x, sign | uint(exponent + 1023) << 20 | words.y & 0xFFFFFu);
}

#define LOAD_ELEMENT(buffer, i) real_of_double(buffer[2 * (i)], buffer[2 * (i) + 1])
#define STORED uint
#define STORE_ELEMENT(buffer, i, value) \
    { uvec2 words = double_of_real(value); buffer[2 * (i)] = words.x; buffer[2 * (i) + 1] = words.y; }
const uint VECS_PER_LOAD = 1;  // a load of packed weights is a real4: 4 columns of a unit's gate
