"""setuptools' build backend, which first compiles the shaders into the package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  (the hooks that stay as they are)

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from compile_shaders import compile_shaders


def build_wheel(*args: Any, **kwargs: Any) -> str:
    compile_shaders(ROOT / "src" / "vkdml" / "spirv")
    return build_meta.build_wheel(*args, **kwargs)


def build_editable(*args: Any, **kwargs: Any) -> str:
    compile_shaders(ROOT / "src" / "vkdml" / "spirv")
    return build_meta.build_editable(*args, **kwargs)
