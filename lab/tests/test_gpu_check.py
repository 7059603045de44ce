"""Tests `make gpu-check`: kernels compiled by RADV (if installed), demands (bounds on figures of the code), and drivers."""

import csv
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lab.tests.test_gpu_assembly import AMD
from vkdml.engine.vulkan.spirv import load
from vkdml.planning.dispatches import Dispatch
from vkdml.planning.profiles import profile
from vkdml_lab.bench import cases as bench
from vkdml_lab.gpu import check, demands, measure, times
from vkdml_lab.gpu.cases import CASES, Case, PlainCase
from vkdml_lab.gpu.compiler import Compiler, Pipeline, pipeline
from vkdml_lab.gpu.demands import DEMANDS, EXPECTED, Demand, Expected, Held
from vkdml_lab.gpu.drivers import INSTALLED, ROOT
from vkdml_lab.gpu.gpus import GPUS
from vkdml_lab.gpu.measure import ATOMICS, DEFAULT, PERSISTENT, SCRATCH_ACCESSES, SEQUENCE, STEPPED, TRIED, Part
from vkdml_lab.gpu.model import Estimate
from vkdml_lab.gpu.sharing import GATES, STORES, WORDS
from vkdml_lab.gpu.steps import LoopStep
from vkdml_lab.suite.devices import GPUS as DEVICES

ONE_ROW = Case("gru", (100, 1, 256, 256))
NAVI21 = replace(GPUS["rx6900xt"], suite="", shim="", environment={"RADV_FORCE_FAMILY": "navi21"})


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    if not INSTALLED.exists():
        pytest.skip(f"RADV is not installed: there is no {INSTALLED}")
    compiler = Compiler(NAVI21, None, tmp_path_factory.mktemp("assembly"))
    yield compiler
    compiler.close()


@pytest.mark.device
@pytest.mark.parametrize(("case", "plan"), [
    (ONE_ROW, PERSISTENT), (Case("gru", (100, 1, 256, 256), two_phases=True), PERSISTENT),
    (Case("lstm", (50, 32, 256, 256), ragged=True), STEPPED), (Case("rnn", (50, 4, 512, 512)), SEQUENCE),
    (Case("gru", (50, 64, 512, 512), element="float16"), DEFAULT)], ids=lambda value: getattr(value, "name", value))
def test_a_few_pipelines(compiler, case, plan):
    """The kernels of a few cases keep all demands, such as no spills and no scratch memory. `make gpu-check` checks all."""
    found = list(measure.parts(compiler, case, {plan: measure.FORCED[plan]}))
    assert all(isinstance(part, Part) for part in found), found
    assert any(part.is_loop for part in found)
    held = list(demands.hold(found))
    assert {one.demand for one in held} >= set(DEMANDS[:4])
    # Times are of what is fetched; an installed Mesa is older
    assert not [one for one in held if not one.is_kept and "times.py" not in one.demand.what]


def _with_plain_gates(spirv):
    """Return the SPIR-V with one decoration less: Volatile of the first buffer, which holds the gates."""
    words, instructions, at = np.frombuffer(spirv, "<u4"), [], 5
    while at < len(words):
        instructions.append(words[at:at + (words[at] >> 16)])
        at += words[at] >> 16
    of = {opcode: [one for one in instructions if one[0] & 0xFFFF == opcode] for opcode in (32, 59, 71)}
    variables = {one[1] for one in of[71] if one[2] == 33 and one[3] == 0}  # OpDecorate Binding 0
    pointers = {one[1] for one in of[59] if one[2] in variables}
    blocks = {one[3] for one in of[32] if one[1] in pointers}
    kept = [one for one in instructions if not (one[0] & 0xFFFF == 72 and one[1] in blocks and one[3] == 21)]  # Volatile
    assert len(kept) == len(instructions) - 1
    return np.concatenate([words[:5], *kept]).tobytes()


@pytest.mark.device
def test_gates_that_are_not_volatile_break_a_demand(compiler, monkeypatch):
    """If the buffer of gates is not volatile, the compiler loads from it after a step's first poll. A demand forbids this."""
    def broken():
        found = measure.parts(compiler, Case("lstm", (100, 1, 128, 128)), {PERSISTENT: measure.FORCED[PERSISTENT]})
        return {one.demand.what for one in demands.hold(found) if not one.is_kept and "times.py" not in one.demand.what}

    assert broken() == set()
    compile_spirv = compiler.compile_spirv
    monkeypatch.setattr(compiler, "_specialized", {})
    monkeypatch.setattr(compiler, "compile_spirv", lambda name, spirv, *others: compile_spirv(
        name, _with_plain_gates(spirv) if "lstm" in name else spirv, *others))
    assert "loads of the gates before the first poll of a step, for a row" in broken()


@pytest.mark.device
@pytest.mark.thorough
def test_operators_without_a_time_loop(compiler):
    """The kernels of operators without a time loop, such as GEMM, compile for each type, and keep all demands."""
    cases = [case for case in CASES.values() if isinstance(case, PlainCase)]
    found = [part for case in cases for part in measure.parts(compiler, case)]
    names = ["elementwise", "arithmetic", "cast", "copy", "gather", "gemm"]
    assert {part.dispatch.kernel for part in found} == {*names, "float64/elementwise", *(f"halves/{name}" for name in names)}
    held = list(demands.hold(found))
    assert {one.demand.what for one in held} >= {"every pipeline compiles", "spills", "bytes of scratch"}
    assert not [one for one in held if not one.is_kept]


@pytest.mark.thorough
@pytest.mark.device
def test_a_driver_that_ends_is_started_again(compiler):
    """Invalid SPIR-V ends the driver's process. The next kernel is compiled in a new process."""
    broken = compiler.compile_spirv("broken", b"no SPIR-V at all", 33, 0)  # more buffers than the program takes
    assert "the driver ended with" in broken.error
    good = compiler.compile(measure.plan(Case("gru", (1, 1, 64, 64)).problem, compiler.info).initialize[0])
    assert not good.error
    assert good.figures["registers"] > 0


# Demands

def part(gpu="rx7900xtx", case=ONE_ROW, plan=PERSISTENT, error="", **figures):
    dispatch = Dispatch("gpu/gru_persistent", {"WORKGROUP": 128}, {}, (), (2, 3, 4))
    return Part(GPUS[gpu], case, plan, dispatch, Pipeline("gpu/gru_persistent", 1.0, error, 32, figures), None, None)


def counted(counts):
    return replace(part(), counts=counts)


@pytest.mark.parametrize(("broken", "what"), [
    (part(spills=1), "spills"), (part(scratch=16), "bytes of scratch"), (part(error="it crashed"), "every pipeline compiles"),
    (part("tgl", plan=DEFAULT, spills=1), "spills"), (part("adreno618", plan=TRIED, spills=1), "spills"),
    (counted({SCRATCH_ACCESSES: 1}), "accesses of scratch"), (counted({ATOMICS: 2}), "atomics for a stored element of 16 bits"),
    (replace(counted({ATOMICS: 3}), gpu=GPUS["adreno618"]), "atomics for one, without 16-bit storage"),
    (counted({WORDS: 0.5}), "loops that poll h past the core's cache, for a phase"),
    (counted({STORES: 0}), "stores of h that other cores see, for a phase"),
    (counted({GATES: 0.5}), "loads of the gates before the first poll of a step, for a row")])
def test_what_breaks_a_demand(broken, what):
    assert [one.demand.what for one in demands.hold([broken]) if not one.is_kept] == [what]
    text, all_kept = check.breaches(demands.hold([broken, part(spills=0)]))
    assert not all_kept
    assert f"\n{what}: at " in text


@pytest.mark.parametrize(("kernel", "waits"), [
    ("gpu/gru_persistent", True), ("gpu/lstm_persistent_coherent", True), ("gpu/gru_stepped", False), ("gpu/gru", False)])
def test_variants_are_counted(kernel, waits):
    """Accesses to the shared state h are counted in kernels whose names contain "_persistent", also with a suffix."""
    one, constants = part(), {"WORKGROUP": 128, "PHASES": 1, "GATES": 3, "ROWS": 1, "COLUMN_GROUPS": 4, "TILE_VECS": 64}
    counted = measure._counts(replace(one, dispatch=replace(one.dispatch, kernel=kernel, constants=constants),
                                      pipeline=replace(one.pipeline, assembly="Assembly\n\ts_endpgm\n")))
    assert (WORDS in counted) == waits


def test_what_is_not_demanded():
    """Spills break no demand in a persistent plan on a small GPU, as users get this plan only by forcing it."""
    assert check.breaches(demands.hold([part("adreno618", spills=7), part(spills=0)]))[1]


SPILLS = Expected("spills", "rx7900xtx", 2, 5, "its compiler has no room")


@pytest.mark.parametrize(("values", "is_kept"), [([5, 1], True), ([6], False), ([1, 1, 1], False), ([], False)])
def test_what_is_expected_to_be_broken(values, is_kept):
    """The exception SPILLS allows up to 5 spills in each of two kernels. If all cases are checked, one of them must need it."""
    held = list(demands.hold([part(spills=value) for value in values] + [part("rtx3090", spills=0), part(spills=0)]))
    text, all_kept = check.breaches(held, [SPILLS], is_whole=True)
    assert all_kept == is_kept
    assert ("Expected, and so no failure:\n\n- spills, rx7900xtx: 2, 5 at worst: its compiler has no room" in text) == is_kept
    assert check.breaches(held, [SPILLS])[1] == (is_kept or not values)
    assert not check.breaches(demands.hold([part("rtx3090", spills=1)]), [SPILLS])[1], "of another GPU"


def test_what_is_expected_is_demanded():
    assert {one.demand for one in EXPECTED} <= {demand.what for demand in DEMANDS}
    assert {one.gpu for one in EXPECTED} <= GPUS.keys()


def test_times_that_are_known():
    """times.txt can be read back. A demand allows a step's estimated time to be 2% above that in times.txt, but not 4%."""
    key = next(iter(times.KNOWN))
    slow, as_known = (replace(part(*key[:1], case=CASES[key[1]], plan=key[2]), step=LoopStep(True, ()), estimate=took(share * times.KNOWN[key]))
                      for share in (1.04, 1.02))
    (demand,) = (one for one in DEMANDS if "times.py" in one.what)
    assert [demand.is_kept(demand.figure(one)) for one in (slow, as_known)] == [False, True]
    read = times._read(times.table([as_known]).strip("`"))
    assert read == {key: pytest.approx(1.02 * times.KNOWN[key], abs=0.01)}


def test_times_are_of_cases_that_are_checked():
    assert {case for _, case, _ in times.KNOWN} <= CASES.keys()
    assert {gpu for gpu, _, _ in times.KNOWN} == GPUS.keys()


def took(microseconds):
    return Estimate(microseconds / 1e6, {}, None, 1, 1, 1)


def test_the_best_plan_counts():
    demand = Demand("share", lambda part: True, lambda part: part.pipeline.figures.get("share"), least=0.5, of_best=True)
    held = [Held(demand, one, one.pipeline.figures["share"]) for one in
            (part(share=0.2), part(share=0.7), part("rtx3090", share=0.3))]
    assert [(one.part.gpu.name, one.value) for one in demands._best(demand, held)] == [("rtx3090", 0.3), ("rx7900xtx", 0.7)]


def test_every_demand_applies_to_a_case():
    """Each demand applies to at least one of the checked cases, on at least one GPU."""
    everywhere = [part(gpu, case, plan) for gpu in GPUS for case in CASES.values() for plan in (DEFAULT, PERSISTENT)]
    for demand in DEMANDS:
        assert any(demand.where(one) for one in everywhere), demand.what


class Compiling:
    """A stand-in for a compiler, which returns the same assembly for every kernel. made: all pipelines so far."""

    def __init__(self, name, row):
        self.gpu, self.info, self.made = GPUS[name], DEVICES[row], {}

    def compile(self, dispatch):
        key = dispatch.kernel, *load(dispatch.kernel).values(dispatch.constants)
        return self.made.setdefault(key, Pipeline(dispatch.kernel, 1000.0, "", 32, {"subgroups": 16}, True, AMD))


def test_what_a_first_call_compiles():
    """measure.first_call counts each pipeline once: as part of the plan, or else of the grid-sync test, or else of tuning."""
    compiler = Compiling("rx7900xtx", "RX 7900 XTX")
    found = measure.first_call(compiler, ONE_ROW)
    assert list(found) == ["its plan", "grid-sync test", "tuning", "all"]
    assert all(found.values())
    assert found["all"] == len(compiler.made) < 30


@pytest.mark.parametrize(("name", "row"), [("rx7900xtx", "RX 7900 XTX"), ("rtx3090", "RTX 3090")])
def test_a_dispatch_takes_what_the_planner_takes_it_to(name, row):
    found = [one for one in measure.parts(Compiling(name, row), ONE_ROW, {STEPPED: measure.FORCED[STEPPED]}) if one.plan == STEPPED]
    stepped, = (one.estimate for one in found if one.is_loop)
    busy = stepped.rounds * max(stepped.limits.values()) / GPUS[name].rates.clock
    assert stepped.seconds == pytest.approx(busy + profile(DEVICES[row]).rates.dispatch)


def test_cases_of_bench_are_checked():
    assert {case.name for case in bench.CASES} <= {name + suffix for name in CASES for suffix in ("", "-streaming")}


def test_a_report(tmp_path):
    rows = [check.row(part(spills=3)), check.row(part(error="it crashed", registers=9))]
    check.write(tmp_path, ["# Head", "text"], rows)
    first, second = csv.DictReader((tmp_path / "gpu-check.csv").read_text().splitlines())
    assert (first["GPU"], first["spills"], first["groups"], first["failed"]) == ("rx7900xtx", "3", "24", "")
    assert (second["registers"], second["failed"]) == ("9", "it crashed")


@pytest.mark.parametrize("spills", [0, 1])
def test_the_exit_code_and_the_whole_report(tmp_path, monkeypatch, spills):
    checked = check.Checked([part(spills=spills)], ["one that is refused"], 1, 0.5, 1.0, [{"GPU": "rx7900xtx", "case": "one", "all": 0.25}])
    monkeypatch.setattr(check, "EXPECTED", [])
    monkeypatch.setattr(check, "check_all", lambda names, *others: dict.fromkeys(names, checked))
    monkeypatch.setattr("sys.argv", ["check", "--gpus", "rx7900xtx", "--output", str(tmp_path)])
    assert check.main() == spills
    report = (tmp_path / "gpu-check.md").read_text()
    assert "one that is refused" in report


# Drivers' answers

def test_figures_of_a_driver(tmp_path):
    """The last executable that a driver lists counts. Figures that its statistics lack are read from its texts."""
    for name, text in (("0.0", "of the first"), ("1.9", "NIR\nshared_size: 512\n"), ("1.10", "Assembly\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    answer = {"ms": 2.0, "result": 0, "executables": [
        {"name": "SIMD8", "subgroup_size": 8, "statistics": {}},
        {"name": "SIMD16", "subgroup_size": 16, "statistics": {"Spills": 2, "Max live registers": 100, "Other": 5}}]}
    made = pipeline("kernel", answer, tmp_path)
    assert made == Pipeline("kernel", 2.0, "", 16, {"registers": 100, "spills": 2, "shared": 512}, False, "Assembly\n")
    assert "-3" in pipeline("kernel", answer | {"result": -3}, tmp_path).error


def test_options_on_the_command_line():
    assert [check.option(text) for text in ("schedule=stepped", "parts=8", "resident=False")] == [
        ("schedule", "stepped"), ("parts", 8), ("resident", False)]


# Downloads

def test_what_is_there_is_not_fetched_again(tmp_path):
    (tmp_path / "done").touch()
    assert subprocess.run([ROOT / "lab/vkdml_lab/gpu/fetch", tmp_path]).returncode == 0
    assert [path.name for path in Path(tmp_path).iterdir()] == ["done"]
