"""Tests vector instructions against IEEE 754 and AMD's "RDNA3 Instruction Set Architecture Reference Guide"."""

import numpy as np
import pytest

from lab.tests.radeon.wave import FLUSH_DENORMALS, KEEP_DENORMALS, Wave, vector, word
from vkdml_lab.radeon import instructions

ONE, TWO, HALF, INF, NAN = word(1.0), word(2.0), word(0.5), 0x7f800000, 0x7fc00000
NEG = 0x80000000  # the sign bit, and -0
LEAST, LEAST_NORMAL, MOST = 0x00000001, 0x00800000, 0x7f7fffff
THIRD = word(1 / 3)

# name: [(sources, result), ...] for every row of the instruction table
CASES = {
    "v_mov_b32": [((0xdeadbeef,), 0xdeadbeef)],
    "v_not_b32": [((0x0f0f0000,), 0xf0f0ffff)],
    "v_bfrev_b32": [((0x00000001,), 0x80000000), ((0x12345678,), 0x1e6a2c48)],
    "v_and_b32": [((0xff00ff00, 0x0ff00ff0), 0x0f000f00)],
    "v_or_b32": [((0xff00ff00, 0x0ff00ff0), 0xfff0fff0)],
    "v_xor_b32": [((0xff00ff00, 0x0ff00ff0), 0xf0f0f0f0)],
    "v_xnor_b32": [((0xff00ff00, 0x0ff00ff0), 0x0f0f0f0f)],
    "v_and_or_b32": [((0xff00ff00, 0x0ff00ff0, 0x1), 0x0f000f01)],
    "v_or3_b32": [((0x1, 0x20, 0x300), 0x321)],
    "v_xor3_b32": [((0x3, 0x5, 0x9), 0xf)],
    "v_xad_u32": [((0xffffffff, 0xffff0000, 1), 0x00010000), ((0, 0xffffffff, 1), 0)],
    "v_bfi_b32": [((0x0000ff00, 0x12345678, 0xabcdef01), 0xabcd5601)],
    "v_add_nc_u32": [((0xffffffff, 1), 0), ((0x7fffffff, 1), 0x80000000)],
    "v_sub_nc_u32": [((0, 1), 0xffffffff), ((5, 3), 2)],
    "v_subrev_nc_u32": [((1, 0), 0xffffffff), ((3, 5), 2)],
    "v_add3_u32": [((0xffffffff, 1, 5), 5)],
    "v_add_nc_i32": [((0x7fffffff, 1), 0x80000000)],
    "v_sub_nc_i32": [((0x80000000, 1), 0x7fffffff)],
    "v_add_nc_u32 clamp": [((0xffffffff, 1), 0xffffffff), ((0xfffffffe, 1), 0xffffffff), ((1, 2), 3)],
    "v_sub_nc_u32 clamp": [((0, 1), 0), ((5, 3), 2), ((3, 3), 0)],
    "v_mul_lo_u32": [((0xffffffff, 0xffffffff), 1), ((0x10000, 0x10000), 0)],
    "v_mul_hi_u32": [((0xffffffff, 0xffffffff), 0xfffffffe), ((0x10000, 0x10000), 1)],
    "v_mul_hi_i32": [((0xffffffff, 0xffffffff), 0), ((0x80000000, 0x80000000), 0x40000000), ((0xffffffff, 1), 0xffffffff)],
    "v_mul_u32_u24": [((0xff000003, 0x01000005), 15), ((0xffffff, 0xffffff), 0xfe000001)],
    "v_mad_u32_u24": [((0xff000003, 0x01000005, 0xffffffff), 14)],
    "v_mul_i32_i24": [((0x00ffffff, 0x00000005), 0xfffffffb), ((0x00800000, 0x00800000), 0)],
    "v_mad_i32_i24": [((0x00ffffff, 0x00000005, 6), 1)],
    "v_min_u32": [((0x80000000, 1), 1)], "v_max_u32": [((0x80000000, 1), 0x80000000)],
    "v_min_i32": [((0x80000000, 1), 0x80000000)], "v_max_i32": [((0x80000000, 1), 1)],
    "v_min3_u32": [((3, 2, 0xffffffff), 2)], "v_max3_u32": [((3, 2, 0xffffffff), 0xffffffff)],
    "v_maxmin_u32": [((3, 9, 5), 5), ((3, 4, 5), 4)], "v_minmax_u32": [((3, 9, 5), 5), ((6, 9, 5), 6)],
    # Shifts use the lowest 5 bits of the amount
    "v_lshlrev_b32": [((31, 3), 0x80000000), ((32, 3), 3), ((33, 3), 6)],
    "v_lshrrev_b32": [((31, 0xc0000000), 1), ((32, 0xc0000000), 0xc0000000), ((0xffffffff, 0x80000000), 1)],
    "v_ashrrev_i32": [((31, 0x80000000), 0xffffffff), ((4, 0xffffff00), 0xfffffff0), ((32, 0x80000000), 0x80000000)],
    "v_lshl_add_u32": [((1, 32, 7), 8), ((0x80000001, 1, 0xffffffff), 1)],
    "v_add_lshl_u32": [((0xffffffff, 2, 4), 16), ((1, 1, 33), 4)],
    "v_lshl_or_b32": [((1, 4, 3), 0x13), ((1, 36, 3), 0x13)],
    "v_alignbit_b32": [((0x12345678, 0x9abcdef0, 8), 0x789abcde), ((1, 2, 32), 2), ((1, 2, 0), 2)],
    "v_bfe_u32": [((0xabcd1234, 8, 8), 0x12), ((0xffffffff, 0, 0), 0), ((0x80000000, 31, 31), 1), ((0xffffffff, 33, 34), 3)],
    "v_bfe_i32": [((0x0000f000, 12, 4), 0xffffffff), ((0x00007000, 12, 4), 7), ((0xffffffff, 0, 0), 0), ((0x80000000, 28, 8), 0x8)],
    # Selectors: 0 to 3 take a byte of the second source, 4 to 7 of the first, 8 to 11 signs, 12 zeros, higher ones all bits
    "v_perm_b32": [((0x77665544, 0x33221100, 0x07040300), 0x77443300), ((0x80000000, 0x00008000, 0x0d0c0b08), 0xff00ffff),
                   ((0x7fffffff, 0x7fff8000, 0x0a09ff0b), 0xff00ff00)],
    "v_pack_b32_f16": [((0xabcd3c00, 0x12344000), 0x40003c00)],
    "v_mov_b16": [((0xabcd1234,), 0x00001234)],
    # Floats round to nearest, ties to even
    "v_add_f32": [((ONE, word(2**-24)), ONE), ((word(1 + 2**-23), word(2**-24)), word(1 + 2**-22)), ((INF, INF ^ NEG), "nan"),
                  ((MOST, word(2.0**103)), INF), ((LEAST, LEAST), 2), ((NEG, 0), 0), ((NEG, NEG), NEG), ((NAN, ONE), "nan")],
    "v_sub_f32": [((ONE, ONE), 0), ((INF, INF), "nan"), ((LEAST_NORMAL, LEAST), 0x007fffff), ((0, 0), 0)],
    "v_subrev_f32": [((ONE, TWO), ONE), ((word(3.0), ONE), NEG | TWO)],
    "v_mul_f32": [((word(2.0**-75), word(2.0**-75)), 0), ((word(2.0**-75), word(2.0**-74)), LEAST), ((0, INF), "nan"),
                  ((MOST, TWO), INF), ((NEG, ONE), NEG)],
    # (1 + 2^-12)^2 - (1 + 2^-11) = 2^-24 needs a single rounding
    "v_fma_f32": [((word(1 + 2**-12), word(1 + 2**-12), NEG | word(1 + 2**-11)), word(2.0**-24)), ((INF, 0, ONE), "nan"),
                  ((MOST, TWO, NEG | MOST), MOST)],
    "v_max_f32": [((NAN, ONE), ONE), ((ONE, NAN), ONE), ((NEG, 0), 0), ((0, NEG), 0), ((NEG | INF, NEG | MOST), NEG | MOST)],
    "v_min_f32": [((NAN, ONE), ONE), ((ONE, NAN), ONE), ((NEG, 0), NEG), ((0, NEG), NEG), ((INF, MOST), MOST)],
    "v_max3_f32": [((ONE, NAN, TWO), TWO), ((NEG | ONE, NEG | TWO, NEG), NEG)],
    "v_min3_f32": [((ONE, NAN, TWO), ONE), ((NEG | ONE, NEG | TWO, NEG), NEG | TWO)],
    "v_maxmin_f32": [((ONE, INF, TWO), TWO), ((ONE, HALF, TWO), ONE)],
    "v_minmax_f32": [((ONE, HALF, TWO), TWO), ((INF, TWO, ONE), TWO)],
    "v_med3_f32": [((ONE, TWO, HALF), ONE), ((INF, NEG | INF, 0), 0), ((NAN, TWO, ONE), ONE), ((TWO, ONE, NAN), ONE)],
    "v_ldexp_f32": [((ONE, 0xffffff6b), LEAST), ((ONE, 0xffffff6a), 0), ((ONE, 128), INF), ((word(1.5), 3), word(12.0))],
    "v_rndne_f32": [((word(0.5),), 0), ((word(1.5),), TWO), ((word(2.5),), TWO), ((word(-0.5),), NEG), ((word(8388609.0),), word(8388609.0))],
    "v_floor_f32": [((word(-0.5),), word(-1.0)), ((NEG,), NEG), ((word(1.5),), ONE)],
    "v_ceil_f32": [((word(-0.5),), NEG), ((word(1.5),), TWO)],
    "v_trunc_f32": [((word(-1.5),), word(-1.0)), ((word(-0.5),), NEG), ((INF,), INF)],
    # The fraction (v_fract) stays below 1, even if it would round to 1
    "v_fract_f32": [((word(-0.25),), word(0.75)), ((word(-2.0**-30),), 0x3f7fffff), ((word(3.5),), HALF)],
    "v_rcp_f32": [((TWO,), HALF), ((0,), INF), ((NEG,), NEG | INF), ((NEG | INF,), NEG), ((word(3.0),), THIRD), ((NAN,), "nan")],
    "v_rcp_iflag_f32": [((TWO,), HALF), ((0,), INF)],
    "v_rsq_f32": [((word(4.0),), HALF), ((0,), INF), ((word(-1.0),), "nan"), ((INF,), 0)],
    "v_sqrt_f32": [((word(4.0),), TWO), ((NEG,), NEG), ((word(-1.0),), "nan"), ((INF,), INF)],
    "v_exp_f32": [((word(3.0),), word(8.0)), ((0,), ONE), ((word(-1.0),), HALF), ((NEG | INF,), 0), ((INF,), INF), ((word(128.0),), INF)],
    "v_log_f32": [((word(8.0),), word(3.0)), ((ONE,), 0), ((0,), NEG | INF), ((word(-1.0),), "nan"), ((INF,), INF)],
    # Integers convert to the nearest float, ties to even; floats convert toward 0, within the type's bounds
    "v_cvt_f32_u32": [((0xffffffff,), word(2.0**32)), ((16777217,), word(16777216.0)), ((16777219,), word(16777220.0))],
    "v_cvt_f32_i32": [((0xffffffff,), word(-1.0)), ((0x80000000,), word(-2.0**31)), ((16777217,), word(16777216.0))],
    "v_cvt_u32_f32": [((word(-1.5),), 0), ((word(1.99),), 1), ((word(2.0**32),), 0xffffffff), ((NAN,), 0), ((INF,), 0xffffffff)],
    "v_cvt_i32_f32": [((word(-1.99),), 0xffffffff), ((word(2.0**31),), 0x7fffffff), ((NEG | INF,), 0x80000000), ((NAN,), 0)],
    "v_cvt_f32_f16": [((0x3c00,), ONE), ((0x0001,), word(2.0**-24)), ((0x7c00,), INF), ((0xfc00,), NEG | INF), ((0x7e00,), "nan"),
                      ((0xabcd3c00,), ONE)],
    "v_cvt_f16_f32": [((ONE,), 0x3c00), ((word(65519.0),), 0x7bff), ((word(65520.0),), 0x7c00), ((word(2.0**-25),), 0),
                      ((word(2.0**-24 * 1.5),), 2), ((word(1 + 2**-11),), 0x3c00), ((word(1 + 3 * 2**-11),), 0x3c02)],
    "v_cvt_pk_rtz_f16_f32": [((word(1 + 2**-11 + 2**-12), word(65535.0)), 0x7bff3c00), ((word(-1.0), INF), 0x7c00bc00)],
}

# Each relation's result if the first source is less, equal, greater, and if one is NaN
RELATIONS = {"lt": (1, 0, 0, 0), "eq": (0, 1, 0, 0), "le": (1, 1, 0, 0), "gt": (0, 0, 1, 0), "lg": (1, 0, 1, 0), "ge": (0, 1, 1, 0),
             "o": (1, 1, 1, 0), "u": (0, 0, 0, 1), "nge": (1, 0, 0, 1), "nlg": (0, 1, 0, 1), "ngt": (1, 1, 0, 1), "nle": (0, 0, 1, 1),
             "neq": (1, 0, 1, 1), "nlt": (0, 1, 1, 1), "ne": (1, 0, 1, None)}
PAIRS = {"f32": [(NEG | ONE, LEAST), (NEG, 0), (INF, MOST), (NAN, NAN)], "u32": [(1, 0xffffffff), (7, 7), (0x80000000, 1)],
         "i32": [(0xffffffff, 1), (7, 7), (1, 0x80000000)]}

CLASSES = {"f32": [0x7f800001, NAN, NEG | INF, NEG | ONE, NEG | LEAST, NEG, 0, LEAST, ONE, INF],
           "f16": [0x7c01, 0x7e00, 0xfc00, 0xbc00, 0x8001, 0x8000, 0, 1, 0x3c00, 0x7c00]}  # in the order of the mask's bits


def is_nan(bits):
    return bits & 0x7f800000 == 0x7f800000 and bits & 0x7fffff


@pytest.mark.parametrize("name", CASES)
def test_results(name):
    name, _, clamp = name.partition(" ")
    rows = CASES[f"{name} {clamp}" if clamp else name]
    found = vector(name, [sources for sources, _ in rows], suffix=" clamp" if clamp else "")
    for (sources, expected), result in zip(rows, found, strict=True):
        assert is_nan(result) if expected == "nan" else result == expected, ([hex(one) for one in sources], hex(result))


def test_every_instruction_has_results():
    """Each vector instruction is in a table of this module, or in another test (as those with special operands are)."""
    apart = {"v_fmac_f32", "v_fmaak_f32", "v_fmamk_f32", "v_cndmask_b32", "v_fma_mix_f32", "v_fma_mixlo_f16",
             "v_fma_mixhi_f16", "v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32"}
    assert CASES.keys() | apart == instructions.VECTOR.keys()
    compared = {name.removeprefix("v_cmp_") for name in instructions.COMPARING if name.startswith("v_cmp_")}
    assert compared <= {f"{relation}_{kind}" for relation in RELATIONS for kind in PAIRS} | {"class_f32", "class_f16"}


@pytest.mark.parametrize("name", [name for name in instructions.COMPARING if "class" not in name])
def test_comparisons(name):
    _, prefix, relation, kind = name.split("_")
    pairs = PAIRS[kind]
    wave = Wave(32)
    for lane, (first, second) in enumerate(pairs):
        wave.v[1, lane], wave.v[2, lane] = first, second
    expected = sum(bool(bit) << lane for lane, bit in zip(range(len(pairs)), RELATIONS[relation], strict=False))
    wave.s[126] = (1 << len(pairs)) - 1  # inactive lanes give 0
    wave.s[106] = 0xffffffff
    assert wave.run(f"{name} v1, v2" if prefix == "cmpx" else f"{name} vcc_lo, v1, v2") is None
    assert wave.s[126 if prefix == "cmpx" else 106] == expected


@pytest.mark.parametrize("name", instructions.OF_FLOATS)
def test_scalars_of_rdna_4(name):
    wave = Wave()
    for sources, expected in CASES[instructions.OF_FLOATS[name]]:
        wave.s[4:4 + len(sources)] = sources
        assert wave.run(f"{name} {', '.join(['s0', 's4', 's5'][:1 + len(sources)])}") is None
        assert is_nan(wave.s[0]) if expected == "nan" else wave.s[0] == expected, sources


@pytest.mark.parametrize("name", [name for name in instructions.SCALAR if name.startswith("s_cmp") and name.endswith("f32")])
def test_comparisons_of_rdna_4(name):
    for pair, expected in zip(PAIRS["f32"], RELATIONS[name.split("_")[2]], strict=True):
        wave = Wave()
        wave.s[0], wave.s[1] = pair
        assert wave.run(f"{name} s0, s1") is None
        assert wave.scc == expected, pair


@pytest.mark.parametrize("kind", CLASSES)
def test_classes(kind):
    wave = Wave(64)
    for lane, number in enumerate(CLASSES[kind]):
        wave.v[1, lane * 4:lane * 4 + 4] = number
        wave.v[2, lane * 4:lane * 4 + 4] = [1 << lane, 0x3ff ^ 1 << lane, 0x3ff, 0]
    assert wave.run(f"v_cmp_class_{kind} vcc, v1, v2") is None
    mask = int(wave.s[106]) | int(wave.s[107]) << 32
    assert [mask >> 4 * lane & 15 for lane in range(10)] == [0b0101] * 10


@pytest.mark.parametrize(("text", "expected"), [
    ("v_fmac_f32 v0, v1, v2", 7.0), ("v_fmaak_f32 v0, v1, v2, 0x41200000", 16.0), ("v_fmamk_f32 v0, v1, 0x41200000, v2", 23.0),
    ("v_fma_f32 v0, -v1, |v3|, v2", -9.0), ("v_fma_f32 v0, v1, v2, v0 mul:2", 14.0), ("v_fma_f32 v0, v1, v2, v0 div:2", 3.5),
    ("v_mul_f32 v0, v1, v2 clamp", 1.0), ("v_mul_f32 v0, v1, -v2 clamp", 0.0), ("v_mul_f32 v0, v1, v2 mul:4", 24.0),
    ("v_add_f32 v0, 1.0, v1", 3.0), ("v_mul_f32 v0, 0.5, s4", 4.0), ("v_add_f32 v0, -|v3|, v1", -4.0), ("v_max_f32 v0, neg(1.0), v3", -1.0)])
def test_modifiers_and_literals(text, expected):
    wave = Wave()
    for register, value in enumerate([1.0, 2.0, 3.0, -6.0]):
        wave.v[register] = word(value)
    wave.s[4] = word(8.0)
    assert wave.run(text) is None
    assert wave.v[0, 5] == word(expected)


def test_clamp_makes_zero_of_nan():
    assert vector("v_add_f32", [(INF, INF ^ NEG)], suffix=" clamp") == [0]


@pytest.mark.parametrize(("name", "sources", "kept", "flushed"), [
    ("v_add_f32", (LEAST, LEAST), 2, 0), ("v_mul_f32", (LEAST_NORMAL, HALF), LEAST_NORMAL >> 1, 0),
    ("v_fma_f32", (LEAST, ONE, LEAST), 2, 0), ("v_sub_f32", (LEAST_NORMAL, LEAST), 0x007fffff, LEAST_NORMAL)])
def test_denormals_by_mode(name, sources, kept, flushed):
    assert vector(name, [sources], mode=KEEP_DENORMALS) == [kept]
    assert vector(name, [sources], mode=FLUSH_DENORMALS) == [flushed]


def test_inactive_lanes_keep_their_words():
    wave = Wave()
    wave.v[0], wave.s[126] = 7, 0b101
    assert wave.run("v_mov_b32 v0, 9") is None
    assert wave.v[0, :4].tolist() == [9, 7, 9, 7]


@pytest.mark.parametrize("width", [32, 64])
def test_cndmask_takes_the_second_where_the_bit_is_set(width):
    wave = Wave(width)
    wave.v[1], wave.v[2] = 1, 2
    wave.s[106:108] = 0b10, 0b01
    assert wave.run(f"v_cndmask_b32 v0, v1, v2, {'vcc_lo' if width == 32 else 'vcc'}") is None
    assert wave.v[0, :3].tolist() == [1, 2, 1]
    assert wave.v[0, 32] == (2 if width == 64 else 0)


@pytest.mark.parametrize(("name", "first", "second", "carry", "result", "out"), [
    ("v_add_co_u32", 0xffffffff, 1, 0, 0, 1), ("v_add_co_u32", 1, 1, 0, 2, 0), ("v_sub_co_u32", 0, 1, 0, 0xffffffff, 1),
    ("v_sub_co_u32", 1, 1, 0, 0, 0), ("v_subrev_co_u32", 1, 0, 0, 0xffffffff, 1), ("v_add_co_ci_u32", 0xffffffff, 0, 1, 0, 1),
    ("v_add_co_ci_u32", 0xffffffff, 0xffffffff, 1, 0xffffffff, 1), ("v_sub_co_ci_u32", 0, 0, 1, 0xffffffff, 1),
    ("v_sub_co_ci_u32", 0, 0xffffffff, 1, 0, 1), ("v_sub_co_ci_u32", 5, 3, 1, 1, 0), ("v_subrev_co_ci_u32", 3, 5, 1, 1, 0)])
def test_carries(name, first, second, carry, result, out):
    wave = Wave()
    wave.v[1], wave.v[2], wave.s[106] = first, second, 0xffffffff * carry
    wave.s[126] = 0x0000ffff
    assert wave.run(f"{name} v0, vcc_lo, v1, v2{', vcc_lo' if '_ci_' in name else ''}") is None
    assert (wave.v[0, 3], wave.s[106]) == (result, 0xffff * out)


@pytest.mark.parametrize(("text", "expected"), [
    ("v_lshlrev_b64 v[0:1], 63, v[4:5]", 0x8000000000000000), ("v_lshlrev_b64 v[0:1], 64, v[4:5]", 0x8000000180000003),
    ("v_lshrrev_b64 v[0:1], 33, v[4:5]", 0x40000000), ("v_ashrrev_i64 v[0:1], 63, v[4:5]", 0xffffffffffffffff),
    ("v_mad_u64_u32 v[0:1], null, v6, v6, v[4:5]", (0xffffffff ** 2 + 0x8000000180000003) % 2**64)])
def test_words_of_64_bits(text, expected):
    wave = Wave()
    wave.v[4], wave.v[5], wave.v[6] = 0x80000003, 0x80000001, 0xffffffff
    assert wave.run(text) is None
    assert int(wave.v[1, 9]) << 32 | int(wave.v[0, 9]) == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("v_fma_mix_f32 v0, v1, v2, v3 op_sel_hi:[1,1,0]", word(7.0)), ("v_fma_mix_f32 v0, v1, v2, v3 op_sel:[1,0,0] op_sel_hi:[1,1,0]", word(16.0)),
    ("v_fma_mix_f32 v0, -v1, v2, v3 op_sel_hi:[1,1,0]", word(-5.0)), ("v_fma_mix_f32 v0, v3, v3, |v4|", word(3.0)),
    ("v_fma_mixlo_f16 v0, v1, v2, v3 op_sel_hi:[1,1,0]", 0xaaaa4700), ("v_fma_mixhi_f16 v0, v1, v2, v3 op_sel_hi:[1,1,0]", 0x4700aaaa),
    ("v_cvt_f32_f16 v0, v1 op_sel:[1,0]", word(5.0)), ("v_cvt_f32_f16 v0, v1.h", word(5.0)), ("v_cvt_f16_f32 v0.h, v3", 0x3c00aaaa),
    ("v_cvt_f16_f32 v0.l, v3", 0xaaaa3c00), ("v_mov_b16 v0.h, v1.l", 0x4000aaaa), ("v_cvt_f32_f16 v0, 1.0", ONE)])
def test_halves(text, expected):
    wave = Wave()
    wave.v[0], wave.v[1], wave.v[2], wave.v[3], wave.v[4] = 0xaaaaaaaa, 0x45004000, 0x42004200, ONE, word(-2.0)
    assert wave.run(text) is None
    assert hex(wave.v[0, 0]) == hex(expected)


@pytest.mark.parametrize(("selection", "expected"), [
    ("dst_sel:DWORD dst_unused:UNUSED_PRESERVE src0_sel:WORD_1", 0x00001234), ("dst_sel:WORD_0 dst_unused:UNUSED_PAD src0_sel:DWORD", 0x00005678),
    ("dst_sel:WORD_0 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1", 0xaabb1234), ("dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:WORD_0", 0x56780000),
    ("dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1", 0x1234ccdd)])
def test_parts_of_registers(selection, expected):
    """Instructions of RDNA 2 with "SDWA" may write half of a register. The other half becomes 0, or keeps its bits."""
    assert vector("v_mov_b32_sdwa", [[0x12345678]], to=0xaabbccdd, suffix=f" {selection}") == [expected]


def test_between_lanes():
    wave = Wave()
    wave.v[1] = np.arange(64)
    wave.v[2] = 100
    wave.s[126], wave.s[3] = 0xfffffff0, 37
    assert wave.run("v_readfirstlane_b32 s0, v1", "v_readlane_b32 s1, v1, s3", "v_writelane_b32 v2, s1, 2", "v_swap_b32 v1, v2",
                    "v_mbcnt_lo_u32_b32 v3, -1, 0") is None
    assert (wave.s[0], wave.s[1]) == (4, 5)  # lane numbers are modulo the wave's size
    assert wave.v[1, 2:6].tolist() == [2, 3, 100, 100]
    assert wave.v[2, 2:6].tolist() == [5, 100, 4, 5]
    assert wave.v[3, 4:7].tolist() == [4, 5, 6]


def test_two_at_once_read_before_either_writes():
    wave = Wave()
    wave.v[0], wave.v[1] = ONE, TWO
    assert wave.run("v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v1, v0") is None
    assert (wave.v[0, 0], wave.v[1, 0]) == (TWO, ONE)
