"""Tests scalar instructions. Expected results are from AMD's "RDNA3 Instruction Set Architecture Reference Guide"."""

import pytest

from lab.tests.radeon.wave import Wave
from vkdml_lab.radeon import instructions

ALL, SIGN = 0xffffffff, 0x80000000
WIDE = 0xffffffffffffffff
SAME = None  # SCC is unchanged

# name: [(sources, result, SCC afterwards), ...] of s_NAME D, S0, S1. Names tell sources of 64 bits
CASES = {
    "mov_b32": [((ALL,), ALL, SAME)], "mov_b64": [((SIGN << 32 | 1,), SIGN << 32 | 1, SAME)],
    "not_b32": [((ALL,), 0, 0), ((0,), ALL, 1)], "not_b64": [((WIDE,), 0, 0), ((1,), WIDE - 1, 1)],
    "add_u32": [((ALL, 1), 0, 1), ((1, 2), 3, 0)], "sub_u32": [((0, 1), ALL, 1), ((1, 1), 0, 0)],
    "add_i32": [((0x7fffffff, 1), SIGN, 1), ((ALL, 1), 0, 0), ((SIGN, SIGN), 0, 1)],
    "sub_i32": [((SIGN, 1), 0x7fffffff, 1), ((0, 1), ALL, 0), ((0, SIGN), SIGN, 1)],
    "mul_i32": [((ALL, ALL), 1, SAME)], "mul_hi_u32": [((ALL, ALL), ALL - 1, SAME)], "mul_hi_i32": [((ALL, ALL), 0, SAME), ((ALL, 1), ALL, SAME)],
    "abs_i32": [((ALL,), 1, 1), ((SIGN,), SIGN, 1), ((0,), 0, 0)],
    "absdiff_i32": [((2, 5), 3, 1), ((5, 2), 3, 1), ((4, 4), 0, 0), ((SIGN, 0), SIGN, 1)],
    "sext_i32_i8": [((0x180,), 0xffffff80, SAME), ((0x17f,), 0x7f, SAME)], "sext_i32_i16": [((0x18000,), 0xffff8000, SAME)],
    "min_u32": [((SIGN, 1), 1, 0), ((1, 2), 1, 1), ((2, 2), 2, 0)], "max_u32": [((SIGN, 1), SIGN, 1), ((1, 2), 2, 0)],
    "min_i32": [((SIGN, 1), SIGN, 1), ((2, 1), 1, 0)], "max_i32": [((SIGN, 1), 1, 0), ((2, 1), 2, 1)],
    "lshl1_add_u32": [((SIGN, 1), 1, 1), ((1, 1), 3, 0)], "lshl2_add_u32": [((0x40000000, 1), 1, 1), ((1, ALL), 3, 1)],
    "lshl3_add_u32": [((1, 1), 9, 0)], "lshl4_add_u32": [((0x10000000, 0), 0, 1)],
    "brev_b32": [((0x12345678,), 0x1e6a2c48, SAME)], "bitreplicate_b64_b32": [((0x80000005,), 0xc000000000000033, SAME)],
    "ctz_i32_b32": [((0,), ALL, SAME), ((8,), 3, SAME)], "ctz_i32_b64": [((1 << 40,), 40, SAME), ((0,), ALL, SAME)],
    "clz_i32_u32": [((0,), ALL, SAME), ((1,), 31, SAME)], "clz_i32_u64": [((1,), 63, SAME), ((0,), ALL, SAME)],
    "bcnt1_i32_b32": [((ALL,), 32, 1), ((0,), 0, 0)], "bcnt1_i32_b64": [((WIDE,), 64, 1)],
    "bitset0_b32": [((33,), 0xaaaaaaa8, SAME)], "bitset1_b32": [((32,), 0xaaaaaaab, SAME)],  # changes the old 0xaaaaaaaa
    "bfm_b32": [((4, 8), 0xf00, SAME), ((32, 0), 0, SAME), ((31, 33), 0xfffffffe, SAME)],
    "bfm_b64": [((40, 8), 0xffffffffff00, SAME), ((63, 1), WIDE - 1, SAME)],
    "bfe_u32": [((0xabcd1234, 8 << 16 | 8), 0x12, 1), ((ALL, 0), 0, 0), ((ALL, 32 << 16), ALL, 1), ((ALL, 40 << 16 | 4), 0x0fffffff, 1)],
    "bfe_i32": [((0xf000, 4 << 16 | 12), ALL, 1), ((0x7000, 4 << 16 | 12), 7, 1), ((ALL, 0), 0, 0), ((SIGN, 32 << 16), SIGN, 1)],
    "pack_ll_b32_b16": [((0x1234abcd, 0x5678ef01), 0xef01abcd, SAME)], "pack_lh_b32_b16": [((0x1234abcd, 0x5678ef01), 0x5678abcd, SAME)],
    "pack_hh_b32_b16": [((0x1234abcd, 0x5678ef01), 0x56781234, SAME)],
    "lshl_b32": [((1, 31), SIGN, 1), ((1, 32), 1, 1), ((SIGN, 1), 0, 0)], "lshl_b64": [((1, 63), 1 << 63, 1), ((1, 64), 1, 1)],
    "lshr_b32": [((SIGN, 31), 1, 1), ((1, 1), 0, 0), ((4, 34), 1, 1)], "lshr_b64": [((1 << 63, 63), 1, 1), ((1, 1), 0, 0)],
    "ashr_i32": [((SIGN, 31), ALL, 1), ((1, 1), 0, 0)], "ashr_i64": [((1 << 63, 63), WIDE, 1), ((1, 65), 0, 0)],
    "and_b32": [((6, 3), 2, 1), ((4, 3), 0, 0)], "and_b64": [((6 << 32, 3 << 32), 2 << 32, 1)],
    "or_b32": [((6, 3), 7, 1), ((0, 0), 0, 0)], "or_b64": [((6 << 32, 3), 6 << 32 | 3, 1)],
    "xor_b32": [((6, 3), 5, 1), ((6, 6), 0, 0)], "xor_b64": [((6, 6), 0, 0)],
    "nand_b32": [((ALL, ALL), 0, 0), ((6, 3), ALL - 2, 1)], "nand_b64": [((WIDE, WIDE), 0, 0)],
    "nor_b32": [((0, 0), ALL, 1), ((ALL, 0), 0, 0)], "nor_b64": [((0, WIDE), 0, 0)],
    "xnor_b32": [((5, 5), ALL, 1), ((0, ALL), 0, 0)], "xnor_b64": [((5, 5), WIDE, 1)],
    "and_not1_b32": [((7, 2), 5, 1), ((2, 7), 0, 0)], "and_not1_b64": [((7 << 32, 2 << 32), 5 << 32, 1)],
    "or_not1_b32": [((1, ALL), 1, 1), ((0, ALL), 0, 0)], "or_not1_b64": [((0, WIDE), 0, 0)],
}
# With SCC as a source: (SCC, sources, result, SCC afterwards)
WITH_SCC = {
    "addc_u32": [(1, (ALL, 0), 0, 1), (1, (ALL, ALL), ALL, 1), (0, (ALL, 0), ALL, 0)],
    "subb_u32": [(1, (0, 0), ALL, 1), (1, (0, ALL), 0, 1), (1, (5, 3), 1, 0)],
    "cselect_b32": [(1, (1, 2), 1, 1), (0, (1, 2), 2, 0)], "cselect_b64": [(1, (1 << 40, 2), 1 << 40, 1), (0, (1, 2 << 40), 2 << 40, 0)],
    "cmov_b32": [(1, (5,), 5, 1), (0, (5,), 0xaaaaaaaa, 0)], "cmov_b64": [(1, (5,), 5, 1), (0, (5,), 0xaaaaaaaaaaaaaaaa, 0)],
}
# With a 16-bit constant: (old value, constant, result, SCC afterwards)
WITH_CONSTANT = {
    "movk_i32": [(0, "0x8000", 0xffff8000, 1)], "cmovk_i32": [(0, "0x8000", 0xffff8000, 1)],
    "addk_i32": [(0x7fffffff, "0x1", SIGN, 1), (5, "0xfffe", 3, 0)], "mulk_i32": [(3, "0xffff", 0xfffffffd, 1)],
}
RELATIONS = {"lt": (1, 0, 0), "eq": (0, 1, 0), "le": (1, 1, 0), "gt": (0, 0, 1), "ge": (0, 1, 1), "lg": (1, 0, 1)}
PAIRS = {"u32": [(1, ALL), (7, 7), (SIGN, 1)], "i32": [(ALL, 1), (7, 7), (1, SIGN)], "u64": [(ALL, 1 << 32), (7, 7), (1 << 63, 1)]}
SHORT = {"u32": [(1, "0xffff"), (0xffff, "0xffff"), (0x10000, "0xffff")], "i32": [(ALL - 1, "0xffff"), (ALL, "0xffff"), (0, "0xffff")]}
# exec is 0b1100 and the source 0b1010
EXEC = {"and": 0b1000, "or": 0b1110, "xor": 0b0110, "and_not1": 0b0010, "and_not0": 0b0100, "or_not1": ~0b0100, "or_not0": ~0b0010,
        "nand": ~0b1000, "nor": ~0b1110, "xnor": ~0b0110}


def run(name, sources, scc=1, old=0xaaaaaaaaaaaaaaaa):
    wave = Wave()
    wave.scc = scc
    wave.s[0], wave.s[1] = old & ALL, old >> 32
    for n, source in enumerate(sources):
        wave.s[4 + 2 * n], wave.s[5 + 2 * n] = source & ALL, source >> 32
    is_wide = [kind[1:] == "64" for kind in name.split("_") if kind[1:] in ("32", "64")]
    shifted = name.startswith(("lsh", "ash", "bfm")) and "add" not in name
    widths = [is_wide[0], is_wide[-1], is_wide[-1] and not shifted]
    if name.startswith("bfm"):
        widths[1] = False
    texts = [f"s[{n}:{n + 1}]" if wide else f"s{n}" for n, wide in zip((0, 4, 6), widths, strict=True)]
    assert wave.run(f"s_{name} {', '.join(texts[:1 + len(sources)])}") is None
    return int(wave.s[0]) | (int(wave.s[1]) << 32 if widths[0] else 0), wave.scc


@pytest.mark.parametrize("name", CASES)
def test_results(name):
    for sources, expected, scc in CASES[name]:
        for old in (0, 1):
            assert run(name, sources, old) == (expected, old if scc is SAME else scc), sources


@pytest.mark.parametrize("name", WITH_SCC)
def test_results_by_scc(name):
    for old, sources, expected, scc in WITH_SCC[name]:
        assert run(name, sources, old) == (expected, scc)


@pytest.mark.parametrize("name", WITH_CONSTANT)
def test_constants_of_16_bits(name):
    for old, constant, expected, scc in WITH_CONSTANT[name]:
        wave = Wave()
        wave.s[0], wave.scc = old, 1
        assert wave.run(f"s_{name} s0, {constant}") is None
        assert (wave.s[0], wave.scc) == (expected, scc)


@pytest.mark.parametrize("name", [name for name in instructions.SCALAR if name.startswith("s_cmp") and not name.endswith("f32")])
def test_comparisons(name):
    _, way, relation, kind = name.split("_")
    for (first, second), expected in zip((SHORT if way == "cmpk" else PAIRS)[kind], RELATIONS[relation], strict=True):
        wave = Wave()
        wave.s[0], wave.s[1] = first & ALL, first >> 32
        if way == "cmp":
            wave.s[2], wave.s[3] = second & ALL, second >> 32
        sources = "s[0:1], s[2:3]" if kind == "u64" else f"s0, {second if way == 'cmpk' else 's2'}"
        assert wave.run(f"{name} {sources}") is None
        assert wave.scc == expected, (first, second)


@pytest.mark.parametrize(("name", "value", "bit", "expected"), [
    ("s_bitcmp0_b32", 2, 1, 0), ("s_bitcmp0_b32", 2, 32, 1), ("s_bitcmp1_b32", 2, 33, 1), ("s_bitcmp1_b32", SIGN, 31, 1)])
def test_bits_compared(name, value, bit, expected):
    wave = Wave()
    wave.s[0], wave.s[1] = value, bit
    assert wave.run(f"{name} s0, s1") is None
    assert wave.scc == expected


@pytest.mark.parametrize("way", ["saveexec", "wrexec"])
@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("name", EXEC)
def test_exec(name, width, way):
    wave = Wave(width)
    mask = (1 << width) - 1
    wave.s[126:126 + width // 32] = [0b1100, 0][:width // 32]
    wave.s[0], wave.s[1] = 0b1010, 0
    registers = ("s4", "s0") if width == 32 else ("s[4:5]", "s[0:1]")
    assert wave.run(f"s_{name}_{way}_b{width} {', '.join(registers)}") is None
    words = [int(wave.s[n]) | (int(wave.s[n + 1]) << 32 if width == 64 else 0) for n in (126, 4)]
    new = EXEC[name] & mask
    assert words == [new, 0b1100 if way == "saveexec" else new]
    assert wave.scc == 1


def test_every_instruction_has_results():
    """Each scalar instruction is in a table of this module, or in another test (as comparisons and those of floats are)."""
    apart = {name for name in instructions.SCALAR if name.startswith(("s_cmp", "s_bitcmp")) or "exec" in name}
    apart |= instructions.OF_FLOATS.keys()
    assert {f"s_{name}" for name in (*CASES, *WITH_SCC, *WITH_CONSTANT)} | apart == instructions.SCALAR.keys()
    assert {f"s_{name}_{way}_b{bits}" for name in EXEC for way in ("saveexec", "wrexec") for bits in (32, 64)} <= apart
