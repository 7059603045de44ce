"""Structures that say which of their fields is misspelled, missing or given twice."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Any

from ..errors import FieldError


def tell_fields(module: Mapping[str, Any]) -> None:
    """Make all structures of a module raise FieldError instead of TypeError. module: its globals(), at the module's end."""
    for cls in list(module.values()):
        if isinstance(cls, type) and dataclasses.is_dataclass(cls) and cls.__module__ == module["__name__"]:
            _tell_fields_of(cls)


def _tell_fields_of(cls: Any) -> None:
    init = cls.__init__

    @wraps(init)
    def checked(self: Any, *values: Any, **named: Any) -> None:
        try:
            init(self, *values, **named)
        except TypeError:
            _check(cls, values, named)
            raise

    cls.__init__ = checked


def _check(cls: Any, values: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Raises FieldError unless a structure can be made of these arguments."""
    fields = dataclasses.fields(cls)
    names, in_order = [field.name for field in fields], [field.name for field in fields if not field.kw_only]
    for name in named:
        if name not in names:
            near = get_close_matches(name.lower(), [one.lower() for one in names], 1)
            nearest = [one for one in names if one.lower() in near]
            raise FieldError(cls.__name__, name, "the name of no field",
                             " or else ".join([*nearest, f"one of {', '.join(names)}"]))
    if len(values) > len(in_order):
        allowed = f"at most {len(in_order)}: {', '.join(in_order)}" if in_order else f"names for all: {', '.join(names)}"
        raise FieldError(cls.__name__, "fields", f"{len(values)} without a name", allowed)
    for name in in_order[:len(values)]:
        if name in named:
            raise FieldError(cls.__name__, name, "a value by place and one by name", "one")
    needed = [field.name for field in fields if field.default is field.default_factory is dataclasses.MISSING]
    missing = [name for name in needed if name not in (*in_order[:len(values)], *named)]
    if missing:
        raise FieldError(cls.__name__, ", ".join(missing), "nothing", f"a value for each of {', '.join(needed)}")
