"""The planner's estimate of a training step on GPUs, forward and backward, without the GEMMs: it has no times for these.

    python -m tests.faces.torch.estimates [MODE T B H]
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from vkdml.engine.vulkan.store import Recent
from vkdml.faces.torch import training
from vkdml.planning.plan import plan
from vkdml_lab.suite.devices import GPUS


def main(mode: str = "LSTM", *sizes: str) -> None:
    t, b, h = map(int, sizes or (25, 64, 1024))
    with patch.object(training, "Execution", lambda gpu, share, nodes, *_, **__: nodes):
        for name, info in GPUS.items():
            device: Any = SimpleNamespace(gpu=SimpleNamespace(info=info), share=None)
            passes: Any = training.Passes(training.Pass(mode, t, b, h, h, False, False, 0), device, Recent(1))
            times = [1e3 * (plan(nodes[0].problem, info).seconds or 0.0) for nodes in (passes.forward, passes.backward)]
            print(f"{name}: forward {times[0]:.2f} ms, backward {times[1]:.2f} and two products, {mode} (T {t}, B {b}, I and H {h})")


if __name__ == "__main__":
    main(*sys.argv[1:])
