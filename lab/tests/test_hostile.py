"""Tests the hostile device (vkdml_lab/hostile), which runs kernels in all ways that Vulkan allows: it must see mistakes."""

import random
from types import SimpleNamespace

import numpy as np
import pytest

from tools import compile_shaders
from vkdml.operators import activations, element_types, plain_problem
from vkdml.planning.families.gpu_loop import _UNUSED_SHARED_BYTES
from vkdml.planning.options import SCHEDULES, Options
from vkdml.planning.plain import plan
from vkdml.planning.tiling import Target
from vkdml_lab.hostile import controls, modes, tasks
from vkdml_lab.hostile.__main__ import main
from vkdml_lab.hostile.arithmetic import Arithmetic
from vkdml_lab.hostile.machine import Behaviour
from vkdml_lab.hostile.modules import Module, Storage
from vkdml_lab.hostile.ordering import ACQUIRES, BUFFERS
from vkdml_lab.hostile.weak import Clock, WeakMemory
from vkdml_lab.internals import load_kernel, plan_of, tilings
from vkdml_lab.suite.devices import make_problem
from vkdml_lab.suite.support import CELLS, tensor

RUNS = [(mode, seed) for seed in range(40) for mode in modes.MODES]


@pytest.mark.family("problems of each mode", first=6)
@pytest.mark.parametrize(("mode", "seed"), RUNS)
def test_kernels_are_right_on_a_hostile_device(mode, seed):
    task, result = modes.try_once(mode, seed)
    assert not result.wrong, task.name


@pytest.mark.family("types", first=1)
@pytest.mark.parametrize(("element", "rounding"), [(element_types.FLOAT32, 2.0**-24), (element_types.FLOAT64, 2.0**-48)])
def test_activations_whatever_a_driver_makes_of_nan(element, rounding):
    """Activations of NaN are NaN, even if a compiler assumes that no number is NaN. Others are right within four roundings."""
    x = np.concatenate([np.linspace(-6, 6, 601), np.geomspace(1e-6, 1, 60), -np.geomspace(1e-6, 1, 60)]).astype(element.name)
    described = tensor(x.size, data_type=element.data_type)
    for row in (row for row in activations.BY_DESC.values() if row.has_pairs or not element.pairs):
        problem = plain_problem.elementwise(row.desc(described, described), element)
        task = tasks.Task("", problem, plan(problem, tasks.SMALLEST), {"InputTensor": x.view(np.uint8)})
        of_nan, found = (one.elements(modes.run(one, Behaviour(arithmetic=of), {})[1].outputs)["OutputTensor"]
                         for one, of in ((task.of_nan(0), Arithmetic(folds=True)), (task, Arithmetic())))
        assert np.isnan(of_nan).all(), row
        assert (np.abs(found - problem.function(x.astype(np.float64))) <= 4 * rounding * np.maximum(1, np.abs(x))).all(), row


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_plans_count_the_shared_memory_that_kernels_have(schedule):
    """A plan's shared memory is what its kernel declares, with a difference of up to 48 bytes for small or unused arrays."""
    seen = set()
    for seed in range(12):
        draw = random.Random(seed)
        problem = make_problem(2, *draw.choices((1, 5, 20, 70), k=3), cell=draw.choice(CELLS), element=draw.choice(element_types.SINGLE))
        target = Target(problem, draw.choice(list(tasks.DEVICES.values())), Options(schedule=schedule, lanes=False, fused=False))
        tiling = draw.choice(tilings(target))
        for dispatch in plan_of(target, tiling).execute:
            module = Module(load_kernel(dispatch.kernel).specialize(dispatch.constants))
            declared = sum(4 * kind.element.words for kind, storage in module.variables.values() if storage == Storage.Workgroup)
            part, unused = (tiling.projection, 0) if "projection" in dispatch.kernel else (tiling.loop, _UNUSED_SHARED_BYTES)
            if declared:
                assert 0 <= part.shared_bytes + unused - declared <= 48, (seed, dispatch.kernel)
                seen.add(type(part))
    assert len(seen) == 2


def test_weak_memory():
    """Other invocations may load a word's old value after a store, until they acquire the store (in Vulkan's sense)."""
    clock, places = Clock(2, seed=0), range(200)
    memory = WeakMemory(np.zeros(len(places), np.uint32), clock)
    writer, reader = (SimpleNamespace(lanes=1, invocations=np.array([number])) for number in range(2))

    def found(by, looks_anew=True):
        return [int(memory.load(by, np.array([at]), 1, None, looks_anew)[0][0]) for at in places]

    def store(value):
        for at in places:
            memory.store(writer, np.array([at]), (value,), None)

    store(1)
    assert (set(found(writer)), set(found(reader))) == ({1}, {0})
    clock.step()
    assert 0 < sum(found(reader)) < 60
    clock.step()
    clock.release()
    assert 100 < sum(found(reader)) < 200
    clock.fence(reader.invocations, BUFFERS | ACQUIRES)
    assert set(found(reader, False)) == {1}
    store(2)
    clock.step()
    clock.release()
    assert set(found(reader, False)) == {1}
    clock.fence(reader.invocations, BUFFERS | ACQUIRES)
    assert set(found(reader, False)) == {2}


@pytest.mark.family("what each mode draws", first=0)
@pytest.mark.parametrize("mode", modes.MODES)
def test_every_kernel_is_drawn(mode):
    left = {name for name in compile_shaders.kernels() if not name.startswith("cpu/")}
    if mode == "weak":
        left = {name for name in left if name.endswith(("_persistent", "_persistent_coherent"))}
    for seed in range(3000):
        plan = modes.draw(mode, seed).plan
        left -= {dispatch.kernel for dispatch in plan.initialize + plan.execute}
        if not left:
            break
    assert not left


def test_a_dispatch_keeps_the_state_without_a_race():
    """Dispatches that load and store the same state have no race: the same invocation must load and store a word."""
    task = tasks.training(277)
    assert len({dispatch.push.get("first_step") for dispatch in task.plan.execute if "State" in dispatch.buffers}) > 1
    assert not modes.watched(277, task, {}).wrong


@pytest.mark.family("planted mistakes", first=2)
@pytest.mark.parametrize(("name", "mode"), controls.ALL)
def test_a_planted_mistake_is_seen(name, mode):
    assert controls.ALL[name, mode]()


def test_what_is_wrong_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(controls, "ALL", {("seen", "weak"): lambda: "race: x", ("not seen", "weak"): lambda: ""})
    wrong = modes.Mode(lambda *_: modes.Result({"gpu/gru"}, ["other bits"]), (modes.tasks.plain,))
    monkeypatch.setattr(modes, "MODES", dict.fromkeys(modes.MODES, wrong))
    assert main(["--minutes", "0.001", "--seed", "4", "--output", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "weak does not see: not seen" in said
    assert "watched 4, arithmetic in float16: other bits" in said
    assert said.strip() == (tmp_path / "hostile.md").read_text().strip()
    assert main(["--only", "watched", "4"]) == 1
    assert "other bits" in capsys.readouterr().out
