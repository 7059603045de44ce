"""Tests bench.against, which compares the speed of this source tree with another commit's. No times are asserted."""

import json
import shutil
import subprocess
from contextlib import contextmanager

import pytest

from vkdml.engine.vulkan.gpu import select_device
from vkdml_lab.bench import against
from vkdml_lab.bench.against import Comparison, Tree
from vkdml_lab.bench.cases import CASES, Case
from vkdml_lab.bench.processes import ROOT

TINY = Case("gru", 3, 2, 4, 8)
HERE = Tree("this", ROOT)
WHAT = ["steady, host", "steady, device", "first", "compile"]


def git(folder, *arguments):
    command = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path):
    """Make a git repository with one commit: this tree's package, shaders and tools, uncompiled. Returns its folder."""
    if shutil.which("git") is None:
        pytest.skip("git is missing")
    root = tmp_path / "repository"
    for folder in ("src", "shaders", "tools"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("spirv", "__pycache__", "_kp*.so"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, root)
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "as it is")
    return root


@pytest.mark.device
@pytest.mark.thorough
def test_a_commit_is_checked_out_compiled_measured_and_removed(repository):
    with against.checked_out(repository, "HEAD") as other:
        rows = [comparison.row() for comparison in against.compare([TINY], HERE, other, select_device(None).index, pairs=1)]
    assert [(row["case"], row["what"], row.get("error", "")) for row in rows] == [(TINY.name, what, "") for what in WHAT]
    assert all(row["pairs"] == 1 and row["this ms"] / row["other ms"] == pytest.approx(row["this/other"]) for row in rows)
    assert not other.folder.exists()
    assert len(git(repository, "worktree", "list").splitlines()) == 1


@pytest.mark.device
def test_a_worker_that_imports_another_tree_is_refused(tmp_path):
    [comparison] = against.first_results(TINY, [Tree("other", tmp_path), HERE], select_device(None).index, 1)
    assert f"which is not in {tmp_path}" in comparison.row()["error"]


def test_a_commit_that_is_not_there_is_refused(repository):
    with pytest.raises(SystemExit, match="against: git worktree: .*v9"), against.checked_out(repository, "v9"):
        pass


def test_shaders_that_do_not_compile_are_refused(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "compile_shaders.py").write_text("raise SystemExit('a.comp does not compile')")
    with pytest.raises(SystemExit, match=r"the shaders of other cannot be built: a\.comp does not compile"):
        Tree("other", tmp_path).compile_shaders()


def test_a_commit_before_kp_was_built_in_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="other takes kp from a package of its own"):
        Tree("other", tmp_path).build_kp()


def test_cases_are_chosen_by_patterns(capsys):
    assert against.parse(["HEAD"]).only == CASES
    assert [case.name for case in against.parse(["HEAD", "--only", "lstm-100*", "*x1x256x256*"]).only] == [
        "gru-100x1x256x256", "lstm-100x1x256x256", "gru-1x1x256x256-streaming"]
    with pytest.raises(SystemExit, match="2"):
        against.parse(["HEAD", "--only", "gru"])
    assert "no case matches 'gru'" in capsys.readouterr().err


@pytest.mark.device
def test_the_table_the_json_and_the_exit_code(tmp_path, monkeypatch, capsys):
    @contextmanager
    def checked_out(repository, revision):
        yield Tree("other", repository)

    compared = [Comparison("a", "first", [1.0, 3.0, 2.0], [2.0, 2.0, 2.0])]
    monkeypatch.setattr(against, "checked_out", checked_out)
    monkeypatch.setattr(Tree, "compile_shaders", lambda tree: None)
    monkeypatch.setattr(against, "compare", lambda *_: compared)
    path = tmp_path / "against.json"
    arguments = ["v1", "--json", str(path)]
    assert against.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "other: v1\n" in printed
    assert printed.splitlines()[-1].replace(" ", "") == "|a|first|2000|2000|1.000|0.500|1.500|3|"
    written = json.loads(path.read_text())
    assert written["revision"] == "v1"
    assert written["rows"][0]["this s"] == [1, 3, 2]
    compared.append(Comparison("b", "steady", error="other: crashed"))
    assert against.main(arguments) == 1
    assert "other: crashed" in capsys.readouterr().out
