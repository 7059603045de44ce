"""DxDispatch's JSON models as wholes: Microsoft's sample, commands, and that what is wrong is refused before any work."""

import re

import numpy as np
import pytest

import vkdml
from lab.tests.dxdispatch.support import (
    BINDINGS,
    FUSED,
    INPUT,
    RNN,
    SAMPLE,
    VALUES,
    changed,
    one_operator,
    relu,
    zeros,
)
from vkdml.operators import reference
from vkdml.operators.header import descs
from vkdml.operators.problem import from_desc
from vkdml_lab.dxdispatch import Dispatched, Printed, Written, load
from vkdml_lab.fuzz.json_models import array_resource, short
from vkdml_lab.suite.support import CELLS, make_desc, random_arrays, tensor


def test_microsofts_sample(device):
    lines = []
    results = load(SAMPLE).run(device, iterations=3, progress=lambda result: lines.append(str(result)))
    weights = np.ones(40, np.float32)
    for i in range(1, 40):
        weights[i] = weights[i - 1] + np.float32(0.4)
    elu = descs.DML_ACTIVATION_ELU_OPERATOR_DESC
    desc = vkdml.DML_RNN_OPERATOR_DESC(
        InputTensor=tensor(1, 1, 8, 4), WeightTensor=tensor(1, 2, 5, 4), RecurrenceTensor=tensor(1, 2, 5, 5),
        OutputSingleTensor=tensor(1, 2, 8, 5), ActivationDescs=[elu(Alpha=0.5), elu(Alpha=3.5)],
        Direction=vkdml.DML_RECURRENT_NETWORK_DIRECTION.BIDIRECTIONAL)
    expected = reference.run(from_desc(desc), {"InputTensor": np.arange(1, 33), "WeightTensor": weights,
                                               "RecurrenceTensor": np.full(50, 0.3)})["OutputSingleTensor"].reshape(-1)
    dispatched, printed = results
    assert lines == [str(dispatched), str(printed)]
    assert dispatched.name == "rnn"
    assert len(dispatched.milliseconds) == 3
    assert re.fullmatch(r"Dispatch 'rnn': 3 iterations, \d+\.\d{4} ms median \(CPU\)", lines[0])
    np.testing.assert_allclose(printed.values, expected, rtol=1e-6)
    head, _, numbers = lines[1].partition(": ")
    assert head == "Resource 'output'"
    np.testing.assert_allclose([float(number) for number in numbers.split(", ")], expected, rtol=1e-5)
    assert numbers.startswith("18, 34, 50, 66, 82, 43.6, ")


def test_lines():
    assert str(Printed("r", [1.0, 1e6, 1234567.0, 0.1, float("-inf"), float("nan"), 1e-5, -0.0])) == \
        "Resource 'r': 1, 1e+06, 1.23457e+06, 0.1, -inf, nan, 1e-05, -0"
    assert str(Printed("r", [2**64 - 1, -3])) == "Resource 'r': 18446744073709551615, -3"
    assert str(Written("r", "/a/b.npy")) == "Resource 'r' written to '/a/b.npy'"
    assert str(Dispatched("d", [0.25])) == "Dispatch 'd': 1 iterations, 0.2500 ms median (CPU)"
    assert Dispatched("d", [0.5, 4.0, 1.0, 2.0, 3.0]).median == 3.0  # the first is cold, and of 1 2 3 4 the upper one counts


def test_written_files(run_model, tmp_path, monkeypatch):
    """A .npy has the dimensions that the command gives, or else all of the resource in one."""
    monkeypatch.chdir(tmp_path)
    halves = {"initialValuesDataType": "FLOAT16", "initialValues": [1, 2, 3, 4, 5]}
    written = [("a/flat.npy", {}), ("a/shaped.NPY", {"dimensions": [1, 2, 2]}), ("a/raw.dat", {})]
    results = run_model({"resources": {"r": halves}, "dispatchables": {}, "commands": [
        {"type": "writeFile", "resource": "r", "targetPath": path} | members for path, members in written]})
    assert results == [Written("r", str(tmp_path / path)) for path, _ in written]
    flat, shaped = (np.load(tmp_path / path) for path, _ in written[:2])
    assert flat.dtype == shaped.dtype == np.float16
    assert flat.tolist() == [1, 2, 3, 4, 5, 0]
    assert shaped.tolist() == [[[1, 2], [3, 4]]]
    assert (tmp_path / "a" / "raw.dat").read_bytes() == np.array([1, 2, 3, 4, 5, 0], np.float16).tobytes()


def test_a_file_that_cannot_be_written(load_model, tmp_path, device):
    (tmp_path / "file").touch()
    model = load_model({"resources": {"r": zeros(1)}, "dispatchables": {}, "commands": [
        {"type": "writeFile", "resource": "r", "targetPath": str(tmp_path / "file" / "out.bin")}]})
    with pytest.raises(vkdml.InvalidArgumentError, match=r"model: commands\[0\].targetPath: found .*file"):
        model.run(device)


def test_outputs_are_the_next_inputs(run_model, load_model, device):
    """Two dispatches of one step, the state in one resource that is read and written, are two steps. Each run starts from the initial values."""
    whole = make_desc(CELLS[0], 2, 2, 3, 4, SequenceLengthsTensor=None, OutputSequenceTensor=None)
    arrays = random_arrays(whole, np.random.default_rng(2))
    step = make_desc(CELLS[0], 1, 2, 3, 4, SequenceLengthsTensor=None, OutputSequenceTensor=None)
    resources = {field: array_resource(array) for field, array in arrays.items()}
    bindings = {field: field for field in arrays} | {"OutputSingleTensor": "HiddenInitTensor"}
    model = one_operator({"type": "GRU", "desc": short(step)}, resources, bindings, ["HiddenInitTensor"])
    model["commands"].insert(1, {"type": "dispatch", "dispatchable": "op", "bindings": bindings | {
        "InputTensor": {"name": "InputTensor", "elementOffset": 6}}})
    expected = reference.run(from_desc(whole), arrays)["OutputSingleTensor"].reshape(-1)
    loaded = load_model(model)
    for _ in range(2):
        np.testing.assert_allclose(loaded.run(device)[-1].values, expected, rtol=1e-4, atol=1e-5)


def test_new_weights_between_dispatches(run_model):
    """Each dispatch takes the weights as they are then."""
    desc = make_desc(CELLS[2], 1, 1, 1, 1, BiasTensor=None, HiddenInitTensor=None, SequenceLengthsTensor=None, OutputSequenceTensor=None,
                     ActivationDescs=[descs.DML_ACTIVATION_IDENTITY_OPERATOR_DESC()])
    assert isinstance(desc, vkdml.DML_RNN_OPERATOR_DESC)
    bindings = {"InputTensor": "x", "WeightTensor": "w", "RecurrenceTensor": "x", "OutputSingleTensor": "w"}
    model = one_operator({"type": "RNN", "desc": short(desc)}, {name: array_resource(np.array([3], np.float32)) for name in "xw"},
                         bindings, ["w"])
    model["commands"].insert(1, model["commands"][0])
    assert run_model(model)[-1].values == [27]


def test_a_model_that_is_not_there(tmp_path):
    with pytest.raises(vkdml.InvalidArgumentError, match=r"nothing\.json: found .*No such file"):
        load(tmp_path / "nothing.json")


REFUSED = [
    (("commands",), {}, "commands: found {}; expected a list"),
    (("dispatchable",), {}, "dispatchable: found an unknown member; expected one of $schema, resources, dispatchables, commands"),
    # resources
    (("resources", "input"), 3, "resources.input: found 3; expected an object"),
    (("resources", "input", "type"), "texture", 'resources.input.type: found "texture"; expected buffer'),
    (("resources", "input", "sizeInBytes"), 127, "resources.input.sizeInBytes: found 127; expected a whole number, 128 or more"),
    (("resources", "input", "initialValuesDataType"), "FLOAT", 'initialValuesDataType: found "FLOAT"; expected one of UNKNOWN, FLOAT32'),
    (VALUES, ..., "resources.input.initialValues: found nothing; expected a list, or an object with value, valueStart or sourcePath"),
    (VALUES, [], "resources.input: found 0 bytes; expected at least one value"),
    (VALUES, [1, "one"], 'resources.input.initialValues[1]: found "one"; expected a number that float32 holds, "nan", "inf" or "-inf"'),
    (VALUES, [1e39], "resources.input.initialValues[0]: found 1e+39; expected a number that float32 holds"),
    (VALUES, {"valueCount": 0, "value": 1}, "resources.input.initialValues.valueCount: found 0; expected a whole number, 1 or more"),
    (VALUES, {"valueCount": 2**31, "value": 1}, "resources.input.initialValues.valueCount: found 2147483648; expected values of at most"),
    (VALUES, {"valueCount": 3, "valueStart": 1}, "resources.input.initialValues.valueDelta: found nothing; expected a number"),
    (VALUES, {"valueCount": 3, "valueStart": 1, "value": 1}, "resources.input.initialValues.valueStart: found both value and valueStart"),
    (VALUES, {"sourcePath": "none.bin"}, "resources.input.initialValues.sourcePath: found none.bin ("),
    (("resources", "input"), {"initialValues": {"sourcePath": "cat.jpg"}, "initialValuesDataType": "FLOAT32", "resampleSize": [1, 3, 2, 2]},
     "resources.input.initialValues.sourcePath: found the image cat.jpg; expected a .npy or a file of raw data"),
    (("resources", "input"), {"initialValues": {"sourcePath": "a.bin"}}, "resources.input.initialValuesDataType: found UNKNOWN or nothing"),
    (("resources", "input"), {"initialValues": [1]}, "resources.input.initialValues[0]: found 1; expected an object"),
    (("resources", "input"), {"initialValues": [{"type": "UNKNOWN", "value": 1}]}, "resources.input.initialValues[0].type: found UNKNOWN or nothing"),
    # dispatchables
    (RNN, {"type": "hlsl", "sourcePath": "a.hlsl", "compiler": "dxc"}, 'dispatchables.rnn.type: found "hlsl"; expected one of ELEMENT_WISE_ADD, '),
    ((*RNN, "type"), ..., "dispatchables.rnn.type: found nothing; expected a string"),
    ((*RNN, "Type"), "RNN", "dispatchables.rnn.type: found both Type and type; expected only one of them"),
    ((*RNN, "bindings"), {"WeightTensor": "weights"}, "dispatchables.rnn.bindings.WeightTensor: found no tensor that is OWNED_BY_DML; expected no bindings here"),
    ((*RNN, "executionFlags"), ["NONE", "FAST"], 'dispatchables.rnn.executionFlags[1]: found "FAST"; expected one of NONE, ALLOW_HALF'),
    ((*RNN, "dmlCompileType"), "Graph", 'dispatchables.rnn.dmlCompileType: found "Graph"; expected DmlCompileOp or DmlCompileGraph'),
    ((*FUSED, "Alpha"), "inf", "dispatchables.rnn.desc.ActivationDescs[0].Alpha: found inf; expected a finite float32"),
    (FUSED, {"Type": "ACTIVATION_ELU", "Desc": {"Alpha": 1}, "Alpha": 2}, "ActivationDescs[0].Alpha: found an unknown member; expected one of Type, Desc"),
    ((*INPUT, "Sizes"), [1, 1, 8, 5], "dispatchables.rnn.desc.InputTensor.Sizes: found (1, 1, 8, 5); expected (1, 1, 8, 4)"),
    # commands
    (("commands", 1), 7, "commands[1]: found 7; expected an object"),
    (("commands", 1, "type"), "show", 'commands[1].type: found "show"; expected one of dispatch, print, writeFile'),
    (("commands", 1, "verbose"), True, "commands[1].verbose: found an unknown member; expected one of resource"),
    (("commands", 1, "resource"), ..., "commands[1].resource: found nothing; expected a string"),
    (("commands", 1), {"type": "writeFile", "resource": "none", "targetPath": "a.bin"}, 'commands[1].resource: found "none"'),
    (("commands", 1), {"type": "writeFile", "resource": "output", "targetPath": "a.PNG"}, "commands[1].targetPath: found the image"),
    (("commands", 1), {"type": "writeFile", "resource": "output", "targetPath": "a.npy", "dimensions": [9, 9]},
     "commands[1].dimensions: found [9, 9]; expected at most the 80 elements of output"),
    (("commands", 1), {"type": "writeFile", "resource": "output", "targetPath": "a.dat", "dimensions": [8]},
     "commands[1].dimensions: found an unknown member"),
    (("commands", 0, "dispatchable"), "gru", 'commands[0].dispatchable: found "gru"; expected one of rnn'),
    (BINDINGS, ..., "commands[0].bindings: found nothing; expected an object"),
    ((*BINDINGS, "WeightTensor"), ..., "commands[0].bindings.WeightTensor: found nothing; expected a resource's name"),
    ((*BINDINGS, "InputTensor"), "inputs", 'commands[0].bindings.InputTensor.name: found "inputs"; expected one of input, weights'),
    ((*BINDINGS, "InputTensor"), {"name": "input", "elementOffset": -1}, "commands[0].bindings.InputTensor.elementOffset: found -1"),
    ((*BINDINGS, "InputTensor"), {"name": "weights", "elementCount": 31}, "commands[0].bindings.InputTensor: found 124 bytes of weights"),
]


@pytest.mark.parametrize(("path", "value", "message"), REFUSED, ids=[message[:60] for *_, message in REFUSED])
def test_refused_before_any_work(load_model, tmp_path, monkeypatch, path, value, message):
    (tmp_path / "a.bin").write_bytes(bytes(8))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(vkdml.InvalidArgumentError) as refused:
        load_model(changed(path, value))
    assert str(refused.value).startswith("model: ")
    assert message in str(refused.value)
    assert message.startswith(refused.value.field) or refused.value.field.endswith(message.partition(": ")[0])


def test_what_the_device_refuses_is_refused_before_the_first_command(load_model, device, tmp_path, monkeypatch):
    model = load_model({"resources": {"r": zeros(1)}, "dispatchables": {"op": relu(1)}, "commands": [
        {"type": "writeFile", "resource": "r", "targetPath": str(tmp_path / "out.bin")}]})
    monkeypatch.setenv("VKDML_SELFTEST", "fast")
    with pytest.raises(vkdml.InvalidArgumentError, match="model: dispatchables.op: VKDML_SELFTEST: found 'fast'"):
        model.run(device)
    assert not (tmp_path / "out.bin").exists()


def test_a_wrong_length_is_refused_at_its_command(run_model):
    desc = make_desc(CELLS[0], 3, 1, 1, 1, HiddenInitTensor=None, BiasTensor=None, OutputSequenceTensor=None)
    resources = {field: zeros(3) for field in ("InputTensor", "WeightTensor", "RecurrenceTensor", "OutputSingleTensor")}
    resources["SequenceLengthsTensor"] = array_resource(np.array([4], np.uint32))
    with pytest.raises(vkdml.InvalidArgumentError, match=r"model: commands\[0\]: sequence length of row 0: found 4; expected 0 to T = 3"):
        run_model(one_operator({"type": "GRU", "desc": short(desc)}, resources))


@pytest.mark.parametrize("iterations", [0, -1, 1.0, True])
def test_iterations(device, iterations):
    with pytest.raises(vkdml.InvalidArgumentError, match="run: iterations: found"):
        load(SAMPLE).run(device, iterations=iterations)
