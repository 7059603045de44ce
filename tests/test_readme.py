"""The README's examples run as they stand, section by section, and its commands exist."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SECTIONS = {section.splitlines()[0]: re.findall(r"```(python|sh|json)\n(.*?)```", section, re.S)
            for section in README.split("\n## ")[1:]}


def run_python(code):
    """Its prints are what the comments beside them promise."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    promised = re.findall(r"print\(.*\)  # (.+)", code)
    assert printed.getvalue().strip().splitlines()[:len(promised)] == promised


def run_shell(code):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(["bash", "-euc", code], check=True, env={**os.environ, "PATH": path}, stdout=subprocess.DEVNULL)


def write_model(code):
    Path("model.json").write_text(code)


RUN = {"python": run_python, "sh": run_shell, "json": write_model}


@pytest.mark.device
@pytest.mark.parametrize("section", [section for section, blocks in SECTIONS.items() if blocks])
def test_section(section, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for language, code in SECTIONS[section]:
        RUN[language](code)


def test_each_kind_of_user_has_an_example():
    kinds = {section: [language for language, _ in blocks] for section, blocks in SECTIONS.items() if blocks}
    assert kinds == {
        "ONNX models": ["python", "sh", "python"], "PyTorch modules": ["python"], "PyDirectML scripts": ["python"],
        "DxDispatch models": ["json", "sh"], "Command line": ["sh"], "Numpy arrays": ["python"],
        "DirectML's descriptors": ["python"]}


@pytest.mark.parametrize("target", sorted(set(re.findall(r"make ([a-z-]+)", README))))
def test_make_target(target):
    """setup-NAME installs the extra of that name."""
    extra = target.removeprefix("setup-")
    pattern, file = (rf"^{extra} = \[", "pyproject.toml") if extra != target else (rf"^{target}:", "Makefile")
    assert re.search(pattern, (ROOT / file).read_text(), re.M)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_linked_file(path):
    assert (ROOT / path).exists()


def test_links_within():
    anchors = {re.sub(r"[^a-z -]", "", section.lower()).replace(" ", "-") for section in SECTIONS}
    assert set(re.findall(r"\]\(#([^)]+)\)", README)) <= anchors


def test_documentation(tmp_path):
    """What `make docs` runs."""
    modules = re.search(r"pdoc .*\\\n(.*)", (ROOT / "Makefile").read_text())[1].split()
    subprocess.run([sys.executable, "-m", "pdoc", "--docformat", "google", "--output-directory", tmp_path, *modules],
                   check=True, cwd=ROOT)
    for module, name in (("vkdml", "DML_GRU_OPERATOR_DESC"), ("vkdml/onnx", "InferenceSession"), ("vkdml/torch", "convert"),
                         ("vkdml/pydirectml", "lstm"), ("vkdml/dxdispatch", "load")):
        assert f'id="{name}"' in (tmp_path / f"{module}.html").read_text()
