"""`vkdml completion`: what a shell makes of its script."""

import subprocess
import sys

import pytest

from vkdml import cli


def completed(script, words):
    """What bash offers for the last of some words."""
    code = f"""{script}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_LINE='{words}'
$(complete -p vkdml | sed 's/.*-F \\([^ ]*\\) .*/\\1/') vkdml "${{COMP_WORDS[-1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}" """
    return subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_bash(capsys, tmp_path, monkeypatch):
    pytest.importorskip("shtab")
    assert cli.main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert {"devices", "run", "explain"} <= set(completed(script, "vkdml ''"))
    assert completed(script, "vkdml dev") == ["devices"]
    (tmp_path / "tagger.onnx").touch()
    monkeypatch.chdir(tmp_path)
    assert completed(script, "vkdml explain tag") == completed(script, "vkdml run tag") == ["tagger.onnx"]
    assert "--allow-outside" in completed(script, "vkdml run --")


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells(shell, capsys):
    pytest.importorskip("shtab")
    assert cli.main(["completion", shell]) == 0
    assert "selftest" in capsys.readouterr().out


def test_without_the_package(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert cli.main(["completion", "bash"]) == 1
    assert capsys.readouterr().err == "vkdml: vkdml completion needs the package shtab: pip install shtab\n"
