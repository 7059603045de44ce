"""The resources of DxDispatch's models: buffers with a size and initial values.

Sources: DxDispatch's guide, "Resources", and its parser (JsonParsers.cpp).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from vkdml import DML_TENSOR_DATA_TYPE, InvalidArgumentError
from vkdml_lab.internals import MAX_TENSOR_BYTES, files, read_npy, round_up

from .reader import data_type, either, integer, list_of, members, number, refusal, show, text

UNKNOWN = DML_TENSOR_DATA_TYPE.UNKNOWN
_MEMBERS = ("type", "initialValues", "initialValuesDataType", "sizeInBytes")


@dataclass(frozen=True)
class Folder:
    """The folder of the files that a model names, links followed. is_open: they may be wherever DxDispatch looks or writes."""

    path: Path
    is_open: bool

    def source(self, name: str) -> Path:
        if not self.is_open:
            return self._inside(name)
        return self.path / name if (self.path / name).exists() else Path(name)

    def _inside(self, name: str) -> Path:
        """Refuse a path outside of the folder."""
        root = self.path.resolve()
        path = (root / name).resolve()
        if not path.is_relative_to(root):
            raise ValueError(f"a path outside of {root}")
        return path

    def target(self, name: str) -> Path:
        return Path(name).absolute() if self.is_open else self._inside(name)

    @property
    def description(self) -> str:
        return "beside the model or in the current directory" if self.is_open else \
            "in the model's folder (allow_outside: anywhere, and in the current directory)"


@dataclass(frozen=True)
class Resource:
    """A buffer. values: the initial values, a flat array of the data type's dtype, or of uint8 if that is UNKNOWN.
    size_in_bytes: a multiple of 4.
    """

    data_type: DML_TENSOR_DATA_TYPE
    values: np.ndarray
    size_in_bytes: int

    def content(self) -> np.ndarray:
        """Its initial bytes: a new array of uint8 with the values, then zeros."""
        content = np.zeros(self.size_in_bytes, np.uint8)
        content[:self.values.nbytes] = self.values.view(np.uint8)
        return content


class Budget:
    """The bytes that a model may still ask for, before they are allocated: a short text can ask for very many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0

    def take(self, place: str, size: int) -> None:
        self._taken += size
        if self._taken > self._most:
            raise refusal(place, f"{self._taken} bytes with all before it",
                          f"at most {self._most} bytes of resources and tensors; max_bytes sets the limit")


def resource(folder: Folder, budget: Budget, place: str, value: object) -> Resource:
    """Read and check a resource. folder: that of the files that it names.

    Raises InvalidArgumentError, which names the place in the model.
    """
    given = members(place, value)
    kind = data_type(f"{place}.initialValuesDataType", given.get("initialValuesDataType", "UNKNOWN"))
    kind, values = _initial_values(folder, budget, place, given.get("initialValues"), kind)
    members(place, given, _MEMBERS)  # after the values: an image has more members, but the error must be about the image
    if given.get("type", "buffer") != "buffer":
        raise refusal(f"{place}.type", show(given["type"]), "buffer")
    size = integer(f"{place}.sizeInBytes", given.get("sizeInBytes", values.nbytes), values.nbytes)
    if not values.size or size > MAX_TENSOR_BYTES:
        raise refusal(place, f"{size} bytes", f"at least one value, and at most {MAX_TENSOR_BYTES} bytes")
    budget.take(f"{place}.sizeInBytes", size - values.nbytes)
    return Resource(kind, values, round_up(size, 4))


def refuse_images(place: str, path: Path) -> None:
    if path.suffix.lower() in (".jpg", ".png"):
        raise refusal(place, f"the image {path}", "a .npy or a file of raw data: images are not supported")


def _initial_values(folder: Folder, budget: Budget, place: str, value: object, kind: DML_TENSOR_DATA_TYPE
                    ) -> tuple[DML_TENSOR_DATA_TYPE, np.ndarray]:
    at, type_place = f"{place}.initialValues", f"{place}.initialValuesDataType"
    if isinstance(value, dict) and "sourcePath" in value:
        name = members(at, value, ("sourcePath",)).get("sourcePath")
        return _file(folder, budget, f"{at}.sourcePath", type_place, name, kind)
    if isinstance(value, list):
        values = _listed(at, type_place, value, kind)
        budget.take(at, values.nbytes)
        return kind, values
    return kind, _generated(budget, at, value, _dtype(type_place, kind))


def _listed(place: str, type_place: str, value: list[object], kind: DML_TENSOR_DATA_TYPE) -> np.ndarray:
    if kind == UNKNOWN:
        return np.frombuffer(b"".join(list_of(_typed_number)(place, value)), np.uint8)
    dtype = _dtype(type_place, kind)
    return np.array(list_of(partial(number, dtype=dtype))(place, value), dtype)


def _dtype(place: str, kind: DML_TENSOR_DATA_TYPE) -> np.dtype:
    if kind == UNKNOWN:
        raise refusal(place, "UNKNOWN or nothing", "the type of the values")
    return np.dtype(kind.name.lower())


def _typed_number(place: str, value: object) -> bytes:
    """An entry of a list of values of different types, as bytes. Its name has no meaning."""
    given = members(place, value, ("name", "type", "value"))
    dtype = _dtype(f"{place}.type", data_type(f"{place}.type", given.get("type")))
    return number(f"{place}.value", given.get("value"), dtype).tobytes()


def _constant(count: int, value: np.generic) -> np.ndarray:
    return np.full(count, value)


def _sequence(count: int, start: np.generic, delta: np.generic) -> np.ndarray:
    """Like DxDispatch, adds up in the values' own type: floats are rounded at each step, integers wrap."""
    steps = np.full(count, delta)
    steps[0] = start
    with np.errstate(over="ignore", invalid="ignore"):
        return np.add.accumulate(steps, dtype=steps.dtype)


# Member that tells the generators apart -> the numbers that one takes besides valueCount, and its function
_GENERATORS: dict[str, tuple[tuple[str, ...], Callable[..., np.ndarray]]] = {
    "value": (("value",), _constant),
    "valueStart": (("valueStart", "valueDelta"), _sequence),
}


def _generated(budget: Budget, place: str, value: object, dtype: np.dtype) -> np.ndarray:
    kind = either(place, value, *_GENERATORS) if isinstance(value, dict) else None
    if kind is None:
        raise refusal(place, show(value), "a list, or an object with value, valueStart or sourcePath")
    names, generate = _GENERATORS[kind]
    given = members(place, value, ("valueCount", *names))
    count = integer(f"{place}.valueCount", given.get("valueCount"), 1)
    if count * dtype.itemsize > MAX_TENSOR_BYTES:
        raise refusal(f"{place}.valueCount", count, f"values of at most {MAX_TENSOR_BYTES} bytes")
    numbers = [number(f"{place}.{name}", given.get(name), dtype) for name in names]
    budget.take(f"{place}.valueCount", count * dtype.itemsize)
    return generate(count, *numbers)


def _file(folder: Folder, budget: Budget, place: str, type_place: str, value: object, kind: DML_TENSOR_DATA_TYPE
          ) -> tuple[DML_TENSOR_DATA_TYPE, np.ndarray]:
    """The values in a .npy file, which has its own type, or in a file of raw data."""
    name = text(place, value)
    try:
        refuse_images(place, Path(name))
        path = folder.source(name)
        budget.take(place, path.stat().st_size)
        if path.suffix.lower() == ".npy":
            values = read_npy(path).reshape(-1)
        else:
            values = np.frombuffer(files.read(path), np.uint8).view(_dtype(type_place, kind))
    except InvalidArgumentError:  # a ValueError too
        raise
    except (OSError, ValueError) as error:  # ValueError: no .npy file, or not a whole number of values
        raise refusal(place, f"{name} ({error})", f"a file of values {folder.description}") from None
    found = data_type(place, values.dtype.name.upper())
    if kind not in (UNKNOWN, found):
        raise refusal(type_place, kind.name, f"{found.name}, the type of {name}")
    return found, values
