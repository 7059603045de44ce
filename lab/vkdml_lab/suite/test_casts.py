"""Tests casts between float32, float16 and bfloat16: all 16-bit patterns, and float32 numbers where rounding changes."""

from dataclasses import replace
from itertools import permutations

import ml_dtypes
import numpy as np
import pytest

from vkdml.operators.checks import least_tensor
from vkdml.operators.correctness import differences
from vkdml.operators.element_types import SINGLE
from vkdml.operators.plain_problem import CastProblem, common_fields
from vkdml.planning import plain
from vkdml_lab.suite.guards import guarded
from vkdml_lab.suite.support import random_strides, run_over_pattern

pytestmark = pytest.mark.device

PAIRS = list(permutations(SINGLE, 2))
COUNT = 2**16


def patterns(element):
    """Return 65,536 numbers of a type: for a 16-bit type, all; for float32, random ones and, for each sign and exponent,
    numbers at and beside points where rounding to a narrower type changes.
    """
    if element.itemsize == 2:
        return np.arange(COUNT, dtype=np.uint16).view(element.name)
    tails = np.array([0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x2FFF, 0x3000, 0x7FFF, 0x8000, 0x8001, 0x18000, 0x400000, 0x7FFFFF])
    heads = np.arange(512, dtype=np.uint32) << 23
    found = (heads[:, None] | tails.astype(np.uint32)).ravel()
    rest = np.random.default_rng(0).integers(0, 2**32, COUNT - found.size, dtype=np.uint32)
    return np.concatenate([found, rest]).view(np.float32)


def flushed(array):
    """Return a copy of the array with a zero of the same sign for each subnormal number, as some drivers compute."""
    least = float(ml_dtypes.finfo(array.dtype).smallest_normal)
    wide = array.astype(np.float64)
    return np.where(np.abs(wide) < least, np.copysign(0, wide), wide).astype(array.dtype)


@pytest.mark.parametrize(("source", "element", "stores_halves"), [
    pytest.param(*pair, stores_halves, id=f"{pair[0].name} to {pair[1].name}, {'halves' if stores_halves else 'words'}")
    for pair in PAIRS for stores_halves in ((True, False) if pair[1].itemsize == 2 else (False,))])
def test_every_number(device, source, element, stores_halves):
    if stores_halves and not device.info.storage_16bit:
        pytest.skip(f"{device.info.name} cannot store 16 bits of a buffer")
    info = replace(device.info, storage_16bit=stores_halves)
    array, rng = patterns(source), np.random.default_rng(PAIRS.index((source, element)))
    sizes = 4, 2**7, 2**7
    given, target = ((least_tensor(kind.data_type, sizes, random_strides(rng, sizes, False), kind.itemsize)) for kind in (source, element))
    problem = CastProblem(**common_fields("a cast", element, {"InputTensor": given, "OutputTensor": target}), function=None, source=source)
    flat = np.zeros(given.size_of_elements, source.name)
    given.view(flat)[...] = array.reshape(sizes)
    with guarded() as guards:
        memory = run_over_pattern(device, problem, plain.plan(problem, info), {"InputTensor": flat})["OutputTensor"]
        guards.check()
    assert not differences(problem, {"InputTensor": flat.view(np.uint8), "OutputTensor": memory})
    found = target.view(memory[:target.size_of_elements * element.itemsize].view(element.name)).ravel()
    with np.errstate(all="ignore"):
        may_be = [one.astype(element.name) for one in (array, flushed(array))]
    bits = f"u{element.itemsize}"
    is_right = np.any([(found.view(bits) == one.view(bits)) | (found.view(bits) == flushed(one).view(bits)) for one in may_be], axis=0)
    is_nan = np.isnan(array)
    assert np.isnan(found[is_nan]).all()
    wrong = np.flatnonzero(~is_right & ~is_nan)
    assert not wrong.size, (array[wrong[0]], found[wrong[0]], may_be[0][wrong[0]])
    gaps = np.ones(memory.nbytes // element.itemsize, bool)
    target.view(gaps)[...] = False
    assert (memory[:gaps.size * element.itemsize].reshape(-1, element.itemsize)[gaps] == 0xA5).all()
