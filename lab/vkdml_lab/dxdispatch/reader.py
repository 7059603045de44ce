"""Readers of DxDispatch's JSON models: JSON with comments, numbers, and DirectML's structures and enumerations.

A reader takes the place of a value in the model, such as resources.x.sizeInBytes, and the value. It returns what the value
stands for, or raises an InvalidArgumentError that names the place.

Sources: DxDispatch's guide, "Dispatchable: DirectML Operator"; its parser (JsonParsers.cpp) where the guide leaves something
open.
"""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from enum import IntEnum, IntFlag
from functools import partial
from typing import Any

import numpy as np

from vkdml import InvalidArgumentError
from vkdml_lab.internals import ACTIVATIONS, OPERATOR_TYPES, descs, device_descs

Reader = Callable[[str, Any], Any]

_DEEPEST = 64  # lists and objects in one another: Python's own limit depends on its version and on who calls

# What has no end is matched to the end of the text: else the search would begin again at each character, and go to the end
_STRING = r'"(?:\\.|[^"\\])*"?'
_COMMENT = re.compile(rf"({_STRING})|//[^\n]*|/\*.*?\*/|(?P<endless>/\*.*)", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"({_STRING}|[\[{{]\s*,)|,(?=\s*[\]}}])", re.DOTALL)
_BRACKET = re.compile(rf"{_STRING}|([\[{{])|[\]}}]", re.DOTALL)


def parse(text: str) -> Any:
    """Parse JSON that may have comments and trailing commas, as DxDispatch's parser allows. Raises ValueError.

    A member that is given twice and text after the end are refused; DxDispatch's parser ignores both.
    """
    for pattern in (_COMMENT, _TRAILING_COMMA):
        text = pattern.sub(_blank, text)
    _check_depth(text)
    return json.loads(text, object_pairs_hook=_without_doubles, parse_constant=_refuse_constant)


def _check_depth(text: str) -> None:
    depth = 0
    for match in _BRACKET.finditer(text):
        depth += 0 if match[0][0] == '"' else 1 if match[1] else -1
        if depth > _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} lists and objects in one another")


def _blank(match: re.Match[str]) -> str:
    """Replaces a match by spaces, so that an error's line and column are the file's. What is in a group is kept."""
    return match[0] if match.lastindex else re.sub(r"\S", " ", match[0])


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for name, count in Counter(name for name, _ in pairs).items():
        if count > 1:
            raise ValueError(f"{name!r} is given {count} times")
    return dict(pairs)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON; write it as a string")


def refusal(place: str, found: object, expected: str) -> InvalidArgumentError:
    return InvalidArgumentError("model", place.lstrip("."), found, expected)


@contextmanager
def placed(place: str) -> Iterator[None]:
    """Puts the place in the model in front of an operator's or a device's error. `place` ends in a separator: "." or ": "."""
    try:
        yield
    except InvalidArgumentError as error:
        error.args = (f"model: {place}{str(error).removeprefix(f'{error.operator}: ')}",)
        error.operator, error.field = "model", f"{place}{error.field}"
        raise


def show(value: object) -> str:
    """A value for an error message: as JSON, shortened to 100 characters."""
    text = "nothing" if value is None else json.dumps(value)
    return text if len(text) <= 100 else text[:97] + "..."


def members(place: str, value: object, known: Collection[str] | None = None) -> dict[str, Any]:
    """An object's members but those that are null, which is the same as absent. known: the allowed names, or None for any."""
    if not isinstance(value, dict):
        raise refusal(place, show(value), "an object")
    for name in value:
        if known is not None and name not in known:
            raise refusal(f"{place}.{name}", "an unknown member", "one of " + ", ".join(known))
    return {name: member for name, member in value.items() if member is not None}


def either(place: str, given: Mapping[str, Any], *names: str) -> str | None:
    """The only one of these names among the members, or None. Refuses more than one."""
    found = [name for name in names if name in given]
    if len(found) > 1:
        raise refusal(f"{place}.{found[1]}", f"both {found[0]} and {found[1]}", "only one of them")
    return found[0] if found else None


def text(place: str, value: object) -> str:
    if not isinstance(value, str):
        raise refusal(place, show(value), "a string")
    return value


def integer(place: str, value: object, least: int = 0) -> int:
    if type(value) is not int or value < least:
        raise refusal(place, show(value), f"a whole number, {least} or more")
    return value


def boolean(place: str, value: object) -> bool:
    if type(value) not in (bool, int) or value not in (0, 1):
        raise refusal(place, show(value), "true or false")
    return bool(value)


def number(place: str, value: object, dtype: np.dtype) -> Any:
    """A number as a scalar of the dtype; refused if the dtype cannot hold it. Floats may be "nan", "inf" or "-inf"."""
    is_float = dtype.kind == "f"
    if is_float and isinstance(value, str) and value.lower() in ("nan", "inf", "-inf"):
        return dtype.type(value)
    if not isinstance(value, bool):
        try:  # struct refuses what an integer type cannot hold; numpy would wrap or truncate it
            scalar = np.frombuffer(struct.pack(dtype.char, value), dtype)[0]
            if np.isfinite(scalar):
                return scalar
        except (OverflowError, struct.error):
            pass
    raise refusal(place, show(value), f"a number that {dtype} holds" + (', "nan", "inf" or "-inf"' if is_float else ""))


def list_of(reader: Reader) -> Reader:
    def read(place: str, value: object) -> list[Any]:
        if not isinstance(value, list):
            raise refusal(place, show(value), "a list")
        return [reader(f"{place}[{i}]", item) for i, item in enumerate(value)]

    return read


def enum(kind: type[IntEnum] | type[IntFlag]) -> Reader:
    """A reader of members by their full name or without its prefix. The prefix of flags is singular: DML_TENSOR_FLAG_NONE."""
    prefix = kind.__name__.removesuffix("S") + "_"

    def read(place: str, value: object) -> Any:
        name = value.removeprefix(prefix) if isinstance(value, str) else ""
        if name not in kind.__members__:
            raise refusal(place, show(value), "one of " + ", ".join(kind.__members__))
        return kind[name]

    return read


def flags(kind: type[IntFlag]) -> Reader:
    """A reader of one flag or a list of flags."""
    def read(place: str, value: object) -> Any:
        one = enum(kind)
        return kind(sum(set(list_of(one)(place, value)))) if isinstance(value, list) else one(place, value)

    return read


data_type = enum(descs.DML_TENSOR_DATA_TYPE)


def tensor(place: str, value: object) -> descs.DML_TENSOR_DESC:
    """A DML_TENSOR_DESC. The fields of its Desc may also stand beside Type (guide: "DML_TENSOR_DESC")."""
    type_place, kind, at, desc = _typed(place, value)
    kind = descs.DML_TENSOR_TYPE.BUFFER if kind is None else enum(descs.DML_TENSOR_TYPE)(type_place, kind)
    absent = {"Flags": descs.DML_TENSOR_FLAGS.NONE, "GuaranteedBaseOffsetAlignment": 0}
    return descs.DML_TENSOR_DESC(kind, _structure(at, descs.DML_BUFFER_TENSOR_DESC, desc, absent))


def operator(place: str, value: object, beside: Collection[str] = (), known: Mapping[str, type[Any]] | None = None
             ) -> tuple[str, Any]:
    """A DML_*_OPERATOR_DESC, and the place of its fields, which may be in Desc or beside Type.

    beside: other members that may stand beside Type. known: the structures that are allowed, by type; by default all. Absent
    fields become None; the operator's checks refuse None where DirectML requires the field.
    """
    type_place, kind, at, desc = _typed(place, value, beside)
    known = known or _OPERATORS
    structure = known.get(text(type_place, kind).removeprefix("DML_OPERATOR_"))
    if structure is None:
        raise refusal(type_place, show(kind), "one of " + ", ".join(known))
    return at, _structure(at, structure, desc, {})


def graph(place: str, value: object, beside: Collection[str] = ()) -> tuple[str, device_descs.DML_GRAPH_DESC]:
    """A DML_GRAPH_DESC, and the place of its fields. Its nodes have names in the places of operators."""
    *_, at, desc = _typed(place, value, beside)
    return at, _structure(at, device_descs.DML_GRAPH_DESC, desc, dict.fromkeys(
        ("InputEdges", "OutputEdges", "IntermediateEdges"), ()))


def _node(place: str, value: object) -> device_descs.DML_OPERATOR_GRAPH_NODE_DESC:
    type_place, kind, at, desc = _typed(place, value)
    if enum(device_descs.DML_GRAPH_NODE_TYPE)(type_place, kind) != device_descs.DML_GRAPH_NODE_TYPE.OPERATOR:
        raise refusal(type_place, show(kind), "OPERATOR")
    node: device_descs.DML_OPERATOR_GRAPH_NODE_DESC = _structure(at, device_descs.DML_OPERATOR_GRAPH_NODE_DESC, desc, {})
    return node


def _edge(structure: type[Any]) -> Reader:
    return lambda place, value: _structure(place, structure, value, {})


def _activation(place: str, value: object) -> Any:
    return operator(place, value, known=_ACTIVATIONS)[1]


def _typed(place: str, value: object, beside: Collection[str] = ()) -> tuple[str, Any, str, Any]:
    """Parts of a description with a type: the place of the type, the type, the place of the fields, the object with these."""
    given = members(place, value)
    type_name = either(place, given, "Type", "type") or "type"
    desc_name = either(place, given, "Desc", "desc")
    if desc_name is None:
        rest = {name: member for name, member in given.items() if name not in (type_name, *beside)}
        return f"{place}.{type_name}", given.get(type_name), place, rest
    members(place, given, (type_name, desc_name, *beside))
    return f"{place}.{type_name}", given.get(type_name), f"{place}.{desc_name}", given[desc_name]


def _structure(place: str, structure: type[Any], value: object, absent: Mapping[str, Any]) -> Any:
    """One of DirectML's structures. absent: values of fields that are missing; those that it does not name are None."""
    kinds = {field.name: str(field.type) for field in fields(structure)}
    given = members(place, value, kinds)
    return structure(**{name: _FIELDS[kind](f"{place}.{name}", given[name]) if name in given else absent.get(name)
                        for name, kind in kinds.items()})


_ACTIVATIONS: dict[str, type[Any]] = {row.operator_type.name: desc for desc, row in ACTIVATIONS.items()}
_OPERATORS: dict[str, type[Any]] = {kind.name: desc for desc, kind in OPERATOR_TYPES.items()}

# The reader of a structure's field, by the field's annotation
_FIELDS: dict[str, Reader] = {
    "DML_TENSOR_DATA_TYPE": data_type,
    "DML_TENSOR_FLAGS": flags(descs.DML_TENSOR_FLAGS),
    "DML_RECURRENT_NETWORK_DIRECTION": enum(descs.DML_RECURRENT_NETWORK_DIRECTION),
    "DML_MATRIX_TRANSFORM": enum(descs.DML_MATRIX_TRANSFORM),
    "DML_SCALE_BIAS | None": lambda place, value: _structure(place, descs.DML_SCALE_BIAS, value, {}),
    "Sequence[int]": list_of(integer),
    "SignedNumbers": list_of(partial(integer, least=-2**31)),
    "Sequence[int] | None": list_of(integer),
    "Sequence[DML_OPERATOR_DESC | ActivationDesc]": list_of(_activation),
    "DML_OPERATOR_DESC | ActivationDesc | None": _activation,
    "Sequence[TensorDesc]": list_of(tensor),
    "TensorDesc": tensor,
    "TensorDesc | None": tensor,
    "bool": boolean,
    "float": partial(number, dtype=np.dtype(np.float32)),
    "int": integer,
    "int | None": integer,
    "str | None": text,
    "Any": text,  # an operator, which models have by name
    "Sequence[DML_GRAPH_NODE_DESC | DML_OPERATOR_GRAPH_NODE_DESC]": list_of(_node),
    **{f"Sequence[DML_GRAPH_EDGE_DESC | {structure.__name__}]": list_of(_edge(structure)) for structure in (
        device_descs.DML_INPUT_GRAPH_EDGE_DESC, device_descs.DML_OUTPUT_GRAPH_EDGE_DESC,
        device_descs.DML_INTERMEDIATE_GRAPH_EDGE_DESC)},
}
