"""DxDispatch's JSON models: Microsoft's sample, all that a model can say, and that what is wrong is refused before any work."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import vkdml
from tests.support import CELLS, DTYPES, Case, assert_close, check, make_desc, random_arrays, tensor
from vkdml.dxdispatch import Dispatched, Printed, Written, load
from vkdml.faces.dxdispatch.reader import parse
from vkdml.spec import activations, descs, element_types, reference
from vkdml.spec.problem import from_desc

SAMPLE = Path(__file__).parent / "models" / "dml_rnn.json"
FLOAT16 = descs.DML_TENSOR_DATA_TYPE.FLOAT16


@pytest.fixture
def load_model(tmp_path):
    """A model out of its members, or of text, written to a file first."""
    def write(model):
        path = tmp_path / "model.json"
        path.write_text(model if isinstance(model, str) else json.dumps(model))
        return load(path)

    return write


@pytest.fixture
def run_model(load_model, device):
    return lambda model, **arguments: load_model(model).run(device, **arguments)


# JSON out of descriptors, in the two ways to write them

def short(value):
    if isinstance(value, descs.IntEnum | descs.IntFlag):
        return value.name
    if isinstance(value, tuple):
        return [short(item) for item in value]
    if not hasattr(value, "__dataclass_fields__"):
        return value
    given = {field.name: short(getattr(value, field.name)) for field in fields(value) if getattr(value, field.name) is not None}
    return given | ({"Type": type_name(value)} if isinstance(value, descs.ActivationDesc) else {})


def long(value):
    """Full names, descriptions within Desc, 0 and 1 for booleans, and null for what is not there."""
    if isinstance(value, descs.IntEnum | descs.IntFlag):
        return f"{type(value).__name__.removesuffix('S')}_{value.name}"
    if isinstance(value, tuple):
        return [long(item) for item in value]
    if not hasattr(value, "__dataclass_fields__"):
        return int(value) if isinstance(value, bool) else value
    given = {field.name: long(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, descs.DML_BUFFER_TENSOR_DESC):
        return {"Type": "DML_TENSOR_TYPE_BUFFER", "Desc": given | {"DimensionCount": len(value.Sizes)}}
    if isinstance(value, descs.ActivationDesc):
        return {"Type": "DML_OPERATOR_" + type_name(value), "Desc": given}
    return given | {"ActivationDescCount": len(value.ActivationDescs)}


def type_name(desc):
    return type(desc).__name__.removeprefix("DML_").removesuffix("_OPERATOR_DESC")


def array_resource(array):
    return {"initialValuesDataType": array.dtype.name.upper(), "initialValues": array.reshape(-1).tolist()}


def zeros(count, data_type="FLOAT32"):
    return {"initialValuesDataType": data_type, "initialValues": {"valueCount": count, "value": 0}}


def one_operator(dispatchable, resources, bindings=None, printed=()):
    """A model that dispatches one operator, every tensor bound to the resource of its field's name if not told otherwise."""
    return {"resources": resources, "dispatchables": {"op": dispatchable},
            "commands": [{"type": "dispatch", "dispatchable": "op", "bindings": bindings or {name: name for name in resources}},
                         *({"type": "print", "resource": name} for name in printed)]}


def relu(*sizes, **changes):
    described = {"DataType": "FLOAT32", "Sizes": list(sizes)}
    return {"type": "ACTIVATION_RELU", "desc": {"InputTensor": described, "OutputTensor": described} | changes}


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


@pytest.mark.parametrize("write", [short, long])
@pytest.mark.parametrize("data_type", [tensor(1).DataType, FLOAT16], ids=lambda data_type: data_type.name)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_all_fields(load_model, device, cell, data_type, write):
    element = next(element for element in element_types.IN_DIRECTML if element.data_type == data_type)
    fused = [descs.DML_ACTIVATION_HARD_SIGMOID_OPERATOR_DESC(Alpha=0.3, Beta=0.4), descs.DML_ACTIVATION_SOFTSIGN_OPERATOR_DESC(),
             descs.DML_ACTIVATION_SCALED_TANH_OPERATOR_DESC(Alpha=1.25, Beta=0.5)]
    clipped = {"ClipThreshold": 0.75, "UseClipThreshold": True} if cell.name == "LSTM" else {}
    desc = make_desc(cell, d=2, data_type=data_type, ActivationDescs=fused[:cell.activations] + fused[-cell.activations:],
                     **clipped, **dict.fromkeys(cell.flags, True),
                     InputTensor=tensor(1, 3, 2, 4, data_type=data_type, Strides=(0, 4, 12, 1), Flags=descs.DML_TENSOR_FLAGS.NONE))
    if write is short:
        desc = replace(desc, ActivationDescCount=len(desc.ActivationDescs))
    arrays = random_arrays(desc, np.random.default_rng(0), element)
    counts = {field: from_desc(desc).tensor(field).size_of_elements for field in cell.outputs}
    resources = {field: array_resource(array) for field, array in arrays.items()}
    resources |= {field: zeros(count, data_type.name) for field, count in counts.items()}
    name = cell.name if write is short else f"DML_OPERATOR_{cell.name}"
    dispatchable = {"type": name, "executionFlags": ["DISABLE_META_COMMANDS", "DML_EXECUTION_FLAG_DESCRIPTORS_VOLATILE"],
                    "dmlCompileType": "DmlCompileGraph", "desc" if write is short else "Desc": write(desc)}
    model = load_model(one_operator(dispatchable, resources, printed=counts))
    flags = vkdml.DML_EXECUTION_FLAGS
    assert model.dispatchables["op"].flags == flags.DISABLE_META_COMMANDS | flags.DESCRIPTORS_VOLATILE
    _, *printed = model.run(device)
    check(Case(desc, None, arrays, element), {
        result.resource: np.array(result.values, DTYPES[element.name]).reshape(from_desc(desc).tensor(result.resource).sizes)
        for result in printed})


@pytest.mark.parametrize("inline", [False, True])
def test_activations_alone(run_model, inline):
    x = np.linspace(-2, 2, 9, dtype=np.float32)
    described = tensor(3, 3)
    parameters = {"Alpha": 0.75, "Beta": 0.5, "Gamma": 1.5, "Bias": 0.25, "Threshold": 0.5, "Steepness": 2.0}
    rows = {row.operator_type.name: row for row in activations.BY_DESC.values()}
    model = {"resources": {"x": array_resource(x)}, "dispatchables": {}, "commands": []}
    for name, row in rows.items():
        desc = short(row.desc(described, described, **{field: parameters[field] for field in row.fields}))
        del desc["Type"]
        model["resources"][name] = zeros(9)
        beside = {"type": name, "executionFlags": "DML_EXECUTION_FLAG_NONE", "dmlCompileType": "DmlCompileOp"}
        model["dispatchables"][name] = beside | (desc if inline else {"desc": desc})
        model["commands"] += [{"type": "Dispatch", "dispatchable": name, "bindings": {"InputTensor": "x", "OutputTensor": [name]}},
                              {"type": "PRINT", "resource": name}]
    results = {result.resource: result for result in run_model(model) if isinstance(result, Printed)}
    assert results.keys() == rows.keys()
    for name, row in rows.items():
        a, b = ([parameters[field] for field in row.fields] + [0.0, 0.0])[:2]
        assert_close(name, element_types.FLOAT32, [], {"OutputTensor": np.array(results[name].values, np.float32)},
                     {"OutputTensor": row.function(x.astype(np.float64), a, b)})


INITIALIZERS = [
    ({"initialValuesDataType": "DML_TENSOR_DATA_TYPE_FLOAT32", "initialValues": [1, 2.5, "NaN", "inf", "-Inf"]},
     np.array([1, 2.5, np.nan, np.inf, -np.inf], np.float32)),
    ({"initialValuesDataType": "FLOAT32", "initialValues": [3.4028235e38, -0.0]}, np.array([3.4028235e38, -0.0], np.float32)),
    ({"initialValuesDataType": "FLOAT16", "initialValues": [65504, -6, 0.1]}, np.array([65504, -6, 0.1], np.float16)),
    ({"initialValuesDataType": "FLOAT64", "initialValues": [0.1, 1e300]}, np.array([0.1, 1e300])),
    ({"initialValuesDataType": "UINT8", "initialValues": [0, 255]}, np.array([0, 255], np.uint8)),
    ({"initialValuesDataType": "UINT16", "initialValues": [65535]}, np.array([65535], np.uint16)),
    ({"initialValuesDataType": "UINT32", "initialValues": [2**32 - 1]}, np.array([2**32 - 1], np.uint32)),
    ({"initialValuesDataType": "UINT64", "initialValues": [2**64 - 1]}, np.array([2**64 - 1], np.uint64)),
    ({"initialValuesDataType": "INT8", "initialValues": [-128, 127, 1]}, np.array([-128, 127, 1], np.int8)),
    ({"initialValuesDataType": "INT16", "initialValues": [-32768]}, np.array([-32768], np.int16)),
    ({"initialValuesDataType": "INT32", "initialValues": [-2**31]}, np.array([-2**31], np.int32)),
    ({"initialValuesDataType": "INT64", "initialValues": [-2**63, 7]}, np.array([-2**63, 7], np.int64)),
    ({"type": "buffer", "initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 4, "value": "nan"}},
     np.full(4, np.nan, np.float32)),
    ({"initialValuesDataType": "INT8", "initialValues": {"valueCount": 5, "value": -7}}, np.full(5, -7, np.int8)),
    ({"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 4, "valueStart": 1, "valueDelta": 2.5}},
     np.array([1, 3.5, 6, 8.5], np.float32)),
    ({"initialValuesDataType": "FLOAT16", "initialValues": {"valueCount": 4, "valueStart": 1, "valueDelta": 0.4}},
     np.array([1, 1.4, 1.8008, 2.2012], np.float16)),  # rounded at each step: 1.8 would be 1.7998
    ({"initialValuesDataType": "UINT8", "initialValues": {"valueCount": 3, "valueStart": 250, "valueDelta": 4}},
     np.array([250, 254, 2], np.uint8)),
    ({"initialValuesDataType": "FLOAT32", "initialValues": [1, 2, 3], "sizeInBytes": 250}, np.array([1, 2, 3], np.float32)),
]


@pytest.mark.parametrize(("resource", "expected"), INITIALIZERS, ids=str)
def test_initial_values(load_model, device, resource, expected):
    model = load_model({"resources": {"r": resource}, "dispatchables": {}, "commands": [{"type": "print", "resource": "r"}]})
    assert model.resources["r"].values.dtype == expected.dtype
    assert model.resources["r"].size_in_bytes == -(-resource.get("sizeInBytes", expected.nbytes) // 4) * 4
    (printed,) = model.run(device)
    np.testing.assert_array_equal(np.array(printed.values, expected.dtype), expected)
    assert np.signbit(printed.values).tolist() == np.signbit(expected).tolist()


def test_values_of_different_types(run_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mixed = [{"name": "count", "type": "UINT32", "value": 6}, {"type": "DML_TENSOR_DATA_TYPE_FLOAT32", "value": 2.3},
             {"type": "INT8", "value": -1}, {"type": "FLOAT16", "value": "inf"}]
    for data_type in ({}, {"initialValuesDataType": "UNKNOWN"}):
        run_model({"resources": {"r": {"initialValues": mixed, "sizeInBytes": 14} | data_type}, "dispatchables": {},
                   "commands": [{"type": "writeFile", "resource": "r", "targetPath": "out.bin"}]})
        expected = b"".join((np.uint32(6).tobytes(), np.float32(2.3).tobytes(), np.int8(-1).tobytes(), np.float16("inf").tobytes()))
        assert (tmp_path / "out.bin").read_bytes() == expected + bytes(5)


def test_values_in_files(load_model, device, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "swapped.npy", values.astype(">f4"))
    np.save(tmp_path / "fortran.NPY.npy", np.asfortranarray(values))
    np.save(tmp_path / "both.npy", values)
    np.save("both.npy", -values)
    values.astype(np.float16).tofile("here.bin")
    files = {"swapped.npy": {}, "fortran.NPY.npy": {"initialValuesDataType": "FLOAT32"}, "both.npy": {},
             "here.bin": {"initialValuesDataType": "FLOAT16"}}
    model = load_model({"resources": {name: {"initialValues": {"sourcePath": name}} | members for name, members in files.items()},
                        "dispatchables": {}, "commands": [{"type": "print", "resource": name} for name in files]})
    assert all(resource.values.dtype.isnative for resource in model.resources.values())
    assert [result.values for result in model.run(device)] == [[0, 1, 2, 3, 4, 5]] * 4


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


@pytest.mark.parametrize("data_type", ["FLOAT32", "FLOAT16"])
def test_offsets_into_one_resource(run_model, data_type):
    """All tensors in one resource, at odd elements; what is between and around them stays."""
    dtype = np.dtype(data_type.lower())
    desc = make_desc(CELLS[0], data_type=descs.DML_TENSOR_DATA_TYPE[data_type], SequenceLengthsTensor=None)
    arrays = random_arrays(desc, np.random.default_rng(1), next(row for row in element_types.IN_DIRECTML if row.name == dtype.name))
    checked = from_desc(desc)
    content, bindings, offset = np.full(600, 7, dtype), {}, 1
    places = {}
    for field in (*checked.inputs, *checked.outputs):
        if not checked.has(field):
            continue
        count = checked.tensor(field).size_of_elements
        places[field] = slice(offset, offset + count)
        bindings[field] = {"name": "all", "elementOffset": offset, "elementCount": count}
        if field in arrays:
            content[places[field]] = arrays[field].reshape(-1)
        offset += count + 1
    bindings["OutputSingleTensor"] |= {"elementOffset": bindings["OutputSingleTensor"]["elementOffset"] * dtype.itemsize,
                                       "elementCount": 0, "elementSizeInBytes": 1}
    dispatchable = {"type": "GRU", "desc": short(desc)}
    _, printed = run_model(one_operator(dispatchable, {"all": array_resource(content)}, bindings, ["all"]))
    found = np.array(printed.values, dtype)
    element = next(row for row in element_types.IN_DIRECTML if row.name == dtype.name)
    check(Case(desc, None, arrays, element), {field: found[places[field]].reshape(checked.tensor(field).sizes)
                                              for field in checked.outputs})
    for field in checked.outputs:
        content[places[field]] = found[places[field]]
    np.testing.assert_array_equal(found, content)


def test_gaps_stay(run_model):
    gapped = {"DataType": "FLOAT16", "Sizes": [2, 3], "Strides": [5, 1]}
    dispatchable = relu(2, 3, InputTensor={"DataType": "FLOAT16", "Sizes": [2, 3]}, OutputTensor=gapped)
    resources = {"InputTensor": array_resource(np.arange(1, 7, dtype=np.float16)),
                 "OutputTensor": {"initialValuesDataType": "FLOAT16", "initialValues": {"valueCount": 11, "value": -9}}}
    _, printed = run_model(one_operator(dispatchable, resources, printed=["OutputTensor"]))
    assert printed.values == [1, 2, 3, -9, -9, 4, 5, 6, -9, -9, -9]


def test_in_place_each_iteration_takes_what_the_last_left(run_model):
    described = {"DataType": "FLOAT32", "Sizes": [2]}
    linear = {"type": "ACTIVATION_LINEAR", "desc": {"InputTensor": described, "OutputTensor": described, "Alpha": 2, "Beta": 1}}
    model = one_operator(linear, {"r": array_resource(np.array([1, 10], np.float32))},
                         {"InputTensor": "r", "OutputTensor": "r"}, ["r"])
    assert run_model(model)[1].values == [3, 21]
    assert run_model(model, iterations=3)[1].values == [15, 87]


def test_outputs_are_the_next_inputs(run_model, load_model, device):
    """Two dispatches of one step, the state in one resource that is read and written, are two steps. Each run starts anew."""
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


def test_comments_and_trailing_commas(load_model):
    text = """// a model
    {
        "$schema": "./_schema.json", /* of two,
        no: three lines */ "resources": { "a//b /*,]*/": { "initialValuesDataType": "FLOAT32", "initialValues": [1, 2, // two
            /* and */ ], }, "\\\\\\",}": null },
        "dispatchables": {},
        "commands": [{ "type": "print", "resource": "a//b /*,]*/", }, ],
    }"""
    assert load_model(text).resources["a//b /*,]*/"].values.tolist() == [1, 2]


@pytest.mark.parametrize(("text", "message"), [
    ('{ // one\n /* two\n */ "a": 1 2 }', "line 3 column 12"),
    ("[,]", "Expecting value"),
    ("{,}", "property name"),
    ("[1,,]", "Expecting value|trailing comma"),
    ("[1 /* no end", "delimiter"),
    ('{"a": 1, "b": {}, "a": 2}', "'a' is given 2 times"),
    ("[NaN]", "NaN is no JSON"),
    ("[-Infinity]", "-Infinity is no JSON"),
    ("{} {}", "Extra data"),
    ("", "Expecting value"),
])
def test_text_that_is_no_json(load_model, text, message):
    with pytest.raises(ValueError, match=message):
        parse(text)
    with pytest.raises(vkdml.InvalidArgumentError, match=rf"model: .*model\.json: found .*({message}).*; expected a DxDispatch model"):
        load_model(text)


def test_a_model_that_is_not_there(tmp_path):
    with pytest.raises(vkdml.InvalidArgumentError, match=r"nothing\.json: found .*No such file"):
        load(tmp_path / "nothing.json")


def changed(path, value):
    """The sample, with one thing changed. A path's last part in [] is appended or inserted; ... deletes."""
    model = json.loads(SAMPLE.read_text())
    *parents, last = path
    at = model
    for part in parents:
        at = at[part]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return model


RNN = ("dispatchables", "rnn")
DESC = (*RNN, "desc")
INPUT = (*DESC, "InputTensor")
FUSED = (*DESC, "ActivationDescs", 0)
BINDINGS = ("commands", 0, "bindings")
VALUES = ("resources", "input", "initialValues")
FLOAT32_INPUT = {"DataType": "FLOAT32", "Sizes": [1, 1, 8, 4]}

REFUSED = [
    (("resources",), ..., "resources: found nothing; expected an object"),
    (("commands",), {}, "commands: found {}; expected a list"),
    (("dispatchable",), {}, "dispatchable: found an unknown member; expected one of $schema, resources, dispatchables, commands"),
    # resources
    (("resources", "input"), 3, "resources.input: found 3; expected an object"),
    (("resources", "input", "initialOffset"), 4, "resources.input.initialOffset: found an unknown member; expected one of type, init"),
    (("resources", "input", "type"), "texture", 'resources.input.type: found "texture"; expected buffer'),
    (("resources", "input", "sizeInBytes"), 127, "resources.input.sizeInBytes: found 127; expected a whole number, 128 or more"),
    (("resources", "input", "sizeInBytes"), 2**33, "resources.input: found 8589934592 bytes; expected at least one value, and at most"),
    (("resources", "input", "initialValuesDataType"), ..., "resources.input.initialValuesDataType: found UNKNOWN or nothing"),
    (("resources", "input", "initialValuesDataType"), "FLOAT", 'initialValuesDataType: found "FLOAT"; expected one of UNKNOWN, FLOAT32'),
    (VALUES, ..., "resources.input.initialValues: found nothing; expected a list, or an object with value, valueStart or sourcePath"),
    (VALUES, "deferred", 'resources.input.initialValues: found "deferred"; expected a list, or'),
    (VALUES, {"valueCount": 3}, 'resources.input.initialValues: found {"valueCount": 3}; expected a list, or'),
    (VALUES, [], "resources.input: found 0 bytes; expected at least one value"),
    (VALUES, [1, "one"], 'resources.input.initialValues[1]: found "one"; expected a number that float32 holds, "nan", "inf" or "-inf"'),
    (VALUES, [True], "resources.input.initialValues[0]: found true; expected a number"),
    (VALUES, [1e39], "resources.input.initialValues[0]: found 1e+39; expected a number that float32 holds"),
    (VALUES, [10**400], "resources.input.initialValues[0]: found 1000"),
    (VALUES, {"valueCount": 0, "value": 1}, "resources.input.initialValues.valueCount: found 0; expected a whole number, 1 or more"),
    (VALUES, {"valueCount": 2**31, "value": 1}, "resources.input.initialValues.valueCount: found 2147483648; expected values of at most"),
    (VALUES, {"valueCount": 3, "valueStart": 1}, "resources.input.initialValues.valueDelta: found nothing; expected a number"),
    (VALUES, {"valueCount": 3, "valueStart": 1, "value": 1}, "resources.input.initialValues.valueStart: found both value and valueStart"),
    (VALUES, {"valueCount": 3, "value": 1, "valueDelta": 1}, "resources.input.initialValues.valueDelta: found an unknown member"),
    (VALUES, {"sourcePath": "none.bin"}, "resources.input.initialValues.sourcePath: found none.bin ("),
    (VALUES, {"sourcePath": "model.json", "value": 1}, "resources.input.initialValues.value: found an unknown member"),
    (("resources", "input"), {"initialValues": {"sourcePath": "cat.jpg"}, "initialValuesDataType": "FLOAT32", "resampleSize": [1, 3, 2, 2]},
     "resources.input.initialValues.sourcePath: found the image cat.jpg; expected a .npy or a file of raw data"),
    (("resources", "input"), {"initialValues": {"sourcePath": "none.npy"}}, "resources.input.initialValues.sourcePath: found none.npy ("),
    (("resources", "input"), {"initialValues": {"sourcePath": "a.bin"}}, "resources.input.initialValuesDataType: found UNKNOWN or nothing"),
    (("resources", "input"), {"initialValuesDataType": "INT8", "initialValues": [1.0]}, "initialValues[0]: found 1.0; expected a number that int8 holds"),
    (("resources", "input"), {"initialValuesDataType": "UINT8", "initialValues": [256]}, "initialValues[0]: found 256; expected a number that uint8 holds"),
    (("resources", "input"), {"initialValuesDataType": "UINT8", "initialValues": ["nan"]}, 'initialValues[0]: found "nan"; expected a number that uint8'),
    (("resources", "input"), {"initialValues": [1]}, "resources.input.initialValues[0]: found 1; expected an object"),
    (("resources", "input"), {"initialValues": [{"type": "UNKNOWN", "value": 1}]}, "resources.input.initialValues[0].type: found UNKNOWN or nothing"),
    (("resources", "input"), {"initialValues": [{"type": "INT8", "values": 1}]}, "resources.input.initialValues[0].values: found an unknown member"),
    # dispatchables
    (RNN, {"type": "hlsl", "sourcePath": "a.hlsl", "compiler": "dxc"}, 'dispatchables.rnn.type: found "hlsl"; expected one of GRU, LSTM, RNN'),
    (RNN, {"type": "onnx", "sourcePath": "a.onnx"}, 'dispatchables.rnn.type: found "onnx"; expected one of'),
    (RNN, {"type": "dmlSerializedGraph", "sourcePath": "a"}, 'dispatchables.rnn.type: found "dmlSerializedGraph"'),
    ((*RNN, "type"), "DML_OPERATOR_GEMM", 'dispatchables.rnn.type: found "DML_OPERATOR_GEMM"; expected one of'),
    ((*RNN, "type"), "ACTIVATION_SOFTMAX", 'dispatchables.rnn.type: found "ACTIVATION_SOFTMAX"; expected one of'),
    ((*RNN, "type"), ..., "dispatchables.rnn.type: found nothing; expected a string"),
    ((*RNN, "Type"), "RNN", "dispatchables.rnn.type: found both Type and type; expected only one of them"),
    ((*RNN, "Desc"), {}, "dispatchables.rnn.desc: found both Desc and desc; expected only one of them"),
    ((*RNN, "desc"), ..., "dispatchables.rnn.Direction: found None; expected one of FORWARD"),
    ((*RNN, "bindings"), {"WeightTensor": "weights"}, "dispatchables.rnn.bindings: found an unknown member; expected one of type, desc, exec"),
    ((*RNN, "executionFlags"), ["NONE", "FAST"], 'dispatchables.rnn.executionFlags[1]: found "FAST"; expected one of NONE, ALLOW_HALF'),
    ((*RNN, "dmlCompileType"), "Graph", 'dispatchables.rnn.dmlCompileType: found "Graph"; expected DmlCompileOp or DmlCompileGraph'),
    ((*DESC, "Direction"), "SIDEWAYS", 'dispatchables.rnn.desc.Direction: found "SIDEWAYS"; expected one of FORWARD, BACKWARD'),
    ((*DESC, "Direction"), 2, "dispatchables.rnn.desc.Direction: found 2; expected one of FORWARD"),
    ((*DESC, "Direction"), ..., "dispatchables.rnn.desc.Direction: found None; expected one of FORWARD"),
    ((*DESC, "LinearBeforeReset"), True, "dispatchables.rnn.desc.LinearBeforeReset: found an unknown member; expected one of InputTensor"),
    ((*DESC, "ActivationDescCount"), 3, "dispatchables.rnn.desc.ActivationDescs: found 2 (ActivationDescCount 3)"),
    ((*DESC, "ActivationDescs"), ..., "dispatchables.rnn.desc.ActivationDescs: found None; expected a list of 2"),
    ((*FUSED, "Type"), "GRU", 'dispatchables.rnn.desc.ActivationDescs[0].Type: found "GRU"; expected one of ACTIVATION_'),
    ((*FUSED, "Alpha"), "0.5", 'dispatchables.rnn.desc.ActivationDescs[0].Alpha: found "0.5"; expected a number'),
    ((*FUSED, "Alpha"), "inf", "dispatchables.rnn.desc.ActivationDescs[0].Alpha: found inf; expected a finite float32"),
    ((*FUSED, "Alpha"), ..., "dispatchables.rnn.desc.ActivationDescs[0].Alpha: found None; expected a finite float32"),
    ((*FUSED, "Beta"), 1, "dispatchables.rnn.desc.ActivationDescs[0].Beta: found an unknown member; expected one of InputTensor"),
    ((*FUSED, "InputTensor"), FLOAT32_INPUT, "dispatchables.rnn.desc.ActivationDescs[0].InputTensor: found a tensor; expected None"),
    (FUSED, {"Type": "ACTIVATION_ELU", "Desc": {"Alpha": 1}, "Alpha": 2}, "ActivationDescs[0].Alpha: found an unknown member; expected one of Type, Desc"),
    ((*INPUT, "DataType"), "DML_TENSOR_TYPE_BUFFER", 'dispatchables.rnn.desc.InputTensor.DataType: found "DML_TENSOR_TYPE_BUFFER"'),
    ((*INPUT, "DataType"), "INT8", "dispatchables.rnn.desc.InputTensor.DataType: found INT8; expected FLOAT32 or FLOAT16"),
    ((*INPUT, "DataType"), ..., "dispatchables.rnn.desc.InputTensor.DataType: found None; expected FLOAT32 or FLOAT16"),
    ((*INPUT, "Sizes"), [1, 1, 8, 4.0], "dispatchables.rnn.desc.InputTensor.Sizes[3]: found 4.0; expected a whole number"),
    ((*INPUT, "Sizes"), [True, 1, 8, 4], "dispatchables.rnn.desc.InputTensor.Sizes[0]: found true; expected a whole number"),
    ((*INPUT, "Sizes"), [1, 1, 8, 5], "dispatchables.rnn.desc.WeightTensor.Sizes: found (1, 2, 5, 4); expected (1, 2, 5, 5)"),
    ((*INPUT, "Flags"), "OWNED_BY_DML", "dispatchables.rnn.desc.InputTensor.Flags: found OWNED_BY_DML; expected NONE"),
    ((*INPUT, "Flags"), ["DML_TENSOR_FLAGS_NONE"], 'dispatchables.rnn.desc.InputTensor.Flags[0]: found "DML_TENSOR_FLAGS_NONE"'),
    ((*INPUT, "Type"), "INVALID", "dispatchables.rnn.desc.InputTensor.Type: found"),
    ((*INPUT, "Stride"), [1], "dispatchables.rnn.desc.InputTensor.Stride: found an unknown member; expected one of DataType, Sizes"),
    (INPUT, {"Desc": FLOAT32_INPUT | {"Type": "BUFFER"}}, "dispatchables.rnn.desc.InputTensor.Desc.Type: found an unknown member"),
    (INPUT, ..., "dispatchables.rnn.desc.InputTensor: found NoneType; expected DML_TENSOR_DESC"),
    # commands
    (("commands", 1), 7, "commands[1]: found 7; expected an object"),
    (("commands", 1, "type"), "show", 'commands[1].type: found "show"; expected one of dispatch, print, writeFile'),
    (("commands", 1, "verbose"), True, "commands[1].verbose: found an unknown member; expected one of resource"),
    (("commands", 1, "resource"), "outputs", 'commands[1].resource: found "outputs"; expected one of input, weights, recurrence, output'),
    (("commands", 1, "resource"), ..., "commands[1].resource: found nothing; expected a string"),
    (("commands", 1), {"type": "writeFile", "resource": "output"}, "commands[1].targetPath: found nothing; expected a string"),
    (("commands", 1), {"type": "writeFile", "resource": "none", "targetPath": "a.npy"}, 'commands[1].resource: found "none"'),
    (("commands", 1), {"type": "writeFile", "resource": "none", "targetPath": "a.bin"}, 'commands[1].resource: found "none"'),
    (("commands", 1), {"type": "writeFile", "resource": "output", "targetPath": "a.PNG"}, "commands[1].targetPath: found the image"),
    (("commands", 1), {"type": "writeFile", "resource": "output", "targetPath": "a.npy", "dimensions": [9, 9]},
     "commands[1].dimensions: found [9, 9]; expected at most the 80 elements of output"),
    (("commands", 1), {"type": "writeFile", "resource": "output", "targetPath": "a.dat", "dimensions": [8]},
     "commands[1].dimensions: found an unknown member"),
    (("commands", 0, "dispatchable"), "gru", 'commands[0].dispatchable: found "gru"; expected one of rnn'),
    (("commands", 0, "threadGroupCount"), [1, 1, 1], "commands[0].threadGroupCount: found an unknown member"),
    (BINDINGS, ..., "commands[0].bindings: found nothing; expected an object"),
    ((*BINDINGS, "WeightTensor"), ..., "commands[0].bindings.WeightTensor: found nothing; expected a resource's name"),
    ((*BINDINGS, "BiasTensor"), "input", "commands[0].bindings.BiasTensor: found an unknown member; expected one of InputTensor, WeightTensor"),
    ((*BINDINGS, "InputTensor"), "inputs", 'commands[0].bindings.InputTensor.name: found "inputs"; expected one of input, weights'),
    ((*BINDINGS, "InputTensor"), ["input", "input"], 'commands[0].bindings.InputTensor: found ["input", "input"]; expected a resource'),
    ((*BINDINGS, "InputTensor"), {"name": "input", "shape": [1]}, "commands[0].bindings.InputTensor.shape: found an unknown member"),
    ((*BINDINGS, "InputTensor"), {"name": "input", "elementOffset": -1}, "commands[0].bindings.InputTensor.elementOffset: found -1"),
    ((*BINDINGS, "InputTensor"), {"name": "input", "elementOffset": 1}, "commands[0].bindings.InputTensor: found 124 bytes of input; expected 128 bytes"),
    ((*BINDINGS, "InputTensor"), {"name": "input", "elementOffset": 99}, "commands[0].bindings.InputTensor: found 0 bytes of input"),
    ((*BINDINGS, "InputTensor"), {"name": "weights", "elementCount": 31}, "commands[0].bindings.InputTensor: found 124 bytes of weights"),
    ((*BINDINGS, "OutputSingleTensor"), "weights", "commands[0].bindings.OutputSingleTensor: found 160 bytes of weights; expected 320 bytes"),
]


@pytest.mark.parametrize(("path", "value", "message"), REFUSED, ids=[message[:60] for *_, message in REFUSED])
def test_refused_before_any_work(run_model, tmp_path, monkeypatch, path, value, message):
    (tmp_path / "a.bin").write_bytes(bytes(8))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(vkdml.CommandRecorder, "execute", lambda self: pytest.fail("something was dispatched"))
    with pytest.raises(vkdml.InvalidArgumentError) as refused:
        run_model(changed(path, value))
    assert str(refused.value).startswith("model: ")
    assert message in str(refused.value)
    assert message.startswith(refused.value.field) or refused.value.field.endswith(message.partition(": ")[0])


@pytest.mark.parametrize("command", [{"type": "print", "resource": "r"}, {"type": "writeFile", "resource": "r", "targetPath": "a.npy"}])
def test_values_of_different_types_have_no_type(load_model, command):
    model = {"resources": {"r": {"initialValues": [{"type": "INT8", "value": 1}]}}, "dispatchables": {}, "commands": [command]}
    with pytest.raises(vkdml.InvalidArgumentError, match=r"commands\[0\].resource: found r, of type UNKNOWN"):
        load_model(model)


@pytest.mark.parametrize(("content", "message"), [
    (b"no npy", r"sourcePath: found r\.npy \("),
    (np.zeros(3, complex), r'sourcePath: found "COMPLEX128"; expected one of'),
    (np.zeros(3, np.int8), r"initialValuesDataType: found FLOAT32; expected INT8, the type of r\.npy"),
    (np.array([None]), r"sourcePath: found r\.npy \(Object arrays"),
])
def test_refused_npy_files(load_model, tmp_path, content, message):
    if isinstance(content, bytes):
        (tmp_path / "r.npy").write_bytes(content)
    else:
        np.save(tmp_path / "r.npy", content)
    with pytest.raises(vkdml.InvalidArgumentError, match=r"model: resources\.r\.(initialValues\.)?" + message):
        load_model({"resources": {"r": {"initialValues": {"sourcePath": "r.npy"}, "initialValuesDataType": "FLOAT32"}},
                    "dispatchables": {}, "commands": []})


def test_raw_data_is_whole_values(load_model, tmp_path):
    (tmp_path / "r.bin").write_bytes(bytes(7))
    with pytest.raises(vkdml.InvalidArgumentError, match=r"resources\.r\.initialValues\.sourcePath: found r\.bin \("):
        load_model({"resources": {"r": {"initialValues": {"sourcePath": "r.bin"}, "initialValuesDataType": "FLOAT32"}},
                    "dispatchables": {}, "commands": []})


def test_what_the_device_refuses_is_refused_before_the_first_command(load_model, device, tmp_path, monkeypatch):
    model = load_model({"resources": {"r": zeros(1)}, "dispatchables": {"op": relu(1)}, "commands": [
        {"type": "writeFile", "resource": "r", "targetPath": str(tmp_path / "out.bin")}]})
    monkeypatch.setenv("VKDML_SCHEDULE", "fast")
    with pytest.raises(vkdml.InvalidArgumentError, match="model: dispatchables.op: VKDML_SCHEDULE: found 'fast'"):
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
