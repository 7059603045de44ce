"""Runs a kernel with more values than registers: the compiler spills some to scratch memory, and some to shared memory.

vkdml radeon python -m lab.tests.radeon.spills
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from lab.tests.radeon.broken import counts
from tools.compile_shaders import compile_source
from vkdml import Buffer, Device
from vkdml_lab.internals import Commands, Dispatch, of_spirv
from vkdml_lab.radeon import process
from vkdml_lab.radeon.instructions import NUMBERS

HELD, INVOCATIONS, GROUPS = 400, 64, 3
# Each invocation holds many numbers, and uses them in another order than it loaded them, between other loads
_SHADER = f"""
#version 450
layout(local_size_x = {INVOCATIONS}) in;
layout(binding = 0) buffer Numbers {{ uint numbers[]; }};
layout(binding = 1) buffer Others {{ uint others[]; }};
layout(binding = 2) buffer Sums {{ uint sums[]; }};
#extension GL_EXT_control_flow_attributes : require
void main() {{
    uint held[{HELD}], i = gl_GlobalInvocationID.x, count = {INVOCATIONS * GROUPS}, sum = i;
    [[unroll]] for (uint n = 0; n < {HELD}; ++n) held[n] = numbers[n * count + i];
    [[unroll]] for (uint n = 0; n < {HELD}; ++n) {{
        sum = sum * 31 + (held[(n * 7 + 3) % {HELD}] ^ others[n * count + i]);
        if (n % 50 == 0) sums[(n / 50) * count + i] = sum;
    }}
    [[unroll]] for (uint n = 0; n < {HELD}; ++n) sum = sum * 33 + held[n];
    sums[i] = sum;
}}
"""


def expected(numbers: np.ndarray, others: np.ndarray) -> np.ndarray:
    sums, found = np.arange(numbers.shape[1], dtype=np.uint32), np.zeros((HELD // 50, numbers.shape[1]), np.uint32)
    for n in range(HELD):
        sums = sums * np.uint32(31) + (numbers[(n * 7 + 3) % HELD] ^ others[n])
        if n % 50 == 0:
            found[n // 50] = sums
    for n in range(HELD):
        sums = sums * np.uint32(33) + numbers[n]
    found[0] = sums
    return found


def main() -> None:
    """Print how many stores went to scratch and shared memory. Raises AssertionError for wrong sums, or for faults."""
    gpu = Device().gpu
    with tempfile.TemporaryDirectory() as folder:
        text, words = Path(folder, "spills.comp"), Path(folder, "spills.spv")
        text.write_text(_SHADER)
        compile_source(text, words)
        compiled = of_spirv("spills", words.read_bytes())
    numbers, others = np.random.default_rng(0).integers(0, 1 << 32, (2, HELD, INVOCATIONS * GROUPS), np.uint32)
    right = expected(numbers, others)
    for seed, late in ((1, 0), (2, 1), (3, 2)):
        process.change(seed=seed, late=late)
        arrays = {"Numbers": numbers, "Others": others, "Sums": 0 * right}
        buffers = {name: Buffer(gpu, array.nbytes) for name, array in arrays.items()}
        dispatch = Dispatch("spills", {}, {name: name for name in buffers}, ("Sums",), (GROUPS, 1, 1))
        commands = Commands(gpu)
        for name, array in arrays.items():
            buffers[name].write(array)
            commands.upload(buffers[name])
        commands.dispatch(gpu.create_kernel(dispatch, buffers, compiled), {})
        commands.readback(buffers["Sums"])
        commands.execute()
        np.testing.assert_array_equal(buffers["Sums"].read(right.shape, np.uint32), right)
        found = process.found()
        assert not found, found
    scratch, shared = (counts()[NUMBERS[f"{space}_store"]] for space in ("scratch", "ds"))
    print(f"right with {scratch} stores to scratch memory, {shared} to shared memory")


if __name__ == "__main__":
    main()
