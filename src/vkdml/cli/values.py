"""A model's inputs and outputs in files: .npy for a tensor, .npz for a sequence of tensors, .json for (lists of) maps."""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..engine.vulkan import files
from ..errors import InvalidArgumentError, VkdmlError
from .argument_types import existing_file

# numpy's readers of the header of a .npy file, by the format's version. Version 3 is for structures with names in Unicode only
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}

# onnxruntime's name of a type -> the suffix of its file, and what to call it
_KINDS = {"tensor": (".npy", "an array"), "seq(tensor": (".npz", "arrays in order"), "map": (".json", "an object"),
          "seq(map": (".json", "a list of objects")}
_KIND = re.compile(r"(?:seq\()?(?:tensor|map)")


def read_npy(path: Path) -> np.ndarray:
    """The array of a .npy file, in this machine's byte order."""
    with files.open_regular(path) as file:
        try:
            _check_npy(file)
            file.seek(0)
            return _native(np.lib.format.read_array(file, allow_pickle=False))
        except OSError:
            raise
        except Exception as error:  # numpy evaluates the header as Python, and so raises almost anything
            raise ValueError(str(error) or type(error).__name__) from None


def read_npz(path: Path) -> list[np.ndarray]:
    """The arrays of a .npz file, in order, in this machine's byte order."""
    with files.open_regular(path) as file:
        try:
            with np.lib.npyio.NpzFile(file, allow_pickle=False) as arrays:
                return [_native(arrays[name]) for name in arrays.files]
        except OSError:
            raise
        except Exception as error:  # as above, and what zipfile and zlib raise
            raise ValueError(str(error) or type(error).__name__) from None


def _native(array: np.ndarray) -> np.ndarray:
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _check_npy(file: BinaryIO) -> None:
    """Refuse what the header says, before memory is allocated for it."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"version {version} of the format")
    shape, _, dtype = _HEADERS[version](file)
    rest, needed = files.length(file) - file.tell(), math.prod(shape) * dtype.itemsize
    if not dtype.hasobject and (not dtype.itemsize or min(shape, default=0) < 0 or needed > rest):
        raise ValueError(f"an array {shape} of {dtype} in {rest} bytes")


_READERS: dict[str, Callable[[Path], Any]] = {
    ".npy": read_npy, ".npz": read_npz, ".json": lambda path: json.loads(files.read(path))}


@dataclass(frozen=True)
class Given:
    """An input on the command line. value: what its file has."""

    name: str
    path: Path
    value: Any


def add_inputs(command: argparse.ArgumentParser, what: str) -> None:
    command.add_argument("--input", action="append", default=[], type=_given, metavar="NAME=FILE",
                         help=f"{what}; once for each input: a .npy file, .npz for a sequence of tensors, .json for maps")


def _given(text: str) -> Given:
    splits = [(text[:index], text[index + 1:]) for index, letter in enumerate(text) if letter == "="]
    if not splits:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE.npy")
    name, file = next((split for split in splits if Path(split[1]).is_file()), splits[0])  # name and path may contain "=", too
    path = existing_file(file)
    suffix = path.suffix if path.suffix in _READERS else ".npy"
    try:
        return Given(name, path, _READERS[suffix](path))
    except (ValueError, OSError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"{path} is no {suffix} file: {error}") from None


@contextmanager
def told_by_onnxruntime(before: str = "", after: str = "") -> Iterator[None]:
    """onnxruntime's exceptions, which have no class in common, become VkdmlErrors, whose message is all that is printed."""
    try:
        yield
    except VkdmlError:
        raise
    except Exception as error:
        if not isinstance(error, RuntimeError | TypeError | ValueError) and "onnxruntime" not in type(error).__module__:
            raise
        raise VkdmlError(f"{before}onnxruntime: {error}{after}") from error


def feed(given: Sequence[Given], session: Any, refuse: Callable[[str], Any]) -> dict[str, Any]:
    """What an InferenceSession is fed. Optional inputs and those that have an initializer may be left out.

    refuse: called with what is wrong; does not return.
    """
    inputs = session.get_inputs()
    declared = {value.name: value for value in (*inputs, *session.get_overridable_initializers())}
    by_name = {value.name: value for value in given}
    needed = {value.name for value in inputs if not value.type.startswith("optional")}
    if not needed <= by_name.keys() <= declared.keys() or len(given) != len(by_name):
        wanted = "; ".join(f"{value.name} {value.type} {value.shape}" for value in inputs) or "none"
        names = ", ".join(value.name for value in given) or "none"
        refuse(f"--input: given {names}; the model needs each of these once: {wanted}")
    left_out = {value.name: None for value in inputs}
    return left_out | {name: _fitting(value, declared[name].type, refuse) for name, value in by_name.items()}


def _fitting(given: Given, kind: str, refuse: Callable[[str], Any]) -> Any:
    found = _KIND.search(kind)
    suffix, what = _KINDS[found[0]] if found else _KINDS["tensor"]
    if given.path.suffix in _READERS and given.path.suffix != suffix:
        refuse(f"--input: {given.name}: {given.path}; the model needs {kind}, in a {suffix} file: {what}")
    if suffix != ".json":
        return given.value
    maps = given.value if what != "an object" else [given.value]
    if not isinstance(maps, list) or not all(isinstance(entry, dict) for entry in maps):
        refuse(f"--input: {given.name}: {given.path} has {type(given.value).__name__}; the model needs {kind}: {what}")
    key = int if "map(int" in kind else str
    try:
        maps = [{key(name): value for name, value in entry.items()} for entry in maps]
    except ValueError as error:
        refuse(f"--input: {given.name}: {given.path}: {error}; the model needs {kind}")
    return maps if what != "an object" else maps[0]


def save(results: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Write each output to a file of its name, with "_" for characters that a file's name cannot have. Returns the paths by
    output.
    """
    names = {name: re.sub(r"[/\0]", "_", name) for name in results}
    for name in names:
        if list(names.values()).count(names[name]) > 1:
            raise InvalidArgumentError("run", f"output {name}", f"another for the file {names[name]}", "a name of its own")
    folder.mkdir(parents=True, exist_ok=True)
    return {name: str(_save(results[name], folder / names[name])) for name in results}


def _save(value: Any, place: Path) -> Path:
    """Write a value, whose kind sets the suffix. place: the file without it. A name may have dots."""
    if isinstance(value, np.ndarray):
        path = place.with_name(f"{place.name}.npy")
        np.save(path, _storable(value))
    elif isinstance(value, list) and all(isinstance(entry, np.ndarray) for entry in value):
        path = place.with_name(f"{place.name}.npz")
        np.savez(path, *map(_storable, value))
    else:
        path = place.with_name(f"{place.name}.json")
        path.write_text(json.dumps(value, indent=1))
    return path


def _storable(array: np.ndarray) -> np.ndarray:
    """.npy has no bfloat16, and texts of Python's only as pickled objects."""
    stored = {"bfloat16": np.dtype(np.float32), "object": np.dtype(str)}.get(array.dtype.name, array.dtype)
    return array.astype(stored, copy=False)


def leaves(value: Any, path: str = "") -> dict[str, np.ndarray]:
    """The arrays in a value, by where they are in it; numbers and texts of maps as arrays without dimensions."""
    if isinstance(value, dict):
        return {at: leaf for key, inner in value.items() for at, leaf in leaves(inner, f"{path}[{key!r}]").items()}
    if isinstance(value, list):
        return {at: leaf for place, inner in enumerate(value) for at, leaf in leaves(inner, f"{path}[{place}]").items()}
    if isinstance(value, float):  # in a map, where it has lost its type
        return {path: np.array(value, np.float32)}
    return {path: value if isinstance(value, np.ndarray) else np.array(value)}
