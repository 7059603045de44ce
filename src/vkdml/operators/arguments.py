"""Makes DirectML descriptors from arguments in ONNX's shapes, for the numpy functions, the ONNX face and the reference."""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np

from ..errors import InvalidArgumentError, shown
from . import activations as activation_table
from . import checks, element_types
from .cells import Cell
from .checks import check_bytes, element_strides, evaluate, expect_sizes, is_one_of, least_size, packed_strides, span
from .element_types import ElementType
from .header import descs

Activations = Sequence[str] | Sequence[descs.DML_OPERATOR_DESC | descs.ActivationDesc]
Direction = Literal["forward", "reverse", "bidirectional"]
_DIRECTIONS = dict(zip(get_args(Direction), descs.DML_RECURRENT_NETWORK_DIRECTION))  # of DirectML, in the same order

DEFAULT_ATTRIBUTES: dict[str, Any] = {
    "direction": "forward", "activations": None, "activation_alpha": None, "activation_beta": None, "clip": None,
    "linear_before_reset": False, "input_forget": False, "layout": 0,
}
_MOST_NUMBERS = 64  # a larger array is no attribute


def with_defaults(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Add ONNX's defaults to attributes, and turn numpy's arrays and scalars into Python's lists and numbers."""
    return DEFAULT_ATTRIBUTES | {
        key: value.tolist() if isinstance(value, (np.ndarray, np.generic)) and value.size <= _MOST_NUMBERS else value
        for key, value in attributes.items()}


def convert(name: str, cell: Cell, arrays: Mapping[str, Any]) -> tuple[dict[str, np.ndarray | None], ElementType]:
    """Convert the arrays of a call to X's element type. Returns them by descriptor field, and that type.

    Raises InvalidArgumentError for an array that does not convert exactly, and for an X of float64 with weights of another
    type: numpy makes float64 of lists, and the device computes it many times slower.

    name: how error messages name the operator. arrays: by descriptor field; None or no entry where one is left out.
    """
    x, element = typed_array(name, cell, "InputTensor", arrays.get("InputTensor"))
    w = _as_array(name, cell, "WeightTensor", arrays.get("WeightTensor")) if element.pairs else None
    if w is not None and element_types.of(w.dtype) in element_types.SINGLE:
        raise InvalidArgumentError(name, cell.arguments["InputTensor"], x.dtype,
                                   f"{w.dtype}, the type of W: np.asarray(x, '{w.dtype}') rounds to it")
    given = dict(zip(cell.inputs, map(arrays.get, cell.inputs))) | {"InputTensor": x}
    return convert_to(name, cell, x.dtype.newbyteorder("="), "InputTensor", given), element


def typed_array(name: str, cell: Cell, field: str, value: Any) -> tuple[np.ndarray, ElementType]:
    """Convert the value of a required field to an array. Returns it with its element type.

    Raises InvalidArgumentError for a value that is no array, or of a type that operators do not take.
    """
    array = _as_array(name, cell, field, value)
    assert array is not None
    element = element_types.of(array.dtype)
    if element is None:
        hint = f" (vkdml.torch.{cell.name} takes sizes, as PyTorch's does)" if isinstance(value, int) else ""
        raise InvalidArgumentError(name, cell.arguments[field], array.dtype if array.ndim else f"{shown(value)}, no array",
                                   "one of " + ", ".join(row.name for row in element_types.ALL) + hint)
    return array, element


def convert_to(name: str, cell: Cell, dtype: np.dtype[Any], source: str, arrays: Mapping[str, Any]
               ) -> dict[str, np.ndarray | None]:
    """Convert arrays, by descriptor field, to a type; None stays None.

    Sequence lengths keep their integer type. An array that is not contiguous is copied only if `element_strides` cannot
    describe it. Raises InvalidArgumentError for an array that does not convert exactly.

    source: the field that has this type, for error messages.
    """
    converted: dict[str, np.ndarray | None] = {}
    for field, value in arrays.items():
        converted[field] = array = value if type(value) is np.ndarray else _as_array(name, cell, field, value)
        if array is None:
            continue
        if array.nbytes > checks.MAX_TENSOR_BYTES and (field != "InputTensor" or element_strides(array) is None):
            check_bytes(name, cell.arguments[field], array.nbytes)  # it is too large to copy
        if field == "SequenceLengthsTensor":
            if array.dtype.kind not in "iu":
                raise InvalidArgumentError(name, cell.arguments[field], array.dtype, "an integer type")
            converted[field] = np.asarray(array, order="C")  # np.ascontiguousarray would add a dimension to a scalar
            continue
        if array.dtype != dtype:
            if not np.can_cast(array.dtype, dtype, "safe"):
                argument, giver = cell.arguments[field], cell.arguments[source]
                raise InvalidArgumentError(name, argument, array.dtype,
                                           f"{dtype}, the type of {giver}, or one that converts to it exactly: "
                                           f"np.asarray({argument.lower()}, '{dtype}') rounds to it")
            array = array.astype(dtype, copy=False)
        is_describable = array.flags.c_contiguous or element_strides(array) is not None
        converted[field] = array if is_describable else np.ascontiguousarray(array)
    return converted


def _as_array(name: str, cell: Cell, field: str, array: Any) -> np.ndarray | None:
    if array is None:
        if field in cell.required:
            raise InvalidArgumentError(name, cell.arguments[field], "None", "an array")
        return None
    return as_array(name, cell.arguments[field], array)


def as_array(name: str, argument: str, value: Any) -> np.ndarray:
    """Convert a value with np.asarray. Raises InvalidArgumentError if that fails, and for an array with masked elements."""
    if type(value) is np.ndarray:
        return value
    if np.ma.is_masked(value):
        raise InvalidArgumentError(name, argument, "an array with masked elements", "one without, as its filled() returns")
    try:
        return np.asarray(value)
    except ValueError:
        raise InvalidArgumentError(name, argument, "lists of different lengths", "an array") from None
    except (TypeError, RuntimeError) as error:  # PyTorch raises these for a tensor on another device or with gradients
        raise InvalidArgumentError(name, argument, f"{type(value).__name__} ({error})", "an array") from None


def describe(name: str, cell: Cell, arrays: Mapping[str, np.ndarray | None], element: ElementType,
             attributes: Mapping[str, Any], wanted: Sequence[bool]) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """Make the DirectML descriptor of a call. Returns it, and the shape of each of its tensors in ONNX's dimensions.

    Inputs are described with the strides that their arrays have; outputs are packed.

    name: how error messages name the operator. arrays, element: what `convert` returned. attributes: ONNX's, all
    that `with_defaults` returns. wanted: for each of the cell's outputs, whether the call asks for it.
    Raises InvalidArgumentError for attributes and shapes that are wrong or do not fit each other.
    """
    direction, layout = attributes["direction"], attributes["layout"]
    if not isinstance(direction, str) or direction not in _DIRECTIONS:
        raise InvalidArgumentError(name, "direction", shown(direction), "one of " + ", ".join(_DIRECTIONS))
    if not is_one_of(layout, (0, 1)):
        raise InvalidArgumentError(name, "layout", shown(layout), "0 or 1")
    for attribute in cell.flags.values():
        if not isinstance(attributes[attribute], int):
            raise InvalidArgumentError(name, attribute, shown(attributes[attribute]), "a whole number, of which 0 is false")
    if attributes["clip"] is not None:
        activation_table.check_clip(name, "clip", attributes["clip"])
    sizes = _sizes(name, cell, arrays, layout, 2 if direction == "bidirectional" else 1)
    shapes, strides = {}, {}
    fields = {**{field: arrays[field] is not None for field in cell.inputs}, **dict(zip(cell.outputs, wanted))}
    for field, formulas in cell.tensors.items():
        if not fields[field]:
            continue
        dims = _onnx_dims(formulas, layout)
        shapes[field] = tuple(evaluate(dim, sizes) for dim in dims)
        array = arrays.get(field)
        if array is not None:
            expect_sizes(name, cell.arguments[field], array.shape, dims, sizes)
        steps = packed_strides(shapes[field]) if array is None else element_strides(array)
        assert steps is not None
        check_bytes(name, cell.arguments[field], least_size(shapes[field], steps, element.itemsize))
        strides[field] = [dict(zip(dims, steps)).get(formula, 0) for formula in formulas]
    desc = cell.desc(
        **{field: descs.DML_BUFFER_TENSOR_DESC(
            DataType=descs.DML_TENSOR_DATA_TYPE.UINT32 if field == "SequenceLengthsTensor" else element.data_type,
            Sizes=[evaluate(formula, sizes) for formula in cell.tensors[field]], Strides=steps)
            for field, steps in strides.items()},
        ActivationDescs=_activation_descs(name, cell, attributes, sizes["D"], element),
        Direction=_DIRECTIONS[direction],
        **{flag: attributes[attribute] != 0 for flag, attribute in cell.flags.items()},
    )
    return desc, shapes


def onnx_shape(cell: Cell, field: str, layout: int, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Compute the shape of a tensor in ONNX's dimensions. sizes: the values of T, B, I, H and D."""
    return tuple(evaluate(dim, sizes) for dim in _onnx_dims(cell.tensors[field], layout))


def _sizes(name: str, cell: Cell, arrays: Mapping[str, np.ndarray | None], layout: int, directions: int) -> dict[str, int]:
    x, w, r = given = [array for field in cell.required if (array := arrays[field]) is not None]
    for field, array in zip(cell.required, given):
        if array.ndim != 3 or 0 in array.shape:
            dims = ", ".join(_onnx_dims(cell.inputs[field], layout))
            hint = " (PyTorch's weights are 2-D, and have gates in another order: vkdml.torch takes them)"
            raise InvalidArgumentError(name, cell.arguments[field], f"the shape {array.shape}",
                                       f"[{dims}], none of them 0{hint if array.ndim == 2 and array is not x else ''}")
    t, b = (1, 0) if layout else (0, 1)
    return cell.sizes((x.shape[t], x.shape[b], x.shape[2]), w.shape, r.shape, directions)


def _onnx_dims(formulas: Sequence[str], layout: int) -> list[str]:
    """A tensor's dimensions in ONNX: DirectML's without those of size 1. With layout 1 the batch comes first."""
    dims = [formula for formula in formulas if formula != "1"]
    if layout and "B" in dims:
        dims.remove("B")
        dims.insert(0, "B")
    return dims


def _activation_descs(name: str, cell: Cell, attributes: Mapping[str, Any], directions: int, element: ElementType) -> list[Any]:
    given, count = attributes["activations"], cell.activations * directions
    alphas, betas = (_numbers(name, key, attributes[key]) for key in ("activation_alpha", "activation_beta"))
    if given is None:
        given = cell.default_activations * directions
    # ONNX's default for RNN lists two activations, which exporters write for one direction too: the second one is ignored
    counts = {count, 2} if cell.activations == 1 else {count}
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) not in counts:
        raise InvalidArgumentError(name, "activations", shown(given), f"a list of {' or '.join(map(str, sorted(counts)))}")
    given = list(given[:count])
    if all(isinstance(activation, str) for activation in given):
        return list(activation_table.from_onnx(name, given, alphas, betas))
    if alphas or betas:
        raise InvalidArgumentError(name, "activation_alpha or activation_beta", "values", "none: descriptors hold their own")
    for i, activation in enumerate(given):
        activation_table.fuse(name, f"activations[{i}]", activation, element)
    return given


def _numbers(name: str, attribute: str, values: Any) -> list[float]:
    if values is None:
        return []
    if isinstance(values, list | tuple) and all(isinstance(value, numbers.Real) for value in values):
        with contextlib.suppress(OverflowError):
            return [float(value) for value in values]
    raise InvalidArgumentError(name, attribute, shown(values), "a list of numbers")


def frozen(arrays: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Return read-only copies of arrays, by name, in a read-only mapping: a write to a copy would change nothing else."""
    copies = {name: array.copy() for name, array in arrays.items()}
    for array in copies.values():
        array.setflags(write=False)
    return MappingProxyType(copies)


def flat(array: np.ndarray) -> np.ndarray:
    """View an array's memory, from its first element to its last, as flat. `element_strides` must be able to describe it."""
    if array.flags.c_contiguous:
        return array.reshape(-1)
    strides = element_strides(array)
    assert strides is not None
    return np.lib.stride_tricks.as_strided(array, (span(array.shape, strides),), (array.itemsize,))
