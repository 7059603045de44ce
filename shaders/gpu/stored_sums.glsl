// Loads and stores sums in shared memory: those of several gates as a vec4, SUM_VEC(place), those of a single gate as words.
// These words are declared after the arrays of vec4s, which drivers load at once only if they are aligned.
shared float lone_sums[GATES > 1 ? 1 : SUM_VECS];

vec4 load_sums(uint place)
{
    if (GATES > 1) return SUM_VEC(place);
    return vec4(lone_sums[place], 0.0, 0.0, 0.0);
}

void store_sums(uint place, vec4 sums)
{
    if (GATES > 1) SUM_VEC(place) = sums;
    else lone_sums[place] = sums.x;
}
