// llvmpipe gives each core consecutive workgroups. The last ones may have nothing to do, where rows have lengths. The host rounds
// their number up to a power of two then: with the bits of its number reversed, a core gets as much as any other.
uint spread(uint group, uint groups)
{
    bool is_power_of_two = (groups & (groups - 1)) == 0 && groups > 1;
    return is_power_of_two ? bitfieldReverse(group) >> (32 - findMSB(groups)) : group;
}
