"""Recorders of a Device(verify=...): right executions never raise; wrong ones do, whatever is bound where."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import vkdml
from tests.engine.ready import recorded, table_of
from vkdml.engine import compiled as recording
from vkdml.engine.vulkan import gpu as low_level
from vkdml.operators import cells, element_types
from vkdml.operators.header import descs
from vkdml_lab.suite.support import Case, drawn_case, make_desc, owned, random_arrays, random_case, run_on_device, tensor

pytestmark = pytest.mark.device


@pytest.mark.family("random shapes, attributes and types", first=2)
@pytest.mark.parametrize("seed", range(40))
def test_no_false_alarm(verified, checks, seed):
    """With weights that are bound, and with ones that an initializer packs."""
    case = random_case(seed)
    run_on_device(verified, case)
    in_directml = case.element in element_types.IN_DIRECTML
    if in_directml:
        run_on_device(verified, Case(owned(case.desc), case.clip, case.arrays, case.element))
    assert len(checks) == 1 + in_directml


def without_sequence(cell):
    return drawn_case(make_desc(cell, OutputSequenceTensor=None))


@pytest.mark.family("cells, of which LSTM has most outputs", first=1)
@pytest.mark.parametrize("cell", [cells.LSTM, cells.GRU, cells.RNN], ids=lambda cell: cell.name)
def test_what_a_check_needs_is_computed(verified, checks, cell):
    """Where OutputSequenceTensor is not bound; the results are those of a device without checks."""
    case = without_sequence(cell)
    found = run_on_device(verified, case)
    assert checks[0][1] == sorted(cell.outputs)
    for field, array in run_on_device(vkdml.Device(), case).items():
        np.testing.assert_array_equal(found[field], array)


def rnn_in_place(device):
    """The state's buffer is the last output's too, and an activation writes to what the operator has read."""
    desc = without_sequence(cells.RNN).desc
    arrays = random_arrays(desc, np.random.default_rng(0))
    buffers = {field: device.upload(array) for field, array in arrays.items()}
    relu = descs.DML_ACTIVATION_RELU_OPERATOR_DESC(*2 * [tensor(*arrays["InputTensor"].shape)])
    fields = device.create_operator(desc).problem.inputs
    first = table_of(device, desc, [buffers.get(field) for field in fields], [None, buffers["HiddenInitTensor"]])
    second = table_of(device, relu, [buffers["InputTensor"]], [buffers["InputTensor"]])
    return SimpleNamespace(recorder=recorded(device, first, second), state=buffers["HiddenInitTensor"], weights=buffers["WeightTensor"])


def test_in_place(verified, checks):
    right, plain = rnn_in_place(verified), rnn_in_place(vkdml.Device())
    for _ in range(2):
        right.recorder.execute()
        plain.recorder.execute()
    assert [operator for operator, _ in checks] == ["DML_RNN_OPERATOR_DESC", "DML_ACTIVATION_RELU_OPERATOR_DESC"] * 2
    np.testing.assert_array_equal(right.state.download((10,)), plain.state.download((10,)))


def test_the_copies_of_the_host_stay(checks):
    """On a device with memory of its own, where checks read what it has."""
    device = vkdml.Device(verify=1)
    device.gpu = low_level.Gpu(replace(device.info, unified_memory=False))
    made = rnn_in_place(device)
    made.weights.write(np.full(20, 7, np.float32))  # for an upload that comes later
    made.recorder.execute()
    assert len(checks) == 2
    assert (made.weights.read((20,)) == 7).all()
    assert (made.weights.download((20,)) != 7).all()


def test_executions_in_turn(checks):
    """Of those that check something: initializers do not."""
    recorder = rnn_in_place(vkdml.Device(verify=0.5)).recorder
    for expected in (1, 1, 2, 2):
        recorder.execute()
        assert len(checks) == 2 * expected


def test_an_execution_in_the_background_is_checked(verified, monkeypatch):
    def fail(*_):
        raise vkdml.VerificationError("wrong")

    monkeypatch.setattr(recording, "_verify", fail)
    with pytest.raises(vkdml.VerificationError):
        rnn_in_place(verified).recorder.execute_async().wait()
