"""Adapters: a module for each library that `vkdml conformance --target` tests or the benchmark times.

An adapter has a class Library. Its constructor takes settings and raises UnavailableError if the library cannot run here.
`description` has the library's version and device. The class derives from `library.OnnxLibrary` to load ONNX models, or has its
own `compute` and `code`, as torch_nn.py. `prepare` is only for the benchmark. Adapters run in a process of their own, so they
may crash or hang. bench/targets.py names them for the command line. For a single function, use `--target
python:module.function`, which needs no adapter.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def load(adapter: str, settings: Mapping[str, Any]) -> Any:
    """Make a library. adapter: a module with a class Library; a name without a dot is in this package."""
    return import_module(adapter if "." in adapter else f"{__name__}.{adapter}").Library(**settings)
