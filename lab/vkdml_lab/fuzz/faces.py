"""The faces (ways to call vkdml) that the fuzzer tries: how each makes a call's arguments, and how it runs the call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import vkdml
import vkdml.onnx
import vkdml.pydirectml as dml
from vkdml.cli.common import onnxruntime_errors
from vkdml.faces.directml.compiled_operator import Operator as DirectMLOperator
from vkdml.operators import element_types
from vkdml.operators.activations import BY_DESC
from vkdml.operators.arguments import DEFAULT_ATTRIBUTES
from vkdml.operators.cells import STATES
from vkdml.operators.problem import WEIGHTS
from vkdml_lab.fuzz.breaking import Argument
from vkdml_lab.fuzz.calls import Call, Operator, dtype_of
from vkdml_lab.fuzz.face import Arrays, Face, Part, device
from vkdml_lab.suite.support import execute, initialize, make_outputs, read_output

# numpy's functions, layers and streams

_KINDS = {"WeightTensor": "weights", "RecurrenceTensor": "weights", "InputTensor": "required array",
          "SequenceLengthsTensor": "lengths"}


def _name(call: Call, field: str) -> str:
    """Return the name of an argument of vkdml.gru, lstm or rnn, such as "x", for a DirectML field, such as "InputTensor"."""
    name = call.operator.row.arguments[field]
    return name if "_" in name else name.lower()


def _numpy_arguments(call: Call) -> dict[str, Argument]:
    operator = call.operator
    arrays = {_name(call, field): Argument(array, _KINDS.get(field, "array")) for field, array in call.onnx_arrays.items()}
    flags = {attribute: Argument(operator.flag, "BOOL") for attribute in operator.row.flags.values()}
    return arrays | flags | {
        "direction": Argument(operator.direction, "direction"), "activations": Argument(operator.descs(), "activations"),
        "activation_alpha": Argument(None, "numbers"), "activation_beta": Argument(None, "numbers"),
        "clip": Argument(operator.clip, "clip"), "layout": Argument(call.layout, "layout"),
        "options": Argument(vkdml.Options(), "options"), "device": Argument(device(), "device")}


def _blamed(field: str) -> set[str]:
    """Return the names of arguments that may be wrong when an error has this field. "X" may be about x or w."""
    several = {"X": {"x", "w"}, "attributes": set(DEFAULT_ATTRIBUTES)}
    name = "sequence_lens" if field.startswith("sequence length of row") else field.split("[")[0]
    return several.get(name, {name if "_" in name else name.lower()})


def _whole(call: Call, results: Any) -> list[Part]:
    """Return the results of a whole call as a list of one Part. results: all outputs of the cell, in ONNX's shapes."""
    return [Part(call.problem, call.arrays, call.from_onnx(dict(zip(call.operator.row.outputs, results))))]


def _run_function(call: Call, values: dict[str, Any]) -> list[Part]:
    return _whole(call, getattr(vkdml, call.operator.row.kernel)(**values))


_CALLED = ("x", "initial_h", "initial_c", "sequence_lens")


def _layer(call: Call, values: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Make a layer from some of a call's values. Returns it, and the other values to call it with, by name."""
    made = {name: value for name, value in values.items() if name not in _CALLED}
    return getattr(vkdml, call.operator.cell)(**made), {name: values[name] for name in _CALLED if name in values}


def _run_layer(call: Call, values: dict[str, Any]) -> list[Part]:
    layer, called = _layer(call, values)
    return _whole(call, layer(**called))


def _stream_arguments(call: Call) -> dict[str, Argument]:
    arguments = _numpy_arguments(call)
    arguments.pop("sequence_lens", None)
    arguments["x"] = replace(arguments["x"], kind="stream's input")
    states: Arrays = {name: arguments.pop(name).value for name in ("initial_h", "initial_c") if name in arguments}
    return arguments | {"batch": Argument(call.batch, "batch"), "state": Argument(_all_states(call, states), "state")}


def _all_states(call: Call, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    shape = (call.batch, 1, call.operator.hidden) if call.layout else (1, call.batch, call.operator.hidden)
    names = [_name(call, field) for output, field in STATES.items() if output in call.operator.row.outputs]
    return {name: given.get(name, np.zeros(shape, dtype_of(call))) for name in names}


def _run_stream(call: Call, values: dict[str, Any]) -> list[Part]:
    """Run a call as a stream, in pieces of 1 to 3 steps. Returns a Part for each, to judge it from the state before it."""
    values = dict(values)
    batch, state, x = (values.pop(name) for name in ("batch", "state", "x"))
    layer, _ = _layer(call, values)
    stream = layer.stream(batch)
    stream.state = state
    if not (isinstance(x, np.ndarray) and x.shape == np.shape(call.onnx_arrays["InputTensor"])):
        stream.step(x)  # a broken x must be refused as a whole
    parts, axis, start = [], int(call.layout), 0
    while start < call.steps:
        count = 1 + (call.seed + start) % 3
        piece = x.take(range(start, min(start + count, call.steps)), axis)
        before, y, start = stream.state, stream.step(piece), start + count
        parts.append(_piece(call, piece, before, y, stream.state))
    return parts


def _piece(call: Call, x: np.ndarray, before: Arrays, y: np.ndarray, after: Arrays) -> Part:
    """Return a piece of a stream as a Part. x, y: its input and output. before, after: the stream's states, by name."""
    states = {field: before[_name(call, field)] for field in STATES.values() if field in call.operator.row.inputs}
    operator = replace(call.operator, given=tuple({*call.operator.given, *states} - {"SequenceLengthsTensor"}))
    piece = replace(call, operator=operator, steps=x.shape[int(call.layout)])
    in_onnx = {"InputTensor": x, **states}
    if call.layout:
        in_onnx = {field: np.moveaxis(array, 0, 1) for field, array in in_onnx.items()}
    arrays = {field: in_onnx[field].reshape(piece.problem.tensor(field).sizes) if field in in_onnx else call.arrays[field]
              for field in piece.arrays}
    results = {"OutputSequenceTensor": np.expand_dims(y, 2 if call.layout else 1)}
    results |= {output: after[_name(call, field)] for output, field in STATES.items() if output in call.operator.row.outputs}
    return Part(piece.problem, arrays, piece.from_onnx(results))


# ONNX

def _attributes(call: Call) -> dict[str, Argument]:
    operator, descs = call.operator, call.operator.descs()
    parameters = [[getattr(desc, field) for field in BY_DESC[type(desc)].fields] for desc in descs]
    more = call.seed % 3  # add ignored activations and parameters, and use other numbers than 1 for true
    given = {
        "hidden_size": Argument(operator.hidden, "hidden size"),
        "direction": Argument(operator.direction, "direction attribute"),
        "activations": Argument([BY_DESC[type(desc)].onnx_name for desc in descs] + ["Tanh"] * (len(descs) == 1 and more > 0),
                                "activations attribute"),
        "activation_alpha": Argument([values[0] for values in parameters if values] + [0.5] * more, "numbers attribute"),
        "activation_beta": Argument([values[1] for values in parameters if len(values) > 1] + [2.0] * more, "numbers attribute"),
        "clip": Argument(operator.clip, "clip attribute"), "layout": Argument(call.layout, "layout attribute"),
        "no_such": Argument(None, "no attribute")}
    return given | {name: Argument(int(operator.flag) * (1 + more), "flag attribute") for name in operator.row.flags.values()}


def _node(call: Call, values: Mapping[str, Any]) -> Any:
    attributes = {name: values[name] for name in _attributes(call)}
    fields = [field for field in call.operator.row.arguments if field in call.operator.row.inputs]
    return helper.make_node(call.operator.cell, [field if field in call.arrays else "" for field in fields],
                            list(call.operator.row.outputs),
                            **{name: value for name, value in attributes.items() if value is not None and value != []})


def _node_arguments(call: Call) -> dict[str, Argument]:
    arrays = {field: Argument(array, _KINDS.get(field, "array")) for field, array in call.onnx_arrays.items()}
    return {**_attributes(call), **arrays, "opset_version": Argument(22, "opset"), "device": Argument(device(), "device")}


def _run_node(call: Call, values: dict[str, Any]) -> list[Part]:
    inputs = {field: values[field] for field in call.arrays}
    results = vkdml.onnx.run_node(_node(call, values), inputs, values["device"], opset_version=values["opset_version"])
    return _whole(call, results)


def _model_arguments(call: Call) -> dict[str, Argument]:
    feeds = {field: Argument(array, "feed") for field, array in call.onnx_arrays.items() if field not in WEIGHTS}
    return {**_attributes(call), **feeds, "output_names": Argument(None, "names")}


def _run_model(call: Call, values: dict[str, Any]) -> list[Part]:
    """Run an ONNX model: the node with weights as initializers, then Identity nodes, which onnxruntime computes."""
    arrays = call.onnx_arrays
    types = {field: TensorProto.INT32 if field == "SequenceLengthsTensor" else helper.np_dtype_to_tensor_dtype(dtype_of(call))
             for field in (*arrays, *call.operator.row.outputs)}
    outputs = [f"{output} out" for output in call.operator.row.outputs]
    nodes = [_node(call, values), *(helper.make_node("Identity", [output], [name])
                                    for output, name in zip(call.operator.row.outputs, outputs))]
    graph = helper.make_graph(
        nodes, "fuzzed",
        [helper.make_tensor_value_info(field, types[field], [None] * array.ndim)
         for field, array in arrays.items() if field not in WEIGHTS],
        [helper.make_tensor_value_info(name, types[output], None) for name, output in zip(outputs, call.operator.row.outputs)],
        [numpy_helper.from_array(np.ascontiguousarray(array), field) for field, array in arrays.items() if field in WEIGHTS])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = {field: values[field] for field in arrays if field not in WEIGHTS}
    with onnxruntime_errors():  # onnxruntime itself refuses some models and feeds before the device sees them
        return _whole(call, vkdml.onnx.InferenceSession(model).run(values["output_names"], feeds))


# PyDirectML

_EXPRESSIONS = {"InputTensor": "input", "WeightTensor": "weight", "RecurrenceTensor": "recurrence", "BiasTensor": "bias",
                "HiddenInitTensor": "hidden_init", "CellMemInitTensor": "cell_mem_init",
                "SequenceLengthsTensor": "sequence_lengths", "PeepholeTensor": "peephole"}


def _graph_arguments(call: Call) -> dict[str, Argument]:
    operator, required = call.operator, call.operator.row.required
    flags = {"GRU": "linear_before_reset", "LSTM": "couple_input_forget"}
    rows = [(BY_DESC[type(desc)], desc) for desc in operator.descs()]
    fused = [dml.FusedActivation(row.operator_type, *(getattr(desc, field) for field in row.fields)) for row, desc in rows]
    given = {
        "activation_descs": Argument(fused, "fused activations"),
        "direction": Argument(dml.RecurrentNetworkDirection(call.desc.Direction), "direction number"),
        "output_options": Argument(dml.OutputOptions.Both, "enumeration")}
    if operator.cell in flags:
        given[flags[operator.cell]] = Argument(operator.flag, "BOOL")
    if operator.cell == "LSTM":
        given["clip_threshold"] = Argument(operator.clip, "clip")
    graph = dml.GraphBuilder(dml.Device())
    for index, (field, array) in enumerate(call.arrays.items()):
        made = dml.input_tensor(graph, index, dml.TensorDesc(getattr(call.desc, field).DataType, list(array.shape)))
        given[_EXPRESSIONS[field]] = Argument(made, "required expression" if field in required else "expression")
        given[f"data of {field}"] = Argument(array, "data")
    return given | {"graph": Argument(graph, None)}


def _run_graph(call: Call, values: dict[str, Any]) -> list[Part]:
    """Run a PyDirectML graph: the operator, and an identity activation of its last state."""
    values = dict(values)
    graph, data = values.pop("graph"), {field: values.pop(f"data of {field}") for field in call.arrays}
    bindings = [dml.Binding(values[_EXPRESSIONS[field]], array) for field, array in data.items()]
    made = getattr(dml, call.operator.row.kernel)(**values)
    cells = [made.cell_single] if call.operator.cell == "LSTM" else []
    outputs = [made.sequence, dml.activation_identity(made.single), *cells]
    results = dml.Device().compute(graph.build(dml.ExecutionFlags.NONE, outputs), bindings, outputs)
    return [Part(call.problem, call.arrays, dict(zip(call.operator.row.outputs, map(np.asarray, results))))]


# DirectML's life cycle

def _descriptor_arguments(call: Call) -> dict[str, Argument]:
    cell = call.operator.row
    weights = dict.fromkeys(("WeightTensor", "RecurrenceTensor"), "weights tensor")
    kinds = {field: "required tensor" if field in cell.required else "output tensor" if field in cell.outputs else "tensor"
             for field in cell.tensors if getattr(call.desc, field) is not None}
    given = {field: Argument(getattr(call.desc, field), kind) for field, kind in (kinds | weights).items()}
    given |= {flag: Argument(value, "BOOL") for flag, value in call.operator.flags.items()}
    given |= {"ActivationDescs": Argument(call.operator.descs(), "fused"),
              "Direction": Argument(call.desc.Direction, "direction number"),
              "clip": Argument(call.operator.clip, "clip"), "options": Argument(vkdml.Options(), "options")}
    compiled = device().compile_operator(DirectMLOperator(call.problem))
    buffers = {field: device().upload(array) for field, array in call.arrays.items()} | make_outputs(device(), compiled)
    return given | {f"buffer of {field}": Argument(buffer, "buffer") for field, buffer in buffers.items()}


def _run_descriptor(call: Call, values: dict[str, Any]) -> list[Part]:
    values = dict(values)
    clip, options = values.pop("clip"), values.pop("options")
    buffers = {field: values.pop(f"buffer of {field}") for field in call.problem.tensors if f"buffer of {field}" in values}
    compiled = device().compile_operator(device().create_operator(call.operator.row.desc(**values), clip=clip), options=options)
    initialize(device(), compiled, {})
    execute(device(), compiled, buffers, buffers)
    results = {field: read_output(compiled, field, buffers[field]) for field in call.operator.row.outputs}
    return [Part(call.problem, call.arrays, results)]


def _in_directml(operator: Operator) -> bool:
    return operator.type in element_types.IN_DIRECTML


def _clip_in_directml(operator: Operator) -> bool:
    return _in_directml(operator) and (operator.cell == "LSTM" or operator.clip is None)


FACES: dict[str, Face] = {
    "function": Face(lambda operator: True, _numpy_arguments, _run_function, has_layout=True, blamed=_blamed),
    "layer": Face(lambda operator: True, _numpy_arguments, _run_layer, has_layout=True, blamed=_blamed),
    "stream": Face(lambda operator: operator.direction == "forward", _stream_arguments, _run_stream, has_layout=True,
                   begins_with_work=True),
    "descriptor": Face(_in_directml, _descriptor_arguments, _run_descriptor),
    "node": Face(lambda operator: operator.is_onnx, _node_arguments, _run_node, has_layout=True),
    "model": Face(lambda operator: operator.is_onnx and operator.element in ("float32", "float16"), _model_arguments,
                  _run_model, has_layout=True),
    "graph": Face(_clip_in_directml, _graph_arguments, _run_graph),
}
if find_spec("torch"):
    from vkdml_lab.fuzz import torch_face

    FACES |= torch_face.FACES
