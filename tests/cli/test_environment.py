"""The command line's page tells every environment variable, and what each may say."""

import re
from pathlib import Path

from vkdml.engine.trust import tuner
from vkdml.engine.vulkan import gpu

ROOT = Path(__file__).parents[2]
TABLE = dict(re.findall(r"^\| `(VKDML_\w+)` \| (.*?) \|", (ROOT / "docs/faces/cli.md").read_text(), re.M))


def test_each_is_told():
    read = {name for path in (ROOT / "src").rglob("*.py") for name in re.findall(r"VKDML_[A-Z_]+", path.read_text())}
    assert TABLE.keys() == read


def test_what_they_allow():
    for name, allowed in (("VKDML_LOG", gpu.LEVELS), ("VKDML_TUNING", tuner.MODES)):
        assert all(f"`{value}`" in TABLE[name] for value in allowed), name
