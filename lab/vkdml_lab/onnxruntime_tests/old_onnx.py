"""A plugin of pytest: what the tests import of the package onnx that newer versions of it do not have."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

_FLOAT8 = {"float8e4m3fn": TensorProto.FLOAT8E4M3FN, "float8e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ,
           "float8e5m2": TensorProto.FLOAT8E5M2, "float8e5m2fnuz": TensorProto.FLOAT8E5M2FNUZ}
_E4M3 = helper.tensor_dtype_to_np_dtype(TensorProto.FLOAT8E4M3FN)


def _module(name: str, **members: Any) -> None:
    made = ModuleType(name)
    vars(made).update(members)
    sys.modules.setdefault(name, made)


_module("onnx.mapping", TENSOR_TYPE_MAP={
    kind: SimpleNamespace(np_dtype=helper.tensor_dtype_to_np_dtype(kind)) for kind in helper.get_all_tensor_dtypes()
    if kind != TensorProto.UNDEFINED})
_module("onnx.reference.custom_element_types", **{
    name: np.dtype((np.uint8, {name: (np.uint8, 0)})) for name in _FLOAT8})  # bytes, with a name for what they are
for _target, _name, _function in (
        (helper, "float32_to_float8e4m3", lambda value, **_: int(np.array([value]).astype(_E4M3).view(np.uint8)[0])),
        (numpy_helper, "float8e4m3_to_float32", lambda bits, *_, **__: np.uint8(bits).view(_E4M3).astype(np.float32))):
    if not hasattr(_target, _name):
        setattr(_target, _name, _function)
