"""The laboratory: tests and measurements of vkdml on devices and drivers, with reports. lab/README.md lists its parts."""

from pathlib import Path

_PARENT = Path(__file__).resolve().parents[1]

# The root of the checkout; for an installed wheel, site-packages
ROOT = _PARENT.parent if (_PARENT / "pyproject.toml").exists() else _PARENT
