"""The base of DirectML's structures. As in C, they can be made with their fields, or empty and then filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import wraps
from typing import Any, dataclass_transform

from ...errors import FieldError

# Fields that become tuples, so that descriptors can be compared and hashed
_LISTS = ("Sizes", "Strides", "Offsets", "ActivationDescs", "InputTensors", "InputWindowOffsets", "InputWindowSizes",
          "InputWindowStrides")


@dataclass_transform(field_specifiers=(field,))
class Structure:
    """A dataclass of the fields that a subclass declares. Wrong arguments raise FieldError instead of TypeError.

    Without any arguments it is empty, to be filled as in C: fields without a default are None. Lists become tuples, so that
    structures can be compared and hashed; the checks of operators refuse anything else.
    """

    def __init_subclass__(cls, kw_only: bool = False) -> None:
        structure: Any = dataclass(unsafe_hash=True, kw_only=kw_only)(cls)
        init, empty = structure.__init__, {field.name: None for field in fields(structure) if _is_needed(field)}

        @wraps(init)
        def checked(self: Any, *values: Any, **named: Any) -> None:
            try:
                init(self, *values, **(named if values or named else empty))
            except TypeError:
                _check(structure, values, named)
                raise

        structure.__init__ = checked

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dataclass_fields__:  # type: ignore[attr-defined]
            _check(type(self), (), {name: value})
        if name in _LISTS and not isinstance(value, str):
            with suppress(TypeError):
                value = tuple(value)
        super().__setattr__(name, value)


def _is_needed(field: Field[Any]) -> bool:
    return field.default is field.default_factory is MISSING


def _check(cls: Any, values: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Raises FieldError unless a structure can be made of these arguments."""
    known = fields(cls)
    names, in_order = [field.name for field in known], [field.name for field in known if not field.kw_only]
    for name in named:
        if name not in names:
            raise FieldError(cls.__name__, name, "the name of no field", f"one of {', '.join(names)}")
    if len(values) > len(in_order):
        allowed = f"at most {len(in_order)}: {', '.join(in_order)}" if in_order else f"names for all: {', '.join(names)}"
        raise FieldError(cls.__name__, "fields", f"{len(values)} without a name", allowed)
    for name in in_order[:len(values)]:
        if name in named:
            raise FieldError(cls.__name__, name, "a value by place and one by name", "one")
    needed = [field.name for field in known if _is_needed(field)]
    missing = [name for name in needed if name not in (*in_order[:len(values)], *named)]
    if missing:
        raise FieldError(cls.__name__, ", ".join(missing), "nothing", f"a value for each of {', '.join(needed)}")
