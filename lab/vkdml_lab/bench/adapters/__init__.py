"""Adapters: a module for each library that `vkdml conformance --target` tests or the benchmark times.

An adapter has a class Library. Its constructor takes settings and raises UnavailableError if the library cannot run here.
`description` has the library's version and device. To load ONNX models, the class derives from `library.OnnxLibrary`;
otherwise it has its own `compute` and `code`, as in torch_nn.py. Only the benchmark calls `prepare`. Adapters run in processes
of their own, so they may crash or hang. bench/targets.py names them for the command line. A single Python function needs no
adapter: `--target python:module.function`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def load(adapter: str, settings: Mapping[str, Any]) -> Any:
    """Return Library(**settings) of an adapter. adapter: a module's name; without a dot, the module is in this package."""
    return import_module(adapter if "." in adapter else f"{__name__}.{adapter}").Library(**settings)
