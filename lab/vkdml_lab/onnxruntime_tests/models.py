"""Models in the place of those that a source package leaves out, because they are no source: with the names, types and results
that the tests ask for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper, numpy_helper
from onnxruntime import datasets

FLOAT, DOUBLE, INT64, STRING = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.STRING
_ML = "ai.onnx.ml"
_info, _sparse = helper.make_tensor_value_info, helper.make_sparse_tensor_value_info


def model(nodes: Sequence[NodeProto], inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto],
          initializers: Mapping[str, np.ndarray] = {}, ml: int = 3) -> ModelProto:
    tensors = [numpy_helper.from_array(array, name) for name, array in initializers.items()]
    versions = [helper.make_opsetid("", 17), helper.make_opsetid(_ML, ml), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph(nodes, "tested", inputs, outputs, tensors), ir_version=8, opset_imports=versions)


def _one(operator: str, inputs: Sequence[ValueInfoProto], output: ValueInfoProto, initializers: Mapping[str, np.ndarray] = {},
         domain: str = "", **attributes: Any) -> ModelProto:
    """A model of one node."""
    names = [value.name for value in inputs] + list(initializers)
    node = helper.make_node(operator, names, [output.name], domain=domain, **attributes)
    return model([node], inputs, [output], initializers)


def _typed(name: str, kind: TypeProto) -> ValueInfoProto:
    return helper.make_value_info(name, kind)


def _sequence(name: str, element: int) -> ValueInfoProto:
    return _typed(name, helper.make_sequence_type_proto(helper.make_tensor_type_proto(element, None)))


def _map(key: int) -> TypeProto:
    return helper.make_map_type_proto(key, helper.make_tensor_type_proto(FLOAT, []))


def _zip_map(key: int, **labels: Any) -> ModelProto:
    output = _typed("Z", helper.make_sequence_type_proto(_map(key)))
    return _one("ZipMap", [_info("X", FLOAT, [None, 3])], output, domain=_ML, **labels)


def _matmul(rows: int | str) -> ModelProto:
    return _one("MatMul", [_info("X", FLOAT, [rows, 2])], _info("Y", FLOAT, [rows, 1]), {"W": np.array([[1], [2]], np.float32)})


def _digits() -> ModelProto:
    nodes = [helper.make_node("Flatten", ["Input3"], ["flat"]), helper.make_node("MatMul", ["flat", "W"], ["Plus214_Output_0"])]
    return model(nodes, [_info("Input3", FLOAT, [1, 1, 28, 28])], [_info("Plus214_Output_0", FLOAT, [1, 10])],
                 {"W": np.ones((784, 10), np.float32)})


def _reused() -> ModelProto:
    nodes = [helper.make_node(operator, inputs, [output]) for operator, inputs, output in (
        ("Add", ["inp0", "inp1"], "tsor0"), ("Sub", ["inp0", "inp1"], "tsor1"), ("Neg", ["tsor0"], "outp0"),
        ("Neg", ["tsor1"], "outp1"))]
    return model(nodes, [_info(name, FLOAT, [10]) for name in ("inp0", "inp1")],
                 [_info(name, FLOAT, [10]) for name in ("outp0", "outp1")])


def _external(folder: Path) -> ModelProto:
    """A model with its weights in a file beside it."""
    made = _one("Add", [_info("X", FLOAT, [64])], _info("Y", FLOAT, [64]), {"W": np.ones(64, np.float32)})
    tensor, = made.graph.initializer
    (folder / "model_with_orig_ext_data.bin").write_bytes(tensor.raw_data)
    return _moved_out(made, "model_with_orig_ext_data.bin")


def _absent() -> ModelProto:
    """A model whose weights are in no file: the caller hands them over."""
    made = _one("Add", [_info("X", INT64, [4])], _info("Y", INT64, [4]), {"Pads_not_on_disk": np.zeros(4, np.int64)})
    return _moved_out(made, "in_no_file.bin")


def _moved_out(made: ModelProto, location: str) -> ModelProto:
    tensor, = made.graph.initializer
    onnx.external_data_helper.set_external_data(tensor, location)
    tensor.ClearField("raw_data")
    return made


def _configured() -> ModelProto:
    made = _matmul(3)
    wanted = {"inter_op_num_threads": 5, "intra_op_num_threads": 2, "graph_optimization_level": 99, "enable_profiling": 1}
    helper.set_model_props(made, {"ort_config": json.dumps({"session_options": wanted})})
    return made


def _vectorized() -> ModelProto:
    nodes = [helper.make_node("DictVectorizer", ["float_input"], ["x"], domain=_ML, int64_vocabulary=range(5)),
             helper.make_node("LinearRegressor", ["x"], ["variable1"], domain=_ML, coefficients=[1., 0, 0, 0, 0],
                              intercepts=[24.752754])]
    return model(nodes, [_typed("float_input", _map(INT64))], [_info("variable1", FLOAT, [1, 1])], ml=1)


def _encoded() -> ModelProto:
    nodes = [helper.make_node("Identity", ["C0"], ["C00"]),
             helper.make_node("OneHotEncoder", ["C1"], ["C12"], domain=_ML, zeros=1,
                              cats_strings=[b"B\0B\0", b"?", b"C\0C\0", b"!"])]
    return model(nodes, [_info("C0", FLOAT, [1, 1]), _info("C1", STRING, [1, 3])],
                 [_info("C00", FLOAT, [1, 1]), _info("C12", FLOAT, [1, 3, 4])])


def _tree() -> ModelProto:
    splits, weights = [1.7999999523162842], [0.7284910678863525, 0.9134243130683899]
    node = helper.make_node(
        "TreeEnsemble", ["X"], ["variable"], domain=_ML, n_targets=1, tree_roots=[0], nodes_featureids=[2],
        nodes_splits=numpy_helper.from_array(np.array(splits)), nodes_modes=numpy_helper.from_array(np.zeros(1, np.uint8)),
        nodes_truenodeids=[0], nodes_trueleafs=[1], nodes_falsenodeids=[1], nodes_falseleafs=[1], leaf_targetids=[0, 0],
        leaf_weights=numpy_helper.from_array(np.array(weights)))
    return model([node], [_info("X", DOUBLE, [None, 4])], [_info("variable", DOUBLE, [None, 1])], ml=5)


def _adaptable() -> ModelProto:
    """A sum of two products; the weights of one of them may be given by a LoRA adapter."""
    nodes = [helper.make_node(operator, inputs, [output]) for operator, inputs, output in (
        ("MatMul", ["input_x", "W"], "base"), ("MatMul", ["input_x", "lora_param_a"], "low"),
        ("MatMul", ["low", "lora_param_b"], "more"), ("Add", ["base", "more"], "output"))]
    inputs = [_info("input_x", FLOAT, [4, 4]), _info("lora_param_a", FLOAT, [4, "rank"]),
              _info("lora_param_b", FLOAT, ["rank", 4])]
    return model(nodes, inputs, [_info("output", FLOAT, [4, 4])], {
        "W": np.arange(1, 17, dtype=np.float32).reshape(4, 4), "lora_param_a": np.zeros((4, 0), np.float32),
        "lora_param_b": np.zeros((0, 4), np.float32)})


def _sparse_constant() -> ModelProto:
    values = helper.make_tensor("values", FLOAT, [3], [1.764052391052246, 0.40015721321105957, 0.978738009929657])
    tensor = helper.make_sparse_tensor(values, helper.make_tensor("indices", INT64, [3], [2, 3, 5]), [3, 3])
    return _one("Constant", [], _sparse("values", FLOAT, [3, 3]), sparse_value=tensor)


_MODELS: Mapping[str, Callable[[], ModelProto]] = {
    "LabelEncoder": lambda: _one("LabelEncoder", [_info("input", STRING, [1, 1])], _info("variable", INT64, [1, 1]), domain=_ML,
                                 keys_strings=["4"], values_int64s=[3]),
    "abs_free_dimensions": lambda: _one("Abs", [
        _info("x", FLOAT, ["Dim1", "Dim2", 5], shape_denotation=["DATA_BATCH", "DATA_CHANNEL", ""])], _info("y", FLOAT, None)),
    "alloc_tensor_reuse": _reused,
    "identity_opt": lambda: _one("Identity", [_typed("x", helper.make_optional_type_proto(_sequence("", FLOAT).type))], _typed(
        "y", helper.make_optional_type_proto(_sequence("", FLOAT).type))),
    "identity_string": lambda: _one("Identity", [_info("input:0", STRING, [2, 2])], _info("output:0", STRING, [2, 2])),
    "logicaland": lambda: _one("And", [_info(name, TensorProto.BOOL, [2, 2]) for name in ("input1:0", "input:0")],
                               _info("output:0", TensorProto.BOOL, [2, 2])),
    "lora/two_params_lora_model": _adaptable,
    "matmul_1": lambda: _matmul(3),
    "matmul_2": lambda: _matmul("None"),
    "mlnet_encoder": _encoded,
    "mnist": _digits,
    "model_with_external_initializer_come_from_user": _absent,
    "model_with_valid_ort_config_json": _configured,
    "mul_1": lambda: onnx.load(datasets.get_example("mul_1.onnx")),
    "pipeline_vectorize": _vectorized,
    "sequence_construct": lambda: _one("SequenceConstruct", [_info(name, INT64, [2, 3]) for name in ("tensor1", "tensor2")],
                                       _sequence("output_sequence", INT64)),
    "sequence_insert": lambda: _one("SequenceInsert", [_sequence("input_seq", INT64), _info("tensor", INT64, [2, 3])],
                                    _sequence("output_sequence", INT64)),
    "sequence_length": lambda: _one("SequenceLength", [_sequence("X", FLOAT)], _info("Y", INT64, [])),
    "sparse_initializer_as_output": _sparse_constant,
    "sparse_to_dense_matmul": lambda: _one("SparseToDenseMatMul", [_sparse("sparse_A", FLOAT, [9, 9]), _info(
        "dense_B", FLOAT, [9, 9])], _info("dense_Y", FLOAT, [9, 9]), domain="com.microsoft"),
    "tree_ensemble_as_tensor": _tree,
    "zipmap_int64float": lambda: _zip_map(INT64, classlabels_int64s=[10, 20, 30]),
    "zipmap_stringfloat": lambda: _zip_map(STRING, classlabels_strings=["class1", "class2", "class3"]),
}


def write_missing(folder: Path) -> int:
    """Write the models that a folder of test data lacks. Returns how many."""
    missing = {folder / f"{name}.onnx": make for name, make in _MODELS.items() if not (folder / f"{name}.onnx").exists()}
    for path, make in missing.items():
        onnx.save(make(), path)
    path = folder / "model_with_orig_ext_data.onnx"
    if not path.exists():
        onnx.save(_external(folder), path)
    return len(missing)
