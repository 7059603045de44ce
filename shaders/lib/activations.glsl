// The activations of a recurrent operator: f, g and h, as many as the cell takes, of each direction, and clip.
#include "elementwise.glsl"
layout(constant_id = 100) const uint ACTIVATION_0 = 0;  // f, g, h of direction 0, then of direction 1
layout(constant_id = 101) const uint ACTIVATION_1 = 0;
layout(constant_id = 102) const uint ACTIVATION_2 = 0;
layout(constant_id = 103) const uint ACTIVATION_3 = 0;
layout(constant_id = 104) const uint ACTIVATION_4 = 0;
layout(constant_id = 105) const uint ACTIVATION_5 = 0;
layout(constant_id = 106) const uint PARAM_A_0 = 0;     // bits of their float parameters, in DirectML's order
layout(constant_id = 107) const uint PARAM_A_1 = 0;
layout(constant_id = 108) const uint PARAM_A_2 = 0;
layout(constant_id = 109) const uint PARAM_A_3 = 0;
layout(constant_id = 110) const uint PARAM_A_4 = 0;
layout(constant_id = 111) const uint PARAM_A_5 = 0;
layout(constant_id = 112) const uint PARAM_B_0 = 0;
layout(constant_id = 113) const uint PARAM_B_1 = 0;
layout(constant_id = 114) const uint PARAM_B_2 = 0;
layout(constant_id = 115) const uint PARAM_B_3 = 0;
layout(constant_id = 116) const uint PARAM_B_4 = 0;
layout(constant_id = 117) const uint PARAM_B_5 = 0;
layout(constant_id = 118) const uint HAS_CLIP = 0;
layout(constant_id = 119) const uint CLIP = 0;          // bits of the bound

const uint F = 0, G = 1, H = 2;

#define OF_PLACE(name, place) (place == 0 ? name##_0 : place == 1 ? name##_1 : place == 2 ? name##_2 : \
                               place == 3 ? name##_3 : place == 4 ? name##_4 : name##_5)

real activate_place(uint place, real x)
{
    return elementwise(OF_PLACE(ACTIVATION, place), uintBitsToFloat(OF_PLACE(PARAM_A, place)),
                       uintBitsToFloat(OF_PLACE(PARAM_B, place)), x);
}

// The part of a cell that ends in an activation, for k = 0 to count - 1 (at most 5). Drivers put calls in line before they
// know which activation it will be, and compile for minutes if there are many. Floats: k is a constant in each copy, so
// that all but one activation fall away. Pairs, whose functions are long: one copy, which decides at run time.
#ifdef PAIRS
#define ACTIVATION_LOOP(k, count, statement) for (uint k = 0; k < count; ++k) { statement }
#else
#define ACTIVATION_LOOP(k, count, statement) \
    { const uint k = 0; statement } \
    if (count > 1) { const uint k = 1; statement } \
    if (count > 2) { const uint k = 2; statement } \
    if (count > 3) { const uint k = 3; statement } \
    if (count > 4) { const uint k = 4; statement }
#endif

// f, g or h of this direction
real activate(uint which, real x)
{
#ifdef PAIRS
    return activate_place(DIRECTIONS == 1 ? which : direction * 3 + which, x);
#else
    return DIRECTIONS == 1 || direction == 0 ? activate_place(which, x) : activate_place(which + 3, x);
#endif
}

// ONNX's `clip`: bounds what goes into an activation
real clip(real x)
{
    real bound = number(uintBitsToFloat(CLIP));
    real bounded = choose(less(bound, x), bound, choose(less(x, negate(bound)), negate(bound), x));
    return choose(HAS_CLIP != 0, bounded, x);
}
