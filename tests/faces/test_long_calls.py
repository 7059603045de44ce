"""Long calls on a discrete GPU run in chunks of steps, which give the bits of one run of all steps."""

import gc
import itertools
from dataclasses import replace
from random import Random

import numpy as np
import pytest

import vkdml
from tests.engine import test_giving_up
from tests.engine.test_giving_up import ONE_PART
from tests.engine.test_signals import Interrupt
from tests.threads import together
from vkdml.engine.commands import _Attempt
from vkdml.engine.vulkan.gpu import Submission
from vkdml.faces import sessions
from vkdml.operators import reference
from vkdml_lab.suite.support import OTHER_SCHEDULES

in_vain, giving_up = test_giving_up.in_vain, test_giving_up.giving_up  # fixtures
LAYERS = {"gru": (vkdml.GRU, 3), "lstm": (vkdml.LSTM, 4), "rnn": (vkdml.RNN, 1)}


@pytest.fixture
def runs(device, monkeypatch):
    """The submissions of a device that looks discrete; calls with 1300 bytes of x and y run in chunks of about so much."""
    monkeypatch.setattr(device.gpu, "host_memory", False)
    monkeypatch.setattr(sessions, "_CHUNK_BYTES", 1300)
    found, run = [], Submission.run
    monkeypatch.setattr(Submission, "run", lambda submission, *meanwhile: (found.append(bool(meanwhile and meanwhile[0])), run(submission, *meanwhile)))
    return found


def layer(cell, device, seed=0, size=3, hidden=4, **attributes):
    made, gates = LAYERS[cell]
    rng, directions = np.random.default_rng(seed), 1 + (attributes.get("direction") == "bidirectional")
    arrays = [rng.standard_normal((directions, gates * hidden, n), np.float32) * np.float32(0.3) for n in (size, hidden)]
    return made(*arrays, device=device, **attributes)


def inputs(cell, steps, batch, size=3, hidden=4, seed=1, layout=0, states=False, lengths=False):
    """The arguments of a layer; some rows are empty, and some end with a chunk."""
    rng = np.random.default_rng(seed)
    given = {"x": rng.standard_normal((steps, batch, size), np.float32)}
    if states:
        given |= {name: rng.standard_normal((1, batch, hidden), np.float32) for name in ("initial_h", "initial_c")[:1 + (cell == "lstm")]}
    if layout:
        given = {name: array.swapaxes(0, 1).copy() for name, array in given.items()}
    if lengths:
        given["sequence_lens"] = np.array([0, steps, 1, steps // 2, *rng.integers(0, steps + 1, batch)], np.int32)[:batch]
    return given


def check(layer, given, runs, monkeypatch, chunks):
    """Compare a call in chunks with one run, twice, as commands and buffers are used again."""
    expected = None
    for most in (1, sessions._MOST_CHUNKS):
        with monkeypatch.context() as patched:
            patched.setattr(sessions, "_MOST_CHUNKS", most)
            layer._session = sessions.Session(weights=layer._session._weights)
            for _ in range(2):
                runs.clear()
                found = layer(**given)
                assert runs.count(True) == (0 if most == 1 else chunks)
                expected = expected or found
                for one, other in zip(found, expected):
                    np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))


@pytest.mark.family("each cell with each input")
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("optional", [(), ("states",), ("lengths",), ("states", "lengths")], ids=" and ".join)
@pytest.mark.parametrize("cell", LAYERS)
def test_same_bits(device, runs, monkeypatch, cell, optional, direction, layout):
    """Of a number of steps that is no multiple of the chunks'."""
    given = inputs(cell, 83, 7, layout=layout, **dict.fromkeys(optional, True))
    check(layer(cell, device, direction=direction, layout=layout), given, runs, monkeypatch, 10)


@pytest.mark.parametrize(("steps", "batch", "chunks"), [(2, 200, 2), (3, 200, 3), (10, 40, 9), (11, 60, 10), (20, 30, 10)])
def test_chunks_of_any_size(device, runs, monkeypatch, steps, batch, chunks):
    """Of one step; with a last one that is shorter; of arrays with gaps."""
    given = inputs("lstm", steps, batch, states=True)
    check(layer("lstm", device), given, runs, monkeypatch, chunks)
    for strided in ({name: np.repeat(array, 2, 1)[:, ::2] for name, array in given.items()},
                    {name: np.asfortranarray(array) for name, array in given.items()}):
        check(layer("lstm", device), strided, runs, monkeypatch, chunks)


def test_what_is_one_run(device, runs, monkeypatch):
    """Short calls, both directions, types of which a state is rounded, runs that may be checked, and all where nothing is copied."""
    x = inputs("gru", 83, 7)
    calls = [(layer("gru", device), inputs("gru", 4, 7)), (layer("gru", device, direction="bidirectional"), x)]
    for dtype in ("float16", "float64"):
        calls.append((vkdml.GRU(*(array.astype(dtype) for array in layer("gru", device)._weights.values() if array is not None), device=device),
                      {"x": x["x"].astype(dtype)}))
    with vkdml.Device(verify=0.5) as checked:
        calls.append((layer("gru", checked), x))
        for made, given in calls:
            made(**given)
        monkeypatch.setattr(device.gpu, "host_memory", True)
        layer("gru", device)(**x)
    assert True not in runs
    assert len(runs) >= len(calls)


def test_weights_that_change(device, runs):
    """The function compares them at each call."""
    x, (w, r, _) = inputs("gru", 83, 7)["x"], layer("gru", device)._weights.values()
    for scale in (1, -1, 1):
        y = vkdml.gru(x, w * np.float32(scale), r, device=device)[0]
        np.testing.assert_allclose(y, reference.gru(x, w * scale, r)[0], atol=1e-5)
    assert runs.count(True) == 30


def test_warmed_up_calls_compile_and_record_nothing(device, runs, monkeypatch):
    made = layer("rnn", device, hidden=9)
    made.warm_up(T=83, B=7)
    monkeypatch.setattr(type(device.gpu), "create_kernel", lambda *_, **__: pytest.fail("made something"))
    made(**inputs("rnn", 83, 7))
    assert runs.count(True) == 10


@pytest.mark.family("cells", first=1)
@pytest.mark.parametrize("cell", LAYERS)
def test_all_chunks_give_up(device, runs, giving_up, cell):
    """Each has its own fallback, and the one after it goes on from that."""
    given = inputs(cell, 43, 7, states=True, lengths=True)
    expected = layer(cell, device, options=ONE_PART)(**given)
    giving_up([cell])
    for found in (layer(cell, device, options=ONE_PART)(**given) for _ in range(2)):
        for one, other in zip(found, expected):
            np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))


def spoiled(made, attempt):
    """Overwrite what an attempt has computed, as one that gave up would have. Returns that it gave up."""
    for call in made._session._calls.values():
        for execution in {call.execution, *(execution for execution, _ in call.chunks)}:
            for turn in execution._turns.get(False, ()):
                for name in call.results if attempt in turn.commands._attempts else ():
                    turn.buffers[name]._mapped[:] = 0xFF
    return True


def test_one_chunk_gives_up(device, runs, monkeypatch):
    """Whichever it is, what it wrote is not used, and what the host copied meanwhile stays."""
    made, given, really, left = layer("lstm", device, options=ONE_PART), inputs("lstm", 83, 7, states=True), _Attempt.gave_up, 0
    expected = made(**given)

    def gave_up(attempt):
        nonlocal left
        left -= 1
        if left == 0:
            return spoiled(made, attempt)
        return really(attempt)

    monkeypatch.setattr(_Attempt, "gave_up", gave_up)
    for place in range(1, 11):  # three chunks of 9 steps, seven of 8
        left = place
        for one, other in zip(made(**given), expected):
            np.testing.assert_array_equal(one, other)
        assert left == place - 10


@pytest.mark.family("every other call of those that record", first=2)
@pytest.mark.parametrize(("is_recorded", "first", "step"), [(True, 1, 1), (False, 1, 2), (False, 2, 2)])
def test_each_call_of_the_driver_may_fail(device, runs, failing_call, is_recorded, first, step):
    """It ends in an error, and no memory is lost."""
    made, given = layer("lstm", device, options=ONE_PART), inputs("lstm", 23, 7, states=True)
    expected = made(**given)

    def check():
        for one, other in zip(made(**given), expected):
            np.testing.assert_array_equal(one, other)

    gc.collect()
    used = device.gpu.memory.used
    for place in itertools.count(first, step):
        if not is_recorded:
            made._session = sessions.Session(weights=made._session._weights)
        failing_call.left = place
        try:
            check()
        except vkdml.DriverError:
            check()
        if failing_call.left > 0:  # nothing failed
            break
    gc.collect()
    assert device.gpu.memory.used <= used
    assert place > (8 if is_recorded else 40)  # two calls a chunk


@pytest.mark.family("errors alike, at random places", first=1)
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, vkdml.DriverError])
@pytest.mark.parametrize("seed", range(3))
def test_a_handler_raises_at_any_place(device, runs, error, seed):
    """It comes out as it is, also from between the copies while a chunk runs; later calls are right."""
    made, given = layer("gru", device), inputs("gru", 83, 7, lengths=True)
    expected, rng = made(**given), Random(seed)
    places = Interrupt(0, None).during(lambda: made(**given))
    running = 0

    def handler():
        nonlocal running
        running += device.gpu.driver.running is not None
        raise raised

    for _ in range(7):
        raised = error("of a handler")
        try:
            Interrupt(rng.randint(1, places), handler).during(lambda: made(**given))
        except error as found:
            if found is not raised:
                raise
        for one, other in zip(made(**given), expected):
            np.testing.assert_array_equal(one, other)
    assert running


def test_threads(device, runs):
    """Several call one layer, and layers of their own, at once."""
    shared, wrong = layer("gru", device), []
    sizes = [(83, 7), (40, 11), (83, 7), (61, 9)]
    expected = [shared(**inputs("gru", *size, seed=seed))[0] for seed, size in enumerate(sizes)]

    def call(seed):
        own = layer("gru", device)
        for made in [shared, own] * 10:
            found = made(**inputs("gru", *sizes[seed], seed=seed))[0]
            wrong.extend([seed] * (not np.array_equal(found, expected[seed])))

    together(len(sizes), call)
    assert not wrong


def test_little_memory(device, runs, monkeypatch):
    """A limit that has room for the chunks, and not for all steps at once."""
    made, given = layer("gru", device), inputs("gru", 2000, 7)
    expected = made(**given)[0]
    device.gpu.store.clear()
    gc.collect()
    monkeypatch.setattr(device.gpu.memory, "limit", device.gpu.memory.used + 3 * expected.nbytes // 2)
    for _ in range(2):
        np.testing.assert_array_equal(made(**given)[0], expected)
    monkeypatch.setattr(sessions, "_MOST_CHUNKS", 1)
    with pytest.raises(vkdml.InvalidArgumentError, match="memory"):
        layer("gru", device)(**given)


@pytest.mark.family("calls", first=3)
@pytest.mark.parametrize("seed", [1, 6, 83, *(seed for seed in range(100) if seed not in (1, 6, 83))])  # the first have each value of each draw
def test_random_calls(device, runs, monkeypatch, seed):
    """By each schedule, with kernels for GPUs: those for CPUs may sum in another order for another T. In calls with persistent parts, chunks give up at random."""
    draw = Random(seed)
    cell, name = draw.choice(list(LAYERS)), draw.choice(list(OTHER_SCHEDULES))
    steps, batch, size, hidden, layout = draw.randint(2, 30), draw.randint(1, 12), draw.randint(1, 20), draw.randint(1, 40), draw.randint(0, 1)
    made = layer(cell, device, seed, size, hidden, direction=draw.choice(["forward", "reverse"]), layout=layout,
                 options=replace(OTHER_SCHEDULES[name], lanes=False),
                 clip=draw.choice([None, 0.5]))
    given = inputs(cell, steps, batch, size, hidden, seed, layout, draw.randint(0, 1), draw.randint(0, 1))
    chunks = draw.randint(2, min(steps, 10))
    monkeypatch.setattr(sessions, "_CHUNK_BYTES", 1)
    gave_up, share = _Attempt.gave_up, draw.choice([0, 0.1, 0.5])
    monkeypatch.setattr(_Attempt, "gave_up", lambda attempt: spoiled(made, attempt) if draw.random() < share else gave_up(attempt))
    with monkeypatch.context() as patched:
        patched.setattr(sessions, "_MOST_CHUNKS", chunks)
        check(made, given, runs, patched, chunks)
