"""Mistakes in the GLSL of the kernel whose workgroups meet at a barrier, as Mesa's driver compiles them, and how each shows.

    vkdml radeon python -m lab.tests.radeon.mistakes
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from lab.tests.radeon.mutations import Runner
from tools import compile_shaders
from vkdml import Device, Options
from vkdml.engine.vulkan import spirv
from vkdml.laboratory import FLOAT32, GRU
from vkdml_lab.radeon import process
from vkdml_lab.suite.support import Case, make_desc, random_arrays

KERNEL = "gpu/gru_barrier"
_TWO_FENCES = "    device_fence();\n    barrier();\n    if (gl_LocalInvocationID.x == 0) {\n        device_fence();"
MISTAKES = {
    "none": ("uint arrivals", "uint arrivals"),
    "no fence of the others before the arrival": ("    device_fence();\n    barrier();\n    if", "    barrier();\n    if"),
    "no fence of the first before its atomic": ("        device_fence();\n        atomicAdd", "        atomicAdd"),
    "neither": (_TWO_FENCES, "    barrier();\n    if (gl_LocalInvocationID.x == 0) {"),
    "no barrier() before the arrival": ("    device_fence();\n    barrier();\n    if", "    device_fence();\n    if"),
    "no barrier() behind the wait": ("    }\n    barrier();\n    device_fence();", "    }\n    device_fence();"),
    "no fence behind the wait": ("    barrier();\n    device_fence();\n}", "    barrier();\n}"),
}


def main() -> None:
    """Prints what is seen of each."""
    device, load = Device(), spirv.load
    desc = make_desc(GRU, 5, 16, 5, 128, 1, FLOAT32.data_type)
    case = Case(desc, None, random_arrays(desc, np.random.default_rng(0), FLOAT32), FLOAT32)
    runner = Runner(device, case, Options(schedule="persistent", meeting="barrier", workgroup=256, rows=8))
    right, _ = runner.run()
    for name, (old, new) in MISTAKES.items():
        with tempfile.TemporaryDirectory() as folder:
            code = compile_shaders.mistaken(Path(folder), "gpu/CELL_barrier.comp", old, new, KERNEL.__eq__)[KERNEL]
        wrong = spirv.of_spirv(KERNEL, code)
        spirv.load = lambda kernel, wrong=wrong: wrong if kernel == KERNEL else load(kernel)
        process.change(budget=200_000)
        print(f"{name}: {runner.seen(right)}", flush=True)


if __name__ == "__main__":
    main()
