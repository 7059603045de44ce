"""Compares matrix instructions with numpy. Registers have the layout of AMD's guides to RDNA 3 and RDNA 4, and of Mesa."""

import numpy as np
import pytest

from lab.tests.radeon.wave import Wave, changed

A, B, C, D = 0, 16, 32, 40  # first registers
FIRST_ROWS = {32: [0, 8], 64: [0, 8, 4, 12]}  # first row of C in each group of 16 lanes, on RDNA 4
EACH = pytest.mark.parametrize(("rdna", "width"), [(3, 32), (3, 64), (4, 32), (4, 64)])


def rows_of(rdna, width):
    """Return which row of matrix C a register holds in a lane, as an array [register, lane]. width: lanes of a wave."""
    count, lanes = 256 // width, np.arange(width)
    if rdna == 3:
        return np.arange(count)[:, None] * (width // 16) + lanes // 16
    return np.array(FIRST_ROWS[width])[lanes // 16] + np.arange(count)[:, None]


def put_in(wave, start, matrix, is_bf16, rdna):
    """Store a matrix in registers from number `start` on, two numbers in a word. Returns their name, such as v[0:7]."""
    bits = (matrix.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) if is_bf16 else matrix.astype(np.float16).view(np.uint16)
    words, lanes = bits.reshape(16, 8, 2)[..., 0] | bits.reshape(16, 8, 2)[..., 1].astype(np.uint32) << 16, np.arange(wave.width)
    count = 8 if rdna == 3 else 256 // wave.width // 2
    first = 0 * lanes if rdna == 3 else np.array(FIRST_ROWS[wave.width])[lanes // 16] // 2
    for n in range(count):
        wave.v[start + n, :wave.width] = words[lanes % 16, first + n]
    return f"v[{start}:{start + count - 1}]"


def multiplied(rdna, width, kind, mistake=None, c_is=None, seed=0):
    """Return A B + C as the emulator and as numpy compute it. mistake(v): changes registers. c_is: a constant in place of C."""
    rng, lanes, wave, rows = np.random.default_rng(seed), np.arange(width), Wave(width), rows_of(rdna, width)
    a, b, c = (rng.integers(-8, 9, (16, 16)) / 4 for _ in range(3))
    registers = [put_in(wave, start, of, kind == "bf16", rdna) for start, of in ((A, a), (B, b.T))]
    c = c if c_is is None else np.full((16, 16), c_is)
    wave.v[C:C + len(rows), :width] = c[rows, lanes % 16].astype(np.float32).view(np.uint32)
    if mistake:
        mistake(wave.v)
    to, third = f"v[{D}:{D + len(rows) - 1}]", f"v[{C}:{C + len(rows) - 1}]" if c_is is None else str(c_is)
    with changed(rdna=rdna):
        assert wave.run(f"v_wmma_f32_16x16x16_{kind} {to}, {', '.join(registers)}, {third}") is None
    return wave.v[D:D + len(rows), :width].view(np.float32), (a @ b + c)[rows, lanes % 16].astype(np.float32)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("c_is", [None, 0, 1.0])
@EACH
def test_a_product(rdna, width, c_is, kind):
    np.testing.assert_array_equal(*multiplied(rdna, width, kind, c_is=c_is))


def swapped(register, other, lanes=slice(None), other_lanes=slice(None)):
    def mistake(v):
        v[register, lanes], v[other, other_lanes] = v[other, other_lanes].copy(), v[register, lanes].copy()
    return mistake


def every_16th(lane):
    return slice(lane, 64, 16)


@pytest.mark.parametrize("mistake", [
    swapped(A, A + 1), swapped(B, B + 1), swapped(C, C + 1), swapped(slice(A, A + 8), slice(B, B + 8)),
    swapped(slice(A, A + 8), slice(A, A + 8), every_16th(0), every_16th(1)), swapped(slice(B, B + 8), slice(B, B + 8), every_16th(0), every_16th(15)),
    swapped(slice(C, C + 8), slice(C, C + 8), slice(0, 16), slice(16, 32))])
@EACH
def test_registers_and_lanes_in_the_wrong_places_give_something_else(rdna, width, mistake):
    found, right = multiplied(rdna, width, "f16", mistake)
    assert (found != right).any()


@EACH
def test_the_order_of_sums_is_not_known(rdna, width):
    """The emulator adds in random order, so 2**24 plus fifteen ones has several sums: float32 loses a one added to 2**24."""
    numbers, found = np.where(np.arange(16) == 5, 4096.0, 1.0)[None].repeat(16, 0), []
    for settings in [{"inexact": 0}, *({"inexact": 1, "seed": seed} for seed in range(16))]:
        wave = Wave(width)
        with changed(rdna=rdna, **settings):
            a, b = (put_in(wave, start, numbers, False, rdna) for start in (A, B))
            assert wave.run(f"v_wmma_f32_16x16x16_f16 v[{D}:{D + 256 // width - 1}], {a}, {b}, 0") is None
        found.append(float(wave.v[D, 0].view(np.float32)) - 2**24)
    assert found[0] == 16  # 15 rounded to even
    assert (min(found), max(found)) == (0, 16)
    assert len(set(found)) > 4


@pytest.mark.parametrize("lane", [16, 31])
def test_lanes_that_differ_are_found(lane):
    wave = Wave(32)
    wave.v[3, lane] = 1
    assert wave.run("v_wmma_f32_16x16x16_f16 v[40:47], v[0:7], v[16:23], v[32:39]") == "UNLIKE_LANES"


def test_lanes_that_are_off_are_found():
    wave = Wave(32)
    wave.s[126] = 0x7fffffff
    assert wave.run("v_wmma_f32_16x16x16_f16 v[40:47], v[0:7], v[16:23], v[32:39]") == "REFUSED"


@pytest.mark.parametrize(("between", "second", "kind"), [
    ([], "v[48:55], v[40:47], v[16:23], v[32:39]", "EARLY_PRODUCT"), ([], "v[48:55], v[0:7], v[47:54], v[32:39]", "EARLY_PRODUCT"),
    (["s_nop 7"], "v[48:55], v[40:47], v[16:23], v[32:39]", "EARLY_PRODUCT"), (["v_nop"], "v[48:55], v[40:47], v[16:23], v[32:39]", None),
    (["v_mov_b32 v100, v101"], "v[48:55], v[40:47], v[16:23], v[32:39]", None), (["v_readfirstlane_b32 s0, v0"], "v[48:55], v[40:47], v[16:23], v[32:39]", None),
    ([], "v[48:55], v[0:7], v[16:23], v[40:47]", None), ([], "v[40:47], v[0:7], v[16:23], v[40:47]", None)])  # may follow
def test_a_product_of_the_product_before(between, second, kind):
    first = "v_wmma_f32_16x16x16_f16 v[40:47], v[0:7], v[16:23], v[32:39]"
    assert Wave(32).run(first, *between, f"v_wmma_f32_16x16x16_f16 {second}") == kind
