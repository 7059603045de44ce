"""Other libraries, one module each: what `vkdml conformance --target` tests, and what the benchmark times.

The way in for another library is a module with a class Library: its constructor takes settings and raises UnavailableError
where the library cannot run here; `description` says its version and device; and it is a `library.OnnxLibrary`, which loads
ONNX models, or has `compute` and `code` of its own, as torch_nn.py. `prepare` is for the benchmark alone. It runs
in a process of its own, so it may crash or hang. bench/targets.py names it for the command line. For a function that computes a
node there is `--target python:module.function`, without any of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def load(adapter: str, settings: Mapping[str, Any]) -> Any:
    """A library. adapter: a module with a class Library, of this package where the name has no dot."""
    return import_module(adapter if "." in adapter else f"{__name__}.{adapter}").Library(**settings)
