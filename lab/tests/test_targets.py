"""Tests `vkdml conformance --target`, which judges other libraries: it explains wrong results, and accepts right ones."""

import json
import os
import re
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from lab.tests.test_mutations import EQUATIONS, mutated
from vkdml import cli
from vkdml.operators import reference
from vkdml_lab.bench.nodes import Node
from vkdml_lab.bench.processes import ROOT, Process
from vkdml_lab.bench.targets import target
from vkdml_lab.processes import WorkerError
from vkdml_lab.targets import corpora, exporting, judging, page, running, shrinking
from vkdml_lab.targets.judging import CRASHED, HUNG, OPEN, REFUSED, RIGHT, UNSUPPORTED, WRONG

# What ONNX's texts leave open (judging.UNDEFINED), which must not decide a case
OPEN_MISTAKES = {"Y not written past the length", "Y repeats the last state past the length", "Y_h without steps is initial_h",
                 "Y_c without steps is initial_c", "c clipped for h", "input_forget: i = 1 - f",
                 "input_forget: f of the negated input gate"}


@cache
def small():
    """Return small nodes in float32 and float64 (features, special values, and 60 random ones), each with expected outputs."""
    found = [node for made in (corpora.of_features, corpora.of_special_values, lambda: corpora.of_random(60)) for _, node in made()]
    return [(node, judging.expected(node)) for node in found if node.element in ("float32", "float64")]


def typed(node, outputs):
    with np.errstate(over="ignore"):
        return dict(zip(node.outputs, [array.astype(node.inputs["X"].dtype) for array in outputs]))


def computed_by(module, node):
    inputs = {name.lower(): array for name, array in node.inputs.items()}
    return typed(node, getattr(module, node.op.lower())(**inputs, **node.attributes))


def seen(compute, op):
    """Return whether compute(node) is judged wrong for at least one small node of the operator `op`."""
    return any(judging.judge(node, compute(node), against).outcome == WRONG for node, against in small() if node.op == op)


def test_a_right_library_is_accused_of_nothing():
    for name, node in [*corpora.of_features(), *corpora.of_special_values(), *corpora.of_onnx(), *corpora.of_random(60)]:
        verdict = judging.judge(node, computed_by(reference, node))
        assert (name, verdict.outcome) == (name, RIGHT)
        assert verdict.share < 0.9


@pytest.mark.parametrize("places", [..., (0, 0, 0, 0)], ids=["all", "one"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_is_wrong(value, places):
    node = corpora.usual("GRU", (3, 2, 4, 5), "sequence_lens")
    outputs = computed_by(reference, node)
    outputs["Y"][places] = value
    assert judging.judge(node, outputs).outcome == WRONG


@pytest.mark.family("each wrong equation in each cell", first=3)
@pytest.mark.parametrize(("mistake", "op", "function", "changes"), [
    pytest.param(mistake, op, function, changes, id=f"{op}-{mistake}")
    for mistake, ops, function, changes in EQUATIONS for op in ops.split() if mistake not in OPEN_MISTAKES])
def test_a_wrong_equation_is_seen(mistake, op, function, changes):
    wrong = mutated(reference, function, changes)
    assert seen(lambda node: computed_by(wrong, node), op)


@pytest.mark.family("what is open", first=2)
@pytest.mark.parametrize("mistake", sorted(OPEN_MISTAKES))
def test_what_is_open_is_not_judged(mistake):
    (_, ops, function, changes), = (row for row in EQUATIONS if row[0] == mistake)
    wrong = mutated(reference, function, changes)
    assert not seen(lambda node: computed_by(wrong, node), ops.split()[0])


@pytest.mark.family("what may be ignored", first=2)
@pytest.mark.parametrize("cause", judging.AS_IF)
def test_the_verdict_names_the_cause(cause):
    """The verdict on at least one small node names the library's mistake. cause: this mistake, such as "clip is ignored"."""
    causes = []
    for node, against in small():
        other = dict(judging.readings(node)).get(cause)
        if other is not None:
            verdict = judging.judge(node, computed_by(reference, other), against)
            causes += [verdict.cause] if verdict.outcome == WRONG else []
    assert cause in causes


def test_a_smallest_case():
    """A case that fails because clip is ignored shrinks to one unit and at most two inputs. Of its features, it keeps clip."""
    node = corpora.usual("LSTM", (7, 4, 5, 9), "sequence_lens initial_h P", direction="bidirectional", clip=0.3, layout=1)
    change = judging.AS_IF["clip is ignored"]

    def is_wrong(other):
        verdict = judging.judge(other, computed_by(reference, change(other)))
        return verdict.outcome == WRONG and verdict.cause == "clip is ignored"

    assert is_wrong(node)
    small_one = shrinking.shrink(node, is_wrong)
    assert is_wrong(small_one)
    assert small_one.inputs["X"].size <= 2
    assert small_one.hidden == 1
    assert set(small_one.inputs) == {"X", "W", "R"}
    assert dict(small_one.attributes) == {"clip": 0.3}


def asked(function, patience=20.0):
    return running.LibraryProcess(f"python:lab.tests.strange_functions.{function}", patience)


@pytest.mark.family("outcomes", first=2)
@pytest.mark.parametrize(("function", "outcome"), [("crashes", CRASHED), ("without_lengths", WRONG), ("right", RIGHT), ("hangs", HUNG), ("refuses", REFUSED), ("lacks", UNSUPPORTED)])
def test_outcomes_of_a_function(function, outcome):
    """A node's outcome, such as a crash or a hang, is reported, and the next node is computed nevertheless."""
    one = asked(function, 3.0 if function == "hangs" else 20.0)
    try:
        node = corpora.usual("GRU", (3, 2, 4, 5), "sequence_lens")
        assert [one.verdict(node).outcome for _ in range(2)] == [outcome] * 2
        assert one.verdict(corpora.usual("RNN", (3, 2, 4, 5))).outcome == RIGHT
    finally:
        one.process.close()


@pytest.mark.family("each library with each way to call it", diagonal=1)
@pytest.mark.parametrize("text", ["onnxruntime:cpu", "torch:cpu", "python:lab.tests.strange_functions.right"])
@pytest.mark.parametrize("said", [{"direction": "bidirectional", "given": "sequence_lens initial_h"}, {"given": "sequence_lens"}, {"direction": "reverse", "given": "initial_h"}], ids=str)
def test_a_program_of_the_library_prints_what_its_adapter_computes(text, said):
    if text.startswith("torch"):
        pytest.importorskip("torch")
    check_program(text, corpora.usual("GRU", (2, 2, 1, 2), linear_before_reset=1, **said))


@pytest.mark.device
@pytest.mark.parametrize("op", ["GRU", "LSTM", "RNN"])
def test_a_program_of_ncnn(op):
    pytest.importorskip("ncnn")
    check_program("ncnn", corpora.usual(op, (2, 1, 1, 2), "initial_h", direction="bidirectional", **{"linear_before_reset": 1} if op == "GRU" else {}))


def check_program(text, node):
    one = running.LibraryProcess(text)
    try:
        outputs = one.process.ask("compute", node)
        code = "".join(one.code(node))
    finally:
        one.process.close()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert f"{outputs['Y_h'].ravel()[-1]:.3f}" in done.stdout
    assert code.count("\n") <= 33


@pytest.mark.thorough
def test_a_report(tmp_path, capsys):
    """The report groups mistakes by cause, and the exit code is 1 if there are any."""
    command = ["conformance", "--target", "python:lab.tests.strange_functions.without_lengths", "--only", "lengths", "--output",
               str(tmp_path)]
    assert cli.main(command) == 1
    report = json.loads((tmp_path / "conformance.json").read_text())
    assert [finding["cause"] for finding in report["findings"]] == ["sequence_lens is ignored"]
    assert {row["outcome"] for row in report["rows"]} <= {WRONG, RIGHT, OPEN}
    text = (tmp_path / "conformance.md").read_text()
    assert "## sequence_lens is ignored" in text
    assert "from lab.tests.strange_functions import without_lengths" in text
    assert f"{report['planned']} of {report['planned']} nodes" in text


@pytest.mark.parametrize(("arguments", "said"), [
    (["--target", "tensorflow:cpu"], "one of onnxruntime, torch"), (["--target", "python:f"], "module.function"),
    (["--target", "python:lab.tests.strange_functions.none"], "has no function none"),
    (["--target", "onnxruntime:rocm"], "has no ROCMExecutionProvider"), (["--target", "torch:cpu", "--resume"], "--resume"),
    (["--target", "torch:cpu", "--export", "x"], "with --export")])
def test_wrong_usage(arguments, said, capsys):
    assert cli.main(["conformance", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_targets_by_name():
    assert target("onnxruntime:webgpu").settings == {"provider": "WebGpuExecutionProvider"}
    assert target("onnxruntime:Mine=/a/b.so").settings == {"provider": "Mine", "plugin": "/a/b.so"}
    assert target("torch").settings == {"device": "cpu"}


@pytest.mark.thorough
def test_the_function_of_the_examples(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT / "examples")
    command = ["conformance", "--target", "python:conformance_target.compute", "--only", "RNN-one-row", "RNN-lengths-0", "GRU-plain-0",
               "test_simple_rnn_defaults"]
    assert cli.main([*command, "--output", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "conformance.json").read_text())["rows"]
    assert {row["name"]: row["outcome"] for row in rows} == {"RNN-one-row": RIGHT, "RNN-lengths-0": UNSUPPORTED,
                                                             "GRU-plain-0": UNSUPPORTED, "test_simple_rnn_defaults": RIGHT}


@pytest.mark.thorough
def test_cases_as_files(tmp_path):
    """The files that --export writes can be read by examples/read_cases.py and, as ONNX models and tensors, by onnx."""
    folder = tmp_path / "cases"
    assert cli.main(["conformance", "--export", str(folder), "--only", "lengths-layout-0", "bfloat16-0"]) == 0
    listed = json.loads((folder / "cases.json").read_text())
    assert listed["format"] == exporting.FORMAT
    assert len(listed["cases"]) == 6
    found = list(runpy.run_path(str(ROOT / "examples" / "read_cases.py"))["cases"](folder))
    assert len(found) == 6
    for op, attributes, inputs, check in found:
        node = Node(op, {name: value for name, value in attributes.items() if name != "hidden_size"}, inputs)
        outputs = computed_by(reference, node)
        assert check(outputs) == []
        assert check({**outputs, "Y_h": outputs["Y_h"] + 1}) == ["Y_h"]
    case = next(folder.glob("GRU-lengths-layout-0"))
    model = onnx.load(case / "model.onnx")
    onnx.checker.check_model(model)
    loaded = [onnx.load_tensor(str(path)) for path in sorted((case / "test_data_set_0").glob("input_*.pb"))]
    assert [one.name for one in loaded] == [one.name for one in model.graph.input]
    expected = numpy_helper.to_array(onnx.load_tensor(str(case / "test_data_set_0" / "output_1.pb")))
    np.testing.assert_allclose(expected, np.load(folder / f"{case.name}.npz")["expected_Y_h"], rtol=1e-6)
    assert cli.main(["conformance", "--export", str(folder)]) == 2  # the folder exists


@pytest.mark.thorough
def test_only_what_was_checked_stands_on_the_page(tmp_path, monkeypatch):
    """A finding is on the page only if checked.json has a text for it, and a second library agrees with the reference."""
    target_ = "python:lab.tests.strange_functions.without_lengths"
    cli.main(["conformance", "--target", target_, "--only", "GRU-lengths-linear-0", "--output", str(tmp_path)])
    report = json.loads((tmp_path / "conformance.json").read_text())
    (cause,) = (finding["cause"] for finding in report["findings"])
    assert "No finding stands" in page.page([report], {})
    assert f"**{cause}** (1 node). By hand." in page.page([report], {target_: {cause: {"text": "By hand."}}})
    monkeypatch.setattr(page, "SECONDS", (target_,))  # no other library
    assert "No finding stands" in page.page([report], {target_: {cause: {"text": "By hand."}}})


def programs():
    """Yield parameters for each program of docs/who-is-right.md: library, version, beginning, the case's text, and its code."""
    text, *sections = (ROOT / "docs" / "who-is-right.md").read_text().split("\n### ")
    common = text.split("```python\n")[1].split("```")[0]
    for section in sections:
        head, *blocks = section.split("```python\n")
        begins, *cases = [block.split("```\n") for block in blocks] or [["", ""]]
        library, version = head.split()[:2]
        said = begins[1]
        for case, following in cases:
            yield pytest.param(library, version.rstrip(","), common + begins[0], said, case, id=f"{library}: {said.split('**')[1]}")
            said = following


@pytest.mark.family("cases of the page", first=2)
@pytest.mark.parametrize(("library", "version", "begin", "said", "case"), [*programs()])
def test_a_case_of_the_page_prints_what_the_page_says(library, version, begin, said, case, tmp_path):
    """A program of docs/who-is-right.md runs without vkdml. The test needs the library in the version that the page names."""
    process = Process(target(library))
    try:
        process.open()
    except WorkerError as error:
        pytest.skip(str(error))
    finally:
        process.close()
    if process.description["version"] != version:
        pytest.skip(f"the page is of {library} {version}")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # IREE's programs call commands from there
    done = subprocess.run([sys.executable, "-I", "-c", begin + case], capture_output=True, text=True, cwd=tmp_path,
                          env={**os.environ, "PATH": path})
    if "Here crashed" in said:
        assert done.returncode < 0
        return
    assert done.returncode == 0, done.stderr
    if found := re.search(r" is (\S+), expected", said):
        printed = [float(number) for number in re.findall(r"-?\d+\.\d*(?:e[-+]\d+)?", done.stdout)]
        assert float(found[1]) == pytest.approx(min(printed, key=lambda one: abs(one - float(found[1]))), rel=1e-3)
    else:
        assert "has the shape" in said
