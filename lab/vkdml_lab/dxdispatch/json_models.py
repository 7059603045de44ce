"""DxDispatch's JSON models on a Vulkan device: resources, operators, and commands on them.

    load("dml_rnn.json").run(vkdml.Device(), progress=print)

DxDispatch ignores members that it does not know, or that have no meaning for these operators; here they are refused.

Sources: DxDispatch's guide (microsoft/DirectML), "Models", "Advanced Binding" and "Timing Dispatchables"; its executor
(Executor.cpp) where the guide leaves something open.
"""

from __future__ import annotations

import math
import os
import stat
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vkdml import Device, InvalidArgumentError
from vkdml.errors import shown
from vkdml_lab.internals import Tensor, files, round_up

from .dispatchables import Checked, GraphDispatchable, OperatorDispatchable, ReadyOperator, dispatchables
from .model_resources import UNKNOWN, Budget, Folder, Resource, refuse_images, resource
from .reader import Reader, integer, list_of, members, parse, placed, refusal, show, text

MAX_BYTES = 2**30  # limit on a model's resources and tensors, by default


@dataclass(frozen=True)
class Dispatched:
    """The result of a dispatch. milliseconds: the time of each iteration."""

    name: str
    milliseconds: list[float]

    @property
    def median(self) -> float:
        """DxDispatch's median: without the first iteration, unless it is the only one; the upper one of an even number."""
        hot = sorted(self.milliseconds[1:] or self.milliseconds)
        return hot[len(hot) // 2]

    def __str__(self) -> str:
        return f"Dispatch '{self.name}': {len(self.milliseconds)} iterations, {self.median:.4f} ms median (CPU)"


@dataclass(frozen=True)
class Printed:
    """The values that a resource holds: as many as its initial values, in their type. 8-bit integers are printed as numbers;
    DxDispatch prints them as characters.
    """

    resource: str
    values: list[float]

    def __str__(self) -> str:
        shown = (f"{value:g}" if isinstance(value, float) else str(value) for value in self.values)
        return f"Resource '{self.resource}': {', '.join(shown)}"


@dataclass(frozen=True)
class Written:
    """A resource that was written to a file."""

    resource: str
    path: str

    def __str__(self) -> str:
        return f"Resource '{self.resource}' written to '{self.path}'"


Result = Dispatched | Printed | Written


@dataclass(frozen=True)
class _State:
    """The state of a running model: its resources' bytes, its operators, and how often each dispatch is executed."""

    contents: dict[str, np.ndarray]
    operators: dict[str, ReadyOperator]
    iterations: int


Command = Callable[[_State], Result]
Bindings = Mapping[str, tuple[str, int]]  # by tensor: a resource, and where in it


@dataclass(frozen=True)
class Model:
    """A checked model: all names that it refers to exist, and all resources are large enough for their tensors.

    Made by `load`.
    """

    resources: Mapping[str, Resource]
    dispatchables: Mapping[str, Checked]
    initial: Mapping[str, Bindings]
    commands: list[Command]

    def run(self, device: Device, *, iterations: int = 1, progress: Callable[[Result], object] | None = None) -> list[Result]:
        """Run all commands in order. Resources begin with their initial values at each call.

        Args:
            iterations: how often each dispatch is executed (DxDispatch's --dispatch_iterations); 1 or more.
            progress: called with each result when its command is done.

        Returns:
            A result for each command. Its str() is the line that DxDispatch prints.

        Raises:
            InvalidArgumentError: before the first command, an operator that the device cannot hold; at its command, a sequence
                length above T, or a file that cannot be written.
            DriverError: the driver failed.
        """
        if type(iterations) is not int or iterations < 1:
            raise InvalidArgumentError("run", "iterations", shown(iterations), "a whole number, 1 or more")
        operators = {}
        for name, checked in self.dispatchables.items():
            initial = {field: self.resources[resource].content()[offset:]
                       for field, (resource, offset) in self.initial[name].items()}
            with placed(f"dispatchables.{name}: "):
                operators[name] = ReadyOperator(device, checked, initial)
        state = _State({name: resource.content() for name, resource in self.resources.items()}, operators, iterations)
        results: list[Result] = []
        for command in self.commands:
            results.append(command(state))
            if progress is not None:
                progress(results[-1])
        return results


def load(path: str | os.PathLike[str], *, allow_outside: bool = False, max_bytes: int = MAX_BYTES) -> Model:
    """Read and check a model; no device is needed.

    Args:
        path: the model's file.
        allow_outside: whether the files that it names may be anywhere, as in DxDispatch: those that it reads are looked for
            beside the model, then in the current directory, in which it also writes. By default it reads and writes only in
            the folder that the model is in, links followed. For models that you trust.
        max_bytes: how large all its resources and all its operators' tensors may be together; 1 GiB by default.

    Raises InvalidArgumentError, which names the place in the model, such as dispatchables.rnn.desc.Direction.
    """
    if not isinstance(path, str | os.PathLike):
        raise InvalidArgumentError("load", "path", type(path).__name__, "a path")
    if type(max_bytes) is not int or max_bytes < 1:
        raise InvalidArgumentError("load", "max_bytes", max_bytes, "a whole number, 1 or more")
    path = Path(path)
    try:
        root = parse(files.read(path).decode("utf-8"))
    except (OSError, ValueError) as error:
        raise refusal(str(path), error, "a DxDispatch model in JSON") from None
    given = members("", root, ("$schema", "resources", "dispatchables", "commands"))
    folder, budget = Folder(path.parent, allow_outside), Budget(max_bytes)
    resources = _named(partial(resource, folder, budget), "resources", given.get("resources"))
    checked = dispatchables("dispatchables", given.get("dispatchables"))
    for name, one in checked.items():
        budget.take(f"dispatchables.{name}", sum(tensor.size_in_bytes for tensor in one.checked.tensors.values() if tensor))
    commands = _Commands(folder, resources, checked)
    return Model(resources, checked, commands.initial, list_of(commands.read)("commands", given.get("commands")))


def _named(reader: Reader, place: str, value: object) -> dict[str, Any]:
    return {name: reader(f"{place}.{name}", member) for name, member in members(place, value).items()}


def _one_of(place: str, value: object, names: Collection[str]) -> str:
    name = text(place, value)
    if name not in names:
        raise refusal(place, show(name), "one of " + ", ".join(names))
    return name


def _of_lists(place: str, value: object, fields: Collection[str]) -> dict[str, Any]:
    """Bindings by field. What DirectML has in an array, such as JOIN's InputTensors, is a list in the model; here each of its
    tensors is a field, InputTensors[0] and so on.
    """
    names = Counter(field.partition("[")[0] for field in fields)
    given = members(place, value, names)
    lists = [name for name in names if name not in fields]
    for name in lists:
        listed = given.pop(name, None)
        if not isinstance(listed, list) or len(listed) != names[name]:
            raise refusal(f"{place}.{name}", show(listed), f"a list of {names[name]}")
        given |= {f"{name}[{i}]": binding for i, binding in enumerate(listed)}
    return given


class _Commands:
    """Reads a model's commands, and checks them against its resources and dispatchables."""

    def __init__(self, folder: Folder, resources: dict[str, Resource], dispatchables: dict[str, Checked]) -> None:
        self._folder = folder
        self._resources = resources
        self._dispatchables = dispatchables
        self.initial: dict[str, Bindings] = {
            name: self._bindings(f"dispatchables.{name}.bindings", one.initial, {
                field: one.checked.tensor(field) for field in one.initial}) if isinstance(one, OperatorDispatchable) else {}
            for name, one in dispatchables.items()}
        self._readers = {
            "dispatch": self._dispatch, "print": self._print, "writeFile": self._write_file}

    def read(self, place: str, value: object) -> Command:
        given = members(place, value)
        kind = text(f"{place}.type", given.pop("type", None))
        for name, reader in self._readers.items():
            if name.lower() == kind.lower():
                return reader(place, given)
        raise refusal(f"{place}.type", show(kind), "one of " + ", ".join(self._readers))

    def _dispatch(self, place: str, value: object) -> Command:
        given = members(place, value)
        name = _one_of(f"{place}.dispatchable", given.get("dispatchable"), self._dispatchables)
        chosen = self._dispatchables[name]
        if isinstance(chosen, GraphDispatchable):
            members(place, given, ("dispatchable", "inputBindings", "outputBindings"))
            bindings: dict[str, tuple[str, int]] = {}
            for member, fields in (("inputBindings", chosen.checked.inputs), ("outputBindings", chosen.checked.outputs)):
                bindings |= self._in_order(f"{place}.{member}", given.get(member), fields, chosen)
        else:
            members(place, given, ("dispatchable", "bindings"))
            left = {field: tensor for field, tensor in chosen.checked.tensors.items()
                    if tensor and field not in self.initial[name]}
            bindings = self._bindings(f"{place}.bindings", given.get("bindings"), left)

        def dispatch(state: _State) -> Dispatched:
            parts = {field: state.contents[resource][offset:] for field, (resource, offset) in bindings.items()}
            with placed(f"{place}: "):
                return Dispatched(name, state.operators[name].run(parts, state.iterations))

        return dispatch

    def _bindings(self, place: str, value: object, tensors: Mapping[str, Tensor]) -> dict[str, tuple[str, int]]:
        bound = _of_lists(place, value, tensors)
        return {field: self._binding(tensor.size_in_bytes, f"{place}.{field}", bound.get(field))
                for field, tensor in tensors.items()}

    def _in_order(self, place: str, value: object, fields: Sequence[str], graph: GraphDispatchable
                  ) -> dict[str, tuple[str, int]]:
        """Bindings of a graph's inputs or outputs; null where nothing in the graph takes one."""
        if not isinstance(value, list) or len(value) != len(fields):
            raise refusal(place, show(value), f"a list of {len(fields)}")
        for i, field in enumerate(fields):
            if value[i] is not None and not graph.checked.has(field):
                raise refusal(f"{place}[{i}]", show(value[i]), f"null: no node has {field}")
        return {field: self._binding(graph.checked.tensor(field).size_in_bytes, f"{place}[{i}]", value[i])
                for i, field in enumerate(fields) if graph.checked.has(field)}

    def _binding(self, needed: int, place: str, value: object) -> tuple[str, int]:
        """A resource and the byte in it at which a tensor begins. DirectML requires a multiple of 16; here any byte is allowed.

        The element size is elementSizeInBytes, or else that of the resource's initial values, which is 1 for UNKNOWN.
        elementCount is the length of the binding in elements.
        """
        if isinstance(value, list) and len(value) == 1:
            (value,) = value
        if not isinstance(value, str | dict):
            raise refusal(place, show(value), "a resource's name, an object with it, or a list of one of these")
        given = members(place, {"name": value} if isinstance(value, str) else value,
                        ("name", "elementOffset", "elementCount", "elementSizeInBytes"))
        name = _one_of(f"{place}.name", given.get("name"), self._resources)
        offset, count, itemsize = (integer(f"{place}.{member}", given.get(member, 0))
                                   for member in ("elementOffset", "elementCount", "elementSizeInBytes"))
        itemsize = itemsize or self._resources[name].values.itemsize
        size = max(self._resources[name].size_in_bytes - offset * itemsize, 0)
        if count:
            size = min(size, round_up(count * itemsize, 4))
        if size < needed:
            raise refusal(place, f"{size} bytes of {name}", f"{needed} bytes or more")
        return name, offset * itemsize

    def _print(self, place: str, value: object) -> Command:
        given = members(place, value, ("resource",))
        name = self._of_one_type(f"{place}.resource", given.get("resource"))
        values = self._resources[name].values
        return lambda state: Printed(name, state.contents[name][:values.nbytes].view(values.dtype).tolist())

    def _write_file(self, place: str, value: object) -> Command:
        """Writes the whole resource, also what is behind its initial values. A .npy is flat unless it has `dimensions`."""
        given = members(place, value, ("resource", "targetPath", "dimensions"))
        at = f"{place}.targetPath"
        target = text(at, given.get("targetPath"))
        try:
            path = self._folder.target(target)
        except (OSError, ValueError) as error:
            raise refusal(at, f"{target} ({error})", f"a file {self._folder.description}") from None
        refuse_images(at, Path(target))
        if path.suffix.lower() != ".npy":
            members(place, given, ("resource", "targetPath"))
            name = _one_of(f"{place}.resource", given.get("resource"), self._resources)
            return partial(_written, at, name, path, np.ndarray.tofile)
        name = self._of_one_type(f"{place}.resource", given.get("resource"))
        dtype = self._resources[name].values.dtype
        count = self._resources[name].size_in_bytes // dtype.itemsize
        sizes = tuple(list_of(partial(integer, least=1))(f"{place}.dimensions", given.get("dimensions", [count])))
        size = math.prod(sizes)
        if size > count:
            raise refusal(f"{place}.dimensions", show(list(sizes)), f"at most the {count} elements of {name}")
        return partial(_written, at, name, path, lambda content, file: np.lib.format.write_array(
            file, content[:size * dtype.itemsize].view(dtype).reshape(sizes)))

    def _of_one_type(self, place: str, value: object) -> str:
        name = _one_of(place, value, self._resources)
        if self._resources[name].data_type == UNKNOWN:
            raise refusal(place, f"{name}, of type UNKNOWN", "a resource whose values are all of one type")
        return name


def _opened_to_write(path: Path) -> BinaryIO:
    """A new file, or one that is emptied. Others are refused: a pipe may have no reader."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise ValueError("not a regular file")
    os.truncate(number, 0)
    return os.fdopen(number, "wb")


def _written(place: str, resource: str, path: Path, write: Callable[[np.ndarray, Any], None], state: _State) -> Written:
    """Write a resource to a file. write: takes its bytes, and the open file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _opened_to_write(path) as file:
            write(state.contents[resource], file)
    except (OSError, ValueError) as error:  # ValueError: not a possible name of a file
        raise refusal(place, error, "a file that can be written") from None
    return Written(resource, str(path))
