"""setuptools' build backend. The shaders are compiled into the package first, and pip is stopped where it could not go on."""

from __future__ import annotations

import importlib.metadata
import os
import site
import sys
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  (the hooks that stay as they are)

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from compile_shaders import compile_shaders

_NO_KP = ("vkdml needs kp, Kompute's Python package, which pip cannot build: run `make wheels` in vkdml's source tree, then "
          "`pip install dist/*.whl`")

# Arguments after which pip does not fetch kp, or may find it elsewhere
_OTHER_SOURCES = ("--no-deps", "-f", "--find-links", "-r", "--requirement", "--no-index")


def get_requires_for_build_wheel(*args: Any, **kwargs: Any) -> list[str]:
    _stop_pip_without_kp()
    return build_meta.get_requires_for_build_wheel(*args, **kwargs)


def get_requires_for_build_editable(*args: Any, **kwargs: Any) -> list[str]:
    _stop_pip_without_kp()
    return build_meta.get_requires_for_build_editable(*args, **kwargs)


def build_wheel(*args: Any, **kwargs: Any) -> str:
    compile_shaders(ROOT / "src" / "vkdml" / "spirv")
    return build_meta.build_wheel(*args, **kwargs)


def build_editable(*args: Any, **kwargs: Any) -> str:
    compile_shaders(ROOT / "src" / "vkdml" / "spirv")
    return build_meta.build_editable(*args, **kwargs)


def _stop_pip_without_kp() -> None:
    """End with one line where pip would go on to kp's sdist, whose build ends in pages of CMake.

    These hooks are the first that pip calls. Other programs that build wheels do not install what they depend on.
    """
    if "PIP_BUILD_TRACKER" in os.environ and not _kp_is_installed() and not _names_other_sources(_parent_arguments()):
        sys.exit(_NO_KP)


def _kp_is_installed() -> bool:
    """In the environment that pip runs in. It hides that environment's packages from this process, but not its prefix."""
    folders = [*site.getsitepackages([sys.prefix, sys.base_prefix]), site.getusersitepackages()]
    return any(importlib.metadata.distributions(name="kp", path=folders))


def _parent_arguments() -> list[str]:
    """pip's own arguments."""
    return Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\0")


def _names_other_sources(arguments: list[str]) -> bool:
    """Whether pip's arguments name a wheel of kp or places where one may be, or PIP_FIND_LINKS a folder that has one."""
    folders = os.environ.get("PIP_FIND_LINKS", "").split()
    return (any(argument.partition("=")[0] in _OTHER_SOURCES or Path(argument).name.startswith("kp-") for argument in arguments)
            or any(any(Path(folder).glob("kp-*.whl")) for folder in folders))
