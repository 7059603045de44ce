"""What the commands share: types of arguments, JSON, and files of a model's inputs and outputs.

A tensor is in a .npy file, a sequence of tensors in a .npz file, a map or a list of maps in a .json file.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from tqdm import tqdm

from ..engine.vulkan import files
from ..engine.vulkan.system import is_terminal
from ..errors import InvalidArgumentError, VkdmlError, printable

DEVICE = "an index, UUID, PCI address or a part of a name"  # in help
_MOST_DIGITS = 18  # of a number on the command line

# numpy's readers of a .npy file's header, by the format's version. Version 3 is only for structures with Unicode names
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}

# The suffix of a file for each kind of onnxruntime's types, and how errors describe the content
_KINDS = {"tensor": (".npy", "an array"), "seq(tensor": (".npz", "arrays in order"), "map": (".json", "an object"),
          "seq(map": (".json", "a list of objects")}
_KIND = re.compile(r"(?:seq\()?(?:tensor|map)")


# Arguments

def existing_file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"no file {text!r}")
    return path


def count(text: str) -> int:
    if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def count_from_0(text: str) -> int:
    return 0 if text == "0" else count(text)


def add_common(command: argparse.ArgumentParser, *, device: bool = True) -> None:
    """Add --json and, if the command uses a device, --device."""
    if device:
        command.add_argument("--device", help=f"{DEVICE}; see `vkdml devices`")
    command.add_argument("--json", action="store_true", help="print JSON")


@dataclass(frozen=True)
class Given:
    """An input on the command line, with the value that its file holds."""

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


# Output

@contextmanager
def onnxruntime_errors(before: str = "", after: str = "") -> Iterator[None]:
    """Raise onnxruntime's exceptions, which have no class in common, as VkdmlErrors, so that only their message is printed."""
    try:
        yield
    except VkdmlError:
        raise
    except Exception as error:
        if not isinstance(error, RuntimeError | TypeError | ValueError) and "onnxruntime" not in type(error).__module__:
            raise
        text = "\n".join([str(error), *getattr(error, "__notes__", ())])
        raise VkdmlError(f"{before}onnxruntime: {text}{after}") from error


def progress(items: Iterable[Any] | None = None, total: int | None = None) -> Any:
    """Return a bar that appears after two seconds, if stderr is a terminal."""
    return tqdm(items, total=total, delay=2, disable=not is_terminal(sys.stderr), leave=False)


def print_json(data: Any) -> None:
    print(json.dumps(_finite(data), indent=1))


def _finite(data: Any) -> Any:
    """Replace infinities and NaN, which JSON lacks, by strings."""
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_finite(value) for value in data]
    return str(data) if isinstance(data, float) and not math.isfinite(data) else data


def save(results: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Write each output to a file of its name, and return the paths by output. "/" and what is not printable become "_"."""
    names = {name: "".join(letter if letter.isprintable() and letter != "/" else "_" for letter in name) for name in results}
    for name in names:
        if list(names.values()).count(names[name]) > 1:
            raise InvalidArgumentError("run", f"output {name}", f"another for the file {names[name]}", "a name of its own")
    folder.mkdir(parents=True, exist_ok=True)
    return {name: str(_save(results[name], folder / names[name])) for name in results}


def _save(value: Any, place: Path) -> Path:
    """Write a value to the place with the suffix for its kind. Returns the file's path."""
    is_sequence = isinstance(value, list) and all(isinstance(entry, np.ndarray) for entry in value)
    suffix = ".npy" if isinstance(value, np.ndarray) else ".npz" if is_sequence else ".json"
    path = place.with_name(place.name + suffix)  # the name may have dots
    if suffix == ".npy":
        np.save(path, _storable(value))
    elif suffix == ".npz":
        np.savez(path, *map(_storable, value))
    else:
        path.write_text(json.dumps(value, indent=1))
    return path


def _storable(array: np.ndarray) -> np.ndarray:
    """Convert what .npy cannot hold: bfloat16 to float32, and Python's strings, which it would pickle, to numpy's."""
    stored = {"bfloat16": np.dtype(np.float32), "object": np.dtype(str)}.get(array.dtype.name, array.dtype)
    return array.astype(stored, copy=False)


# Input

@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file for numpy. Errors but OSError become ValueErrors: numpy evaluates headers as Python, which may raise any."""
    with files.open_regular(path) as file:
        try:
            yield file
        except OSError:
            raise
        except Exception as error:
            raise ValueError(str(error) or type(error).__name__) from None


def read_npy(path: Path) -> np.ndarray:
    """Read a .npy file's array, in this machine's byte order. Checks the header before it allocates memory for the array."""
    with _opened(path) as file:
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"version {version} of the format")
        shape, _, dtype = _HEADERS[version](file)
        rest, needed = files.length(file) - file.tell(), math.prod(shape) * dtype.itemsize
        if not dtype.hasobject and (not dtype.itemsize or min(shape, default=0) < 0 or needed > rest):
            raise ValueError(f"an array {shape} of {dtype} in {rest} bytes")
        file.seek(0)
        return _native(np.lib.format.read_array(file, allow_pickle=False))


def _read_npz(path: Path) -> list[np.ndarray]:
    with _opened(path) as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as arrays:
        return [_native(arrays[name]) for name in arrays.files]


def _native(array: np.ndarray) -> np.ndarray:
    return array.astype(array.dtype.newbyteorder("="), copy=False)


_READERS: dict[str, Callable[[Path], Any]] = {
    ".npy": read_npy, ".npz": _read_npz, ".json": lambda path: json.loads(files.read(path))}


def feed(given: Sequence[Given], session: Any, refuse: Callable[[str], Any]) -> dict[str, Any]:
    """Make the input_feed of an InferenceSession. Optional inputs, and inputs with an initializer, may be left out.

    refuse: called with the message of an error; does not return.
    """
    inputs = session.get_inputs()
    declared = {value.name: value for value in (*inputs, *session.get_overridable_initializers())}
    by_name = {value.name: value for value in given}
    needed = {value.name for value in inputs if not value.type.startswith("optional")}
    if not needed <= by_name.keys() <= declared.keys() or len(given) != len(by_name):
        wanted = "; ".join(f"{value.name} {value.type} {value.shape}" for value in inputs) or "none"
        names = ", ".join(value.name for value in given) or "none"
        refuse(printable(f"--input: given {names}; the model needs each of these once: {wanted}"))
    left_out = {value.name: None for value in inputs}
    return left_out | {name: _fitting(value, declared[name].type, refuse) for name, value in by_name.items()}


def _fitting(given: Given, kind: str, refuse: Callable[[str], Any]) -> Any:
    """Convert an input's value for onnxruntime's type `kind`; refuse a file of another kind."""
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


def leaves(value: Any, path: str = "") -> dict[str, np.ndarray]:
    """Flatten a value into its arrays, keyed by their paths in it. Numbers and strings become arrays without dimensions."""
    if isinstance(value, dict):
        return {at: leaf for key, inner in value.items() for at, leaf in leaves(inner, f"{path}[{key!r}]").items()}
    if isinstance(value, list):
        return {at: leaf for place, inner in enumerate(value) for at, leaf in leaves(inner, f"{path}[{place}]").items()}
    if isinstance(value, float):  # in a map, where it has lost its type
        return {path: np.array(value, np.float32)}
    return {path: value if isinstance(value, np.ndarray) else np.array(value)}
