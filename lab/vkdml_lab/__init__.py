"""The laboratory of vkdml: what tests it on devices and drivers, measures it and reports. lab/README.md lists the parts."""

from pathlib import Path

_PARENT = Path(__file__).resolve().parents[1]

# The checkout; of an installed wheel the folder of packages
ROOT = _PARENT.parent if (_PARENT / "pyproject.toml").exists() else _PARENT
