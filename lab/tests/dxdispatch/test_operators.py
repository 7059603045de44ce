"""DxDispatch's dispatchables: all fields of their descriptors, and resources bound in every way."""

from dataclasses import replace

import numpy as np
import pytest

import vkdml
from lab.tests.dxdispatch.support import long, one_operator, relu, zeros
from vkdml.operators import activations, element_types
from vkdml.operators.header import descs
from vkdml.operators.problem import from_desc
from vkdml_lab.dxdispatch import Printed
from vkdml_lab.fuzz.json_models import array_resource, short
from vkdml_lab.suite.support import CELLS, DTYPES, Case, assert_close, check, make_desc, random_arrays, tensor

FLOAT16 = descs.DML_TENSOR_DATA_TYPE.FLOAT16


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
    parameters = {"Alpha": 0.75, "Beta": 0.5, "Gamma": 1.5, "Bias": 0.25, "Threshold": 0.5, "Steepness": 2.0,
                  "SigmoidInputScale": 1.25}
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
