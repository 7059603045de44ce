"""Operators that hand tensors to each other on the device."""

import numpy as np
import pytest

import vkdml
from tests.support import tensor
from vkdml.runtime import network
from vkdml.runtime.network import Network, NetworkCache, Node
from vkdml.runtime.recent import Recent
from vkdml.spec import reference

T, B, I, H = 4, 2, 3, 5


def rnn_node(device, names, inputs):
    desc = vkdml.DML_RNN_OPERATOR_DESC(
        InputTensor=tensor(1, T, B, inputs), WeightTensor=tensor(1, 1, H, inputs), RecurrenceTensor=tensor(1, 1, H, H),
        OutputSequenceTensor=tensor(T, 1, B, H), ActivationDescs=[vkdml.DML_ACTIVATION_TANH_OPERATOR_DESC()],
        Direction=vkdml.DML_RECURRENT_NETWORK_DIRECTION.FORWARD)
    fields = ("InputTensor", "WeightTensor", "RecurrenceTensor", "OutputSequenceTensor")
    return Node(device.create_operator(desc), dict(zip(fields, names)))


def relu_node(device, sizes, names):
    desc = vkdml.DML_ACTIVATION_RELU_OPERATOR_DESC(InputTensor=tensor(*sizes), OutputTensor=tensor(*sizes))
    return Node(device.create_operator(desc), dict(zip(("InputTensor", "OutputTensor"), names)))


@pytest.fixture
def values():
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(np.float32)
            for name, shape in {"x": (T, B, I), "w0": (1, H, I), "r0": (1, H, H), "w1": (1, H, H), "r1": (1, H, H)}.items()}


def run(network, values):
    return network.run(values, {"y": ((T, 1, B, H), np.float32)})["y"]


def two_layers(values):
    h = reference.rnn(values["x"], values["w0"], values["r0"])[0]
    return reference.rnn(h[:, 0], values["w1"], values["r1"])[0]


def test_a_node_reads_what_another_made(device, values):
    chain = Network(device, [rnn_node(device, ("x", "w0", "r0", "h"), I), rnn_node(device, ("h", "w1", "r1", "y"), H)], ["y"])
    np.testing.assert_allclose(run(chain, values), two_layers(values), atol=1e-5)
    values["x"] = values["x"] * 2
    values["r1"][0, 0] = 0.5  # in place: seen, as the array is not read-only
    np.testing.assert_allclose(run(chain, values), two_layers(values), atol=1e-5)


def test_weights_that_a_node_computes_are_packed_each_time(device, values):
    chain = Network(device, [relu_node(device, (1, 1, H, I), ("w", "w0")), rnn_node(device, ("x", "w0", "r0", "y"), I)], ["y"])
    for scale in (1, -1):
        values["w"] = values["w0"] * np.float32(scale)
        expected = reference.rnn(values["x"], np.maximum(values["w"], 0), values["r0"])[0]
        np.testing.assert_allclose(run(chain, values), expected, atol=1e-5)


def test_frozen_weights_are_not_compared(device, values, monkeypatch):
    single = Network(device, [rnn_node(device, ("x", "w0", "r0", "y"), I)], ["y"])
    for name in ("w0", "r0"):
        values[name].flags.writeable = False
    first = run(single, values)
    monkeypatch.setattr(network.np, "array_equal", lambda *_: pytest.fail("compared"))
    np.testing.assert_array_equal(run(single, values), first)


def test_read_only_views_of_what_can_be_written_are_compared(device, values):
    single = Network(device, [rnn_node(device, ("x", "w0", "r0", "y"), I)], ["y"])
    base = values["w0"]
    values["w0"] = base.view()
    values["w0"].flags.writeable = False
    first = run(single, values)
    base *= 2
    assert np.abs(run(single, values) - first).max() > 0.01


def test_networks_share_weights(device, values, monkeypatch):
    """Packed by the first, used by the second, and packed again by whoever is given others."""
    cache = NetworkCache()
    chains = [Network(device, [rnn_node(device, ("x", "w0", "r0", "y"), I)], ["y"], cache=cache) for _ in range(2)]
    executed, execute = [], vkdml.CommandRecorder.execute
    monkeypatch.setattr(vkdml.CommandRecorder, "execute", lambda recorder: (executed.append(recorder), execute(recorder))[1])
    first = run(chains[0], values)
    assert len(executed) == 2  # weights are packed, then the network runs
    np.testing.assert_array_equal(run(chains[1], values), first)
    assert (len(cache), len(executed)) == (1, 3)
    values["r0"] = values["r0"] * 2
    expected = reference.rnn(values["x"], values["w0"], values["r0"])[0]
    for chain in (chains[1], chains[0]):
        np.testing.assert_allclose(run(chain, values), expected, atol=1e-5)
    assert len(executed) == 6


def test_recent_drops_what_was_not_asked_for_the_longest():
    recent = Recent(2)
    for key in ("a", "b", "a", "c"):
        recent.get(key, lambda: key)  # noqa: B023  (called at once)
    assert (len(recent), recent.get("a", lambda: "made anew"), recent.get("b", lambda: "made anew")) == (2, "a", "made anew")
    recent.drop("b")
    recent.drop("no such key")
    assert len(recent) == 1
