"""Executions of several operators, some of which give up: one submission if none does, and right numbers whatever happens."""

import gc
import itertools

import numpy as np
import pytest

import vkdml
from vkdml.engine.execution import Execution, Node
from vkdml.engine.trust import trial
from vkdml.engine.trust.tuner import Tuner
from vkdml.engine.vulkan import spirv
from vkdml.operators import cells, reference
from vkdml.operators.problem import from_desc
from vkdml.planning.options import PERSISTENT, Options
from vkdml.planning.size_classes import Sizes
from vkdml_lab.suite.devices import make_problem
from vkdml_lab.suite.support import make_desc, random_arrays, tensor

T, B, H = 4, 2, 8
ONE_PART = Options(lanes=False, schedule=PERSISTENT, workgroup=256)  # so that nothing depends on what runs at once
LAYERS = {"rnn": cells.RNN, "gru": cells.GRU, "lstm": cells.LSTM}
STATES = {"HiddenInitTensor": "h", "CellMemInitTensor": "c", "OutputSingleTensor": "h'", "OutputCellSingleTensor": "c'"}
SOME = [(), ("rnn",), ("gru",), ("lstm",), ("rnn", "lstm"), tuple(LAYERS)]


@pytest.fixture(scope="module")
def in_vain(tmp_path_factory):
    """Kernels in which all waits are in vain, so that they give up and go on with whatever is there, by name."""
    compiler = pytest.importorskip("tools.compile_shaders", reason="the sources of the shaders are not in the wheel")
    made = compiler.mistaken(tmp_path_factory.mktemp("shaders"), "gpu/persistent.glsl", "is_there = max(",
                             "atomicOr(gave_up, 2); is_there = false && max(", {f"gpu/{name}_persistent" for name in LAYERS}.__contains__)
    return {name: spirv.of_spirv(name, code) for name, code in made.items()}


@pytest.fixture
def giving_up(in_vain, monkeypatch):
    """giving_up(cells): their kernels give up."""
    right = spirv.load

    def make(names):
        wrong = {f"gpu/{name}_persistent" for name in names}
        monkeypatch.setattr(spirv, "load", lambda name: in_vain[name] if name in wrong else right(name))
    return make


class Stack:
    """An RNN, a GRU and an LSTM, each of which reads the outputs of the one before it. Their states go on from run to run, or are left out.

    computed: whether an operator computes the GRU's recurrent weights.
    """

    def __init__(self, device, states=False, computed=False):
        rng, self.descs, self.values, nodes = np.random.default_rng(0), {}, {}, []
        left_out = dict.fromkeys(["SequenceLengthsTensor", "PeepholeTensor", *([] if states else STATES)])
        for place, (name, cell) in enumerate(LAYERS.items()):
            changes = {field: None for field in left_out if field in cell.tensors}
            if place:  # outputs of the layer before have the directions behind the steps
                changes["InputTensor"] = tensor(1, T, B, H)
            self.descs[name] = desc = make_desc(cell, T, B, H, H, **changes)
            problem = from_desc(desc)
            names = {field: f"{name} {STATES.get(field, field)}" for field in (*problem.inputs, *problem.outputs) if problem.has(field)}
            names["InputTensor"], names["OutputSequenceTensor"] = f"y{place}", f"y{place + 1}"
            self.values |= {names[field]: array for field, array in random_arrays(desc, rng).items()
                            if field not in ("InputTensor", *STATES)}
            nodes.append(Node(device.create_operator(desc).problem, names))
        self.carried = {name: name[:-1] for node in nodes for name in node.names.values() if name.endswith("'")}
        self.state = self.given = {name: np.zeros((1, 1, B, H), np.float32) for name in self.carried.values()}
        if computed:
            recurrence = tensor(1, 1, 3 * H, H)
            relu = vkdml.DML_ACTIVATION_RELU_OPERATOR_DESC(InputTensor=recurrence, OutputTensor=recurrence)
            self.values["r"] = self.values.pop("gru RecurrenceTensor")
            nodes.insert(0, Node(device.create_operator(relu).problem, {"InputTensor": "r", "OutputTensor": "gru RecurrenceTensor"}))
        self.results = {"y3": ((T, 1, B, H), np.float32), **dict.fromkeys(self.carried, ((1, 1, B, H), np.float32))}
        self.execution = Execution(device.gpu, device.share, nodes, self.results, ONE_PART)
        self.x = rng.standard_normal((T, 1, B, H)).astype(np.float32)

    def run(self):
        results = self.execution.run(self.values | self.given | {"y0": self.x}, self.results)
        self.given = {self.carried[name]: array for name, array in results.items() if name in self.carried}
        return results["y3"]

    def expected(self):
        """The outputs, which also leaves the states that the next run starts with."""
        y = self.x
        for name, desc in self.descs.items():
            values = self.values | self.state
            if name == "gru" and "r" in values:
                values["gru RecurrenceTensor"] = np.maximum(values["r"], 0)
            problem = from_desc(desc)
            inputs = {field: values[f"{name} {STATES.get(field, field)}"] for field in problem.inputs
                      if problem.has(field) and field != "InputTensor"}
            results = reference.run(problem, inputs | {"InputTensor": y.reshape(1, T, B, H)})
            y = results["OutputSequenceTensor"]
            self.state |= {f"{name} {STATES[field][:-1]}": array for field, array in results.items() if f"{name} {STATES.get(field)}" in self.carried}
        return y

    def check(self):
        np.testing.assert_allclose(self.run(), self.expected(), atol=1e-5)


@pytest.mark.family("outcomes with each memory")
@pytest.mark.parametrize("names", SOME, ids=" ".join)
def test_a_stack(device, memory, giving_up, submitted, names):
    giving_up(names)
    stack = Stack(device)
    for _ in range(2):
        stack.check()
    submitted.clear()
    stack.run()
    clearing = len(names) if memory == "device memory" else 0
    assert len(submitted) == (2 + clearing if names else 1)


def test_it_is_the_fallback_that_is_right(device, giving_up, monkeypatch):
    giving_up(["gru"])
    monkeypatch.setattr("vkdml.engine.commands._Attempt.gave_up", lambda attempt: False)
    with pytest.raises(AssertionError, match="Not equal"):
        Stack(device).check()


@pytest.mark.family("outcomes with each memory")
@pytest.mark.parametrize("names", SOME, ids=" ".join)
def test_carried_states_are_read_once(device, memory, giving_up, names):
    giving_up(names)
    stack = Stack(device, states=True)
    for seed in range(4):
        stack.x = np.random.default_rng(seed).standard_normal(stack.x.shape).astype(np.float32)
        stack.check()


@pytest.mark.family("outcomes with each memory")
@pytest.mark.parametrize("names", SOME, ids=" ".join)
def test_weights_that_are_packed_in_the_same_submission(device, memory, giving_up, names):
    giving_up(names)
    stack = Stack(device, computed=True)
    for scale in (1, -1):
        stack.values["r"] *= scale
        stack.check()


@pytest.mark.family("outcomes with each memory")
@pytest.mark.parametrize("names", SOME, ids=" ".join)
def test_checked(verified, memory, giving_up, checks, names):
    giving_up(names)
    stack = Stack(verified, states=True)
    for _ in range(2):
        stack.check()
    assert len(checks) == 2 * len(LAYERS)


@pytest.mark.family("each outcome with each memory")
@pytest.mark.parametrize("names", [(), ("gru",), tuple(LAYERS)], ids=" ".join)
@pytest.mark.parametrize("is_recorded", [True, False], ids=["warm", "to be recorded"])
def test_each_call_of_the_driver_may_fail(device, memory, giving_up, failing_call, is_recorded, names):
    """It ends in an error, and no memory is lost."""
    giving_up(names)
    stack = Stack(device, states=True)
    stack.check()
    stack.check()
    gc.collect()
    used = device.gpu.memory.used
    for place in itertools.count(1):
        if not is_recorded:
            stack.execution._let_go()
        failing_call.left = place
        try:
            found = stack.run()
        except vkdml.DriverError:
            found = stack.run()
        np.testing.assert_allclose(found, stack.expected(), atol=1e-5)
        if failing_call.left > 0:  # nothing failed
            break
    failing_call.left = 0
    stack.check()
    gc.collect()
    assert device.gpu.memory.used == used
    assert place > (1 if is_recorded else 20)


@pytest.mark.family("each cell with each outcome")
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("gives_up", [False, True], ids=["it works", "it gives up"])
def test_coherent_loads_are_tried_where_volatile_ones_give_up(tuned, giving_up, monkeypatch, gives_up, name):
    """By the grid-sync test of one part, in which nothing depends on what runs at once."""
    monkeypatch.setattr(trial, "_HIDDEN", (H,))
    monkeypatch.setattr(trial, "_RUNS", {Sizes(9, 1): 2, Sizes(5, 20): 2})
    giving_up([name] * gives_up)
    plan = Tuner(tuned.gpu).plan(make_problem(12, 1, 16, 64, cell=LAYERS[name]), Options(), "off")
    assert f"gpu/{name}_persistent{'_coherent' * gives_up}" in {dispatch.kernel for dispatch in plan.execute}
