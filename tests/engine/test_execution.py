"""Operators that hand tensors to each other on the device."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import vkdml
from tests.engine.ready import as_ours
from vkdml.engine import weights
from vkdml.engine.compiled import Share
from vkdml.engine.execution import Execution, Kept, Node
from vkdml.engine.vulkan import gpu as low_level
from vkdml.engine.vulkan.memory import DeviceMemory
from vkdml.engine.vulkan.store import Recent
from vkdml.engine.weights import Contents
from vkdml.operators import reference
from vkdml_lab.suite.support import tensor

T, B, I, H = 4, 2, 3, 5


def rnn_node(device, names, inputs):
    desc = vkdml.DML_RNN_OPERATOR_DESC(
        InputTensor=tensor(1, T, B, inputs), WeightTensor=tensor(1, 1, H, inputs), RecurrenceTensor=tensor(1, 1, H, H),
        OutputSequenceTensor=tensor(T, 1, B, H), ActivationDescs=[vkdml.DML_ACTIVATION_TANH_OPERATOR_DESC()],
        Direction=vkdml.DML_RECURRENT_NETWORK_DIRECTION.FORWARD)
    fields = ("InputTensor", "WeightTensor", "RecurrenceTensor", "OutputSequenceTensor")
    return Node(device.create_operator(desc).problem, dict(zip(fields, names)))


def relu_node(device, sizes, names):
    desc = vkdml.DML_ACTIVATION_RELU_OPERATOR_DESC(InputTensor=tensor(*sizes), OutputTensor=tensor(*sizes))
    return Node(device.create_operator(desc).problem, dict(zip(("InputTensor", "OutputTensor"), names)))


@pytest.fixture
def values():
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(np.float32)
            for name, shape in {"x": (T, B, I), "w0": (1, H, I), "r0": (1, H, H), "w1": (1, H, H), "r1": (1, H, H)}.items()}


def run(network, values, **marks):
    return network.run(values, {"y": ((T, 1, B, H), np.float32)}, marks=marks)["y"]


def two_layers(values):
    h = reference.rnn(values["x"], values["w0"], values["r0"])[0]
    return reference.rnn(h[:, 0], values["w1"], values["r1"])[0]


def test_a_node_reads_what_another_made(device, values):
    chain = Execution(device.gpu, device.share, [rnn_node(device, ("x", "w0", "r0", "h"), I), rnn_node(device, ("h", "w1", "r1", "y"), H)], ["y"])
    np.testing.assert_allclose(run(chain, values), two_layers(values), atol=1e-5)
    values["x"] = values["x"] * 2
    values["r1"][0, 0] = 0.5  # in place: seen, as the array is not read-only
    np.testing.assert_allclose(run(chain, values), two_layers(values), atol=1e-5)


def test_weights_that_a_node_computes_are_packed_each_time(device, values):
    chain = Execution(device.gpu, device.share, [relu_node(device, (1, 1, H, I), ("w", "w0")), rnn_node(device, ("x", "w0", "r0", "y"), I)], ["y"])
    for scale in (1, -1):
        values["w"] = values["w0"] * np.float32(scale)
        expected = reference.rnn(values["x"], np.maximum(values["w"], 0), values["r0"])[0]
        np.testing.assert_allclose(run(chain, values), expected, atol=1e-5)


@pytest.mark.parametrize("kept", [("w0", "r0"), ("w0",), ("r0",)])
def test_weights_that_are_kept_are_packed_each_time(device, values, kept, packings):
    """Once any of a node's weights is kept. They are neither copied nor compared, and no run may leave them out."""
    single = Execution(device.gpu, Share(0.5), [rnn_node(device, ("x", "w0", "r0", "y"), I)], ["y"], ways={name: Kept(values[name].nbytes) for name in kept})
    for scale in (1, -1, -1, 0.5):
        values["w0"] *= np.float32(scale)
        values["r0"] *= np.float32(scale)
        marks = {name: object() for name in kept}
        np.testing.assert_allclose(run(single, values, **marks), reference.rnn(values["x"], values["w0"], values["r0"])[0], atol=1e-5)
    with pytest.raises(vkdml.InvalidArgumentError, match="w0: found no array; expected 60 bytes"):
        run(single, {name: array for name, array in values.items() if name != "w0"}, **marks)
    assert (single.weight_names, packings) == (set(), [])


def rectifiers(device, kept):
    """Two executions that are given one buffer. Each computes max(w, 0)."""
    return [Execution(device.gpu, device.share, [relu_node(device, (1, 1, H, I), ("w", "y"))], ["y"], ways={"w": kept}) for _ in "ab"]


def relu(execution, array, mark):
    return execution.run({"w": array}, {"y": (array.shape, np.float32)}, marks={"w": mark})["y"]


def test_what_is_kept_is_copied_once_for_all_executions(device, values, uploads):
    one, other = rectifiers(device, Kept(4 * H * I))
    w, mark = values["w0"], object()
    for execution in (one, other, one):
        np.testing.assert_array_equal(relu(execution, w, mark), np.maximum(w, 0))
    assert len(uploads) == 1
    np.testing.assert_array_equal(relu(other, -w, mark), np.maximum(w, 0))  # the mark says that it is the same
    for sign, again in ((-1, object()), (1, mark)):  # another one came between
        np.testing.assert_array_equal(relu(other, sign * w, again), np.maximum(sign * w, 0))
    assert len(uploads) == 3
    np.testing.assert_array_equal(relu(rectifiers(device, Kept(4 * H * I))[0], -w, mark), np.maximum(-w, 0))  # in a buffer of its own


@pytest.mark.parametrize("share", [0, 1])
@pytest.mark.parametrize("way", [{"w": Kept(4 * 256)}, {}])
def test_inputs_that_are_parts_of_another(device, way, share):
    """From some byte on, of what is kept and of what each run passes; also where results are checked."""
    w = np.random.default_rng(1).standard_normal(256).astype(np.float32)
    nodes = [relu_node(device, (1, 1, H, I), names) for names in (("part", "y"), ("w", "z"))]
    parted = Execution(device.gpu, Share(share), nodes, ["y", "z"], ways=way, parts={"part": ("w", 256)})
    given = w if way else w[:64 + H * I]
    found = parted.run({"w": given}, dict.fromkeys("yz", ((H * I,), np.float32)), marks={"w": w})
    for name, first in (("y", 64), ("z", 0)):
        np.testing.assert_array_equal(found[name], np.maximum(w[first:first + H * I], 0))
    with pytest.raises(vkdml.InvalidArgumentError, match=f"w: found {4 * (63 + H * I)} bytes; expected {4 * (64 + H * I)} bytes"):
        parted.run({"w": w[:63 + H * I]}, {}, marks={"w": w})


def test_what_is_kept_is_copied_again_after_the_store_dropped_it(device, values, uploads):
    one, other = rectifiers(device, Kept(4 * H * I))
    w, mark = values["w0"], object()
    relu(one, w, mark)
    with device.gpu.lock:
        device.gpu.store.drop_memory(lambda: False)
    np.testing.assert_array_equal(relu(other, w, mark), np.maximum(w, 0))
    assert len(uploads) == 2


def test_what_is_kept_is_copied_again_after_a_copy_failed(device, values, monkeypatch):
    """The buffer may hold any part of it: also for the array that it held before."""
    one, other = rectifiers(device, Kept(4 * H * I))
    w, mark, new, upload = values["w0"], object(), object(), DeviceMemory.upload
    relu(one, w, mark)

    @as_ours
    def failing(memory, array, *at):
        upload(memory, array, *at)
        raise vkdml.DriverError("a copy")

    with monkeypatch.context() as patched:
        patched.setattr(DeviceMemory, "upload", failing)
        with pytest.raises(vkdml.DriverError):
            relu(one, -w, new)
    for array, again in ((w, mark), (-w, new)):
        np.testing.assert_array_equal(relu(other, array, again), np.maximum(array, 0))


def test_threads_that_share_what_is_kept(device, values):
    executions, arrays = rectifiers(device, Kept(4 * H * I)), [values["w0"], -values["w0"]]
    marks = [object(), object()]

    def work(k):
        return all(np.array_equal(relu(executions[k], arrays[k], marks[k]), np.maximum(arrays[k], 0)) for _ in range(50))

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(work, range(2)))


def test_constants_are_not_compared(device, values, monkeypatch):
    single = Execution(device.gpu, device.share, [rnn_node(device, ("x", "w0", "r0", "y"), I)], ["y"])
    for name in ("w0", "r0"):
        values[name] = weights.constant(values[name])
    first = run(single, values)
    monkeypatch.setattr(weights, "_words", lambda _: pytest.fail("compared"))
    np.testing.assert_array_equal(run(single, values), first)


def test_a_constant_stays_what_it_is(values):
    """Whatever became of the array that it was made of."""
    array = values["w0"].T
    made = weights.constant(array)
    before = array.copy()
    array *= 2
    np.testing.assert_array_equal(made, before)
    assert made.flags.c_contiguous
    for view in (made, made[...], made.reshape(-1)):
        with pytest.raises(ValueError, match="cannot set WRITEABLE"):
            view.flags.writeable = True


@pytest.mark.parametrize("like", [np.copy, np.asarray, lambda array: array[...], lambda array: np.frombuffer(array.tobytes(), array.dtype)])
def test_what_is_like_a_constant_is_compared(values, like):
    """But for itself."""
    made = weights.constant(values["w0"])
    array = like(made)
    assert (weights._constants.get(id(array)) is array) == (like is np.asarray)


@pytest.fixture
def packings(monkeypatch):
    """The nodes whose weights were packed."""
    packed, pack = [], Execution._packed_now
    monkeypatch.setattr(Execution, "_packed_now", lambda execution, compiled, snapshot: (
        packed.append(compiled), pack(execution, compiled, snapshot))[1])
    return packed


def test_weights_are_packed_once_for_all(device, values, packings):
    """Also of networks that know nothing of each other; again when they change; and not again when they are as before."""
    values = {name: array + np.float32(0.125) for name, array in values.items()}  # of this test alone
    contents = Contents()
    chains = [Execution(device.gpu, device.share, [rnn_node(device, ("x", "w0", "r0", "y"), I)], ["y"], contents=kept) for kept in (contents, contents, None)]
    before = values["r0"]
    for r0 in (before, before * 2, before):
        values["r0"] = r0
        expected = reference.rnn(values["x"], values["w0"], r0)[0]
        for chain in chains:
            np.testing.assert_allclose(run(chain, values), expected, atol=1e-5)
    assert len(packings) == 2


def test_nodes_with_the_same_weights_that_change(device, values):
    """Of one, and then of all. What is packed of each stays held."""
    chain = Execution(device.gpu, device.share, [rnn_node(device, ("x", "w0", "r0", "h"), H), rnn_node(device, ("h", "w1", "r1", "y"), H)], ["y"])
    values["x"], values["w0"], values["r0"] = np.ones((T, B, H), np.float32), values["w1"].copy(), values["r1"].copy()
    for changed in ((), ("w0",), ("w0", "w1"), ("w0", "w1")):
        for name in changed:
            values[name] *= -1
        np.testing.assert_allclose(run(chain, values), two_layers(values), atol=1e-5)
        assert {key for key, _ in chain._packed.values()} <= chain._lease.keys.keys()


def test_what_was_dropped_is_made_again(device, values, packings):
    chain = Execution(device.gpu, device.share, [rnn_node(device, ("x", "w0", "r0", "h"), I), rnn_node(device, ("h", "w1", "r1", "y"), H)], ["y"])
    first = run(chain, values)
    packings.clear()
    store, limit = device.gpu.store, device.cache_limit
    try:
        device.cache_limit = 0
        assert (store.size, len(store._entries)) == (0, 0)
        assert not chain._turns
        for _ in range(2):
            np.testing.assert_array_equal(run(chain, values), first)
        assert len(packings) == 2
        assert store.size > 0  # what one call needs is there for the next one
    finally:
        device.cache_limit = limit


@pytest.mark.parametrize(("error", "stays"), [(KeyboardInterrupt, False), (KeyError, False), (MemoryError, True), (vkdml.DriverError, True)])
def test_a_foreign_exception_drops_what_is_kept(device, values, error, stays):
    """It may have come anywhere."""
    chain = Execution(device.gpu, device.share, [rnn_node(device, ("x", "w0", "r0", "y"), I)], ["y"])
    first = run(chain, values)
    code = {"__name__": "vkdml.made_up", "error": error}  # raised by vkdml's code, as a foreign one drops all, whatever its class
    exec("def fail(): raise error", code)
    with pytest.raises(error):
        device.gpu.lock.work(code["fail"])
    assert (device.gpu.store.size > 0, bool(chain._turns)) == (stays, stays)
    np.testing.assert_array_equal(run(chain, values), first)


def test_weights_that_could_not_be_packed_are_packed_later(device, values, monkeypatch):
    network = Execution(device.gpu, device.share, [rnn_node(device, ("x", "w0", "r0", "y"), I)], ["y"])
    run(network, values)

    def fail(self, flat):
        raise vkdml.OutOfMemoryError

    for _ in range(2):
        values["w0"] = values["w0"] * np.float32(2)
        with monkeypatch.context() as failing:
            failing.setattr(DeviceMemory, "_put", fail)
            for _ in range(2):
                with pytest.raises(vkdml.OutOfMemoryError):
                    run(network, values)
        expected = reference.rnn(values["x"], values["w0"], values["r0"])[0]
        np.testing.assert_allclose(run(network, values), expected, atol=1e-5)


def test_steady_runs_make_nothing(device, values, monkeypatch):
    chain = Execution(device.gpu, device.share, [rnn_node(device, ("x", "w0", "r0", "h"), I), rnn_node(device, ("h", "w1", "r1", "y"), H)], ["y"])
    chain.prepare(values)
    for name in ("create_kernel", "create_submission"):
        monkeypatch.setattr(low_level.Gpu, name, lambda *_, **__: pytest.fail("made something"))
    monkeypatch.setattr(DeviceMemory, "__init__", lambda *_: pytest.fail("made a buffer"))
    np.testing.assert_allclose(run(chain, values), two_layers(values), atol=1e-5)


def test_networks_of_other_shapes_share_buffers(device, values):
    made = {}
    for name in ("first", "second"):
        chain = Execution(device.gpu, device.share, [rnn_node(device, ("x", "w0", "r0", "y"), I)], ["y"])
        run(chain, values)
        made[name] = set(chain._turns[False][0].buffers.values())
    assert made["first"] == made["second"]


def test_recent_drops_what_was_not_asked_for_the_longest():
    recent = Recent(2)
    for key in ("a", "b", "a", "c"):
        recent.get(key, lambda: key)  # noqa: B023  (called at once)
    assert (len(recent._values), recent.get("a", lambda: "made again"), recent.get("b", lambda: "made again")) == (2, "a", "made again")
    recent.drop_where(lambda value: value == "made again")
    assert recent.values() == ["a"]


@pytest.mark.parametrize(("name", "change", "message"), [
    ("x", lambda array: array[:-1], r"DML_RNN_OPERATOR_DESC: x: found 72 bytes; expected 96 bytes, as the operators read them"),
    ("x", lambda array: array[..., :-1], "x: found 92 bytes; expected 96"), ("x", lambda array: None, "x: found no array; expected 96 bytes"),
    ("x", lambda array: np.concatenate([array, array]), "x: found 192 bytes; expected 96"),
    ("w0", lambda array: array[:, 1:], "w0: found 48 bytes; expected 60"), ("r0", lambda array: array[..., :1].copy(), "r0: found 20 bytes")])
def test_an_input_of_another_size_is_refused(device, values, name, change, message):
    """Before anything is made or changed: what is missing would be what another run left in the buffer."""
    single = Execution(device.gpu, device.share, [rnn_node(device, ("x", "w0", "r0", "y"), I)], ["y"])
    for first in (True, False):
        with pytest.raises(vkdml.InvalidArgumentError, match=message):
            run(single, values | {name: change(values[name])})
        assert bool(single._turns) != first
        np.testing.assert_allclose(run(single, values), reference.rnn(values["x"], values["w0"], values["r0"])[0], atol=1e-5)


def test_a_node_that_reads_more_than_another_computes_is_refused(device):
    nodes = [relu_node(device, (1, 1, 1, 3), ("x", "y")), relu_node(device, (1, 1, 1, 4), ("y", "z"))]
    with pytest.raises(vkdml.InvalidArgumentError, match="InputTensor: found 12 bytes that an operator computes; expected 16"):
        Execution(device.gpu, device.share, nodes, ["z"])
