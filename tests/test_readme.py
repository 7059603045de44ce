"""The README's examples run as they stand, and its commands exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.S)


@pytest.mark.parametrize("code", EXAMPLES, ids=lambda code: code.splitlines()[2])
def test_example(code, capsys):
    exec(compile(code, "README.md", "exec"), {})
    promised = re.findall(r"print\(.*\)  # (.+)", code)
    assert capsys.readouterr().out.strip().splitlines()[:len(promised)] == promised


def test_examples_are_there():
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize("target", sorted(set(re.findall(r"make ([a-z-]+)", README))))
def test_make_target(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)
