"""The documents' examples run as they stand, section by section; their links lead somewhere and their commands exist."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WITH_EXAMPLES = ["README.md", "docs/correctness.md", *sorted(str(path.relative_to(ROOT)) for folder in ("faces", "recipes") for path in ROOT.glob(f"docs/{folder}/*.md"))]
DOCUMENTS = sorted({*WITH_EXAMPLES, "CONTRIBUTING.md", "CHANGELOG.md",
                    *(str(path.relative_to(ROOT)) for pattern in ("docs/*.md", "docs/kernels/*.md") for path in ROOT.glob(pattern))})
TEXTS = {document: (ROOT / document).read_text() for document in DOCUMENTS}
BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.S)


def sections(document):
    """The runnable blocks below each heading, [(language, code)]."""
    return {section.splitlines()[0]: [block for block in BLOCK.findall(section) if block[0] in RUN]
            for section in re.split(r"^##+ ", TEXTS[document], flags=re.M)[1:]}


def prose(document):
    """Without code, in which brackets are no links."""
    return re.sub(r"`[^`\n]*`", "", BLOCK.sub("", TEXTS[document]))


def run_python(code):
    """Its prints are what the comments beside them promise."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "example", "exec"), {"__name__": "example"})
    promised = re.findall(r"print\(.*\)  # (.+)", code)
    assert printed.getvalue().strip().splitlines()[:len(promised)] == promised


def run_shell(code):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(["bash", "-euc", code], check=True, env={**os.environ, "PATH": path}, stdout=subprocess.DEVNULL)


RUN = {"python": run_python, "sh": run_shell}
EXAMPLES = {(document, section): blocks for document in WITH_EXAMPLES for section, blocks in sections(document).items() if blocks}


@pytest.mark.device
@pytest.mark.parametrize(("document", "section"), [
    pytest.param(*key, marks=[pytest.mark.thorough] * key[0].startswith("docs/recipes/")) for key in EXAMPLES])  # whole programs, of a minute together
def test_examples(document, section, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("examples").symlink_to(ROOT / "examples")  # commands are those of a checkout
    for language, code in EXAMPLES[document, section]:
        RUN[language](code)


def test_the_first_command_needs_no_device(monkeypatch):
    for variable in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        monkeypatch.setenv(variable, "/nonexistent.json")
    ((language, code),) = EXAMPLES["docs/faces/cli.md", "Commands"]
    RUN[language](code)


def test_each_kind_of_user_has_an_example():
    kinds = {key: [language for language, _ in blocks] for key, blocks in EXAMPLES.items()}
    assert kinds == {
        ("README.md", "A program"): ["python"],
        ("docs/correctness.md", "Checking calls"): ["python"],
        ("docs/faces/cli.md", "Commands"): ["sh"], ("docs/faces/directml.md", "A GRU, executed again and again"): ["python"],
        ("docs/faces/directml.md", "Many tensors in one buffer"): ["python"], ("docs/faces/directml.md", "A graph"): ["python"],
        ("docs/faces/numpy.md", "A bidirectional GRU"): ["python"],
        ("docs/faces/numpy.md", "A layer that holds its weights"): ["python"],
        ("docs/faces/numpy.md", "A sequence that comes in pieces"): ["python"],
        ("docs/faces/onnx.md", "A model"): ["python", "sh"], ("docs/faces/onnx.md", "In onnxruntime's own sessions"): ["python"], ("docs/faces/onnx.md", "A single node"): ["python"],
        ("docs/faces/onnx.md", "A model that carries its state"): ["python"],
        ("docs/faces/pydirectml.md", "A GRU"): ["python"], ("docs/faces/torch.md", "A module"): ["python"],
        ("docs/faces/torch.md", "Rows of several lengths"): ["python"],
        ("docs/faces/torch.md", "Graphs: export, compile, trace"): ["python"],
        ("docs/recipes/noise.md", "Run it"): ["sh"], ("docs/recipes/speakers.md", "Run it"): ["sh"],
        ("docs/recipes/training.md", "Run it"): ["sh"], ("docs/recipes/voices.md", "Run it"): ["sh"]}


def test_every_block_that_can_run_is_an_example():
    """None stands above the first heading of a document, or in one whose examples are not run. lab/tests/test_targets.py runs
    those of docs/who-is-right.md, which need other libraries.
    """
    blocks = sum(language in RUN for name, text in TEXTS.items() if name != "docs/who-is-right.md" for language, _ in BLOCK.findall(text))
    assert blocks == sum(map(len, EXAMPLES.values()))


@pytest.mark.parametrize(("document", "target"), sorted(
    {(document, target) for document, text in TEXTS.items() for target in re.findall(r"(?:`|^)make ([a-z][a-z-]*)", text, re.M)}))
def test_make_target(document, target):
    """setup-NAME installs the extra of that name."""
    extra = target.removeprefix("setup-")
    pattern, file = (rf"^{extra} = \[", "pyproject.toml") if extra != target else (rf"^{target}:", "Makefile")
    assert re.search(pattern, (ROOT / file).read_text(), re.M)


@pytest.mark.parametrize(("document", "link"), sorted(
    {(document, link) for document in DOCUMENTS for link in re.findall(r"\]\(([^):]+)\)", prose(document))}))
def test_link(document, link):
    path, _, anchor = link.partition("#")
    target = (ROOT / document).parent / path if path else ROOT / document
    assert target.exists()
    if anchor:
        headings = re.findall(r"^#+ (.*)", BLOCK.sub("", target.read_text()), re.M)
        assert anchor in {re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_estimates_are_those_of_gpu_check():
    """For a GRU with one row: of two GPUs with H = 256, and the ranges over H of one GPU and of all."""
    rows = re.findall(r"^\| GRU \(100,1,(\d+),\1\), persistent \|[^|]*\|(.*)\|$", (ROOT / "docs/bench/gpu-check.md").read_text(), re.M)
    times = {int(h): [float(cell.split()[0]) for cell in row.split("|")] for h, row in rows if int(h) <= 1024}
    amd, intel = times[256][0], times[256][-1]
    assert f"[{amd} us](docs/bench/gpu-check.md#the-estimates) on an RX 7900 XTX" in TEXTS["README.md"]
    assert f"*Estimated:* {intel} us on an Arc A770" in TEXTS["README.md"]
    everywhere, there = sorted(time for row in times.values() for time in row), sorted(row[0] for row in times.values())
    text = " ".join(TEXTS["docs/performance.md"].split())
    assert f"{everywhere[0]} to {everywhere[-1]} us a step (RX 7900 XTX: {there[0]} to {there[-1]})" in text
