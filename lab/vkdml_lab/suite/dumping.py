"""Writes everything that a test gives to the driver into a folder: `vkdml reproduce CASE --dump FOLDER`. So a driver engineer
can run it without vkdml: replay.py repeats the calls that replay.json lists.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vkdml.engine.vulkan import gpu
from vkdml.engine.vulkan.gpu import Kernel, Submission
from vkdml.engine.vulkan.memory import DeviceMemory
from vkdml.planning.device_info import DeviceInfo

_REPLAY = Path(__file__).with_name("replay.py")
_LEFT_OUT = "left_out"
_BARRIER = (gpu._ACCESSES, gpu._ACCESSES, gpu._STAGES, gpu._STAGES)

_README = """# What a test of vkdml gives to a Vulkan driver

{problem}
{ran}
Device: {device}, {driver}.

`python replay.py [INDEX OF A DEVICE]` runs it with numpy and Kompute's Python package kp alone, and says whether the results are
right, and the first wrong element. With kp as it is on PyPI each dispatch is a submission of its own; with vkdml's, which has
patches (barriers, parts of buffers) and is taken where vkdml is installed, they are those of the test.

- replay.json: the submissions in order. A dispatch has its kernel, workgroups, push constants (32-bit words, in the order of
  the shader's block) and, for each binding of descriptor set 0 from 0 on, a buffer with the offset and size of the part bound.
- kernels/N.spv: the SPIR-V as the driver gets it. Specialization constants are plain constants there; replay.json has their
  names and values, and kernels/N.generic.spv is the module before that.
- given_up: the number of the buffer whose first word workgroups set that waited too long for each other, as on a busy machine;
  replay.py then tries again.
- buffers/: the bytes of a buffer before a submission, where the host wrote them; inputs and weights among them.
- packed/: the weights after the dispatches that pack them. found/, expected/: the results in the test, and what is right.
"""


class Dump:
    """The calls for the operator that was compiled last, until its results have been compared."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_done = False
        self.begin(None)

    def begin(self, ran: Any) -> None:
        """Forget what was written, as another operator is compiled. ran: its recording.Ran."""
        if self._is_done:
            return
        self._ran = ran
        self._buffers: dict[DeviceMemory, dict[str, Any]] = {}
        self._written: dict[DeviceMemory, bytes] = {}
        self._sent: set[DeviceMemory] = set()  # uploaded since the last submission with a dispatch
        self._kernels: dict[bytes, int] = {}
        self._content: dict[str, Any] = {"kernels": [], "buffers": [], "submissions": [], "expected": []}
        self._operations: dict[Submission, list[dict[str, Any]]] = {}
        for name in ("kernels", "buffers", "packed", "found", "expected"):
            shutil.rmtree(self._folder / name, ignore_errors=True)
            (self._folder / name).mkdir(parents=True)

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Record the engine's submissions from now on."""
        def before(method: str, note: Callable[..., None]) -> None:
            run = getattr(Submission, method)

            def noted(submission: Submission, *arguments: Any) -> None:
                arguments = tuple(list(argument) if method == "barrier" else argument for argument in arguments)
                note(submission, *arguments)
                run(submission, *arguments)
                if method == "run":
                    self._after()

            monkeypatch.setattr(Submission, method, noted)

        before("dispatch", self._dispatch)
        before("barrier", lambda submission, buffers: self._add(submission, {"barrier": buffers}))
        before("upload", lambda submission, buffer, size=None: self._add(submission, {"upload": buffer}))
        before("run", self._run)

    def _add(self, submission: Submission, operation: dict[str, Any]) -> None:
        self._operations.setdefault(submission, []).append(operation)

    def _dispatch(self, submission: Submission, kernel: Kernel, push: Mapping[str, int]) -> None:
        self._add(submission, {"kernel": kernel, "push": [int(word) for word in kernel.compiled.push_words(push)]})

    def _run(self, submission: Submission) -> None:
        """Write a submission to the folder. The driver gets it afterwards, as it may crash."""
        operations = self._operations.get(submission, [])
        self._sent.update(operation["upload"] for operation in operations if "upload" in operation)
        if self._is_done or not any("kernel" in operation for operation in operations):
            return
        writes: list[dict[str, Any]] = []
        for operation in operations:
            if "kernel" in operation:
                for one, name in zip(operation["kernel"].bound, _names(operation["kernel"])):
                    self._name(one.buffer, name)
        rows = []
        for operation in operations:
            if "kernel" in operation:
                kernel = operation["kernel"]
                bound = [{"buffer": self._buffers[one.buffer]["number"], "offset": one.offset,
                          "size": one.size_in_bytes if one is not one.buffer else _bytes(one.buffer)} for one in kernel.bound]
                rows.append({"kernel": self._number(kernel), "groups": list(kernel.dispatch.groups), "push": operation["push"],
                             "bound": bound})
            elif "barrier" in operation:
                rows.append({"barrier": [self._buffers[buffer]["number"] for buffer in operation["barrier"] if buffer in self._buffers],
                             "masks": _BARRIER})
        for buffer, about in self._buffers.items():
            now = buffer._mapped.tobytes() if buffer.has_copy else b""
            is_sent = not buffer._has_other_memory or buffer in self._sent
            if now and (buffer not in self._written or (is_sent and self._written[buffer] != now)):
                self._written[buffer] = now
                file = f"buffers/{about['number']}-{about['name']}-{len(self._content['submissions'])}.bin"
                (self._folder / file).write_bytes(now)
                writes.append({"buffer": about["number"], "file": file})
        self._sent.clear()
        submissions = self._content["submissions"]
        if submissions and not writes and submissions[-1]["operations"] == rows:
            submissions[-1]["times"] += 1
        else:
            submissions.append({"writes": writes, "operations": rows, "times": 1})
        self._write()

    def _after(self) -> None:
        """Note what dispatches wrote to memory that the host shares, so that it does not count as written by the host."""
        if not self._is_done:
            self._written |= {buffer: buffer._mapped.tobytes() for buffer in self._written if not buffer._has_other_memory}

    def _name(self, buffer: DeviceMemory, name: str) -> None:
        if buffer not in self._buffers:
            self._buffers[buffer] = {"number": len(self._buffers), "name": name, "bytes": _bytes(buffer)}
            self._content["buffers"].append(self._buffers[buffer])
        if self._buffers[buffer]["name"] == _LEFT_OUT:  # it was bound in place of a missing tensor before
            self._buffers[buffer]["name"] = name

    def _number(self, kernel: Kernel) -> int:
        """Return the number of the kernel's SPIR-V."""
        dispatch = kernel.dispatch
        spirv = kernel.compiled.specialize(dispatch.constants)
        if spirv not in self._kernels:
            number = self._kernels[spirv] = len(self._kernels)
            for file, contents in ((f"{number}.spv", spirv), (f"{number}.generic.spv", kernel.compiled.spirv)):
                (self._folder / "kernels" / file).write_bytes(contents)
            self._content["kernels"].append({
                "name": dispatch.kernel, "file": f"kernels/{number}.spv", "push": kernel.compiled.interface.push,
                "constants": {name: dispatch.constants[name] for name in kernel.compiled.interface.constant_ids}})
        return self._kernels[spirv]

    def compared(self, found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], tolerance: tuple[float, float],
                 is_wrong: bool) -> None:
        """Write the results found and expected. Nothing follows after wrong results."""
        if self._is_done or self._ran is None or not self._buffers:
            return
        self._is_done, named = is_wrong, {about["name"]: buffer for buffer, about in self._buffers.items()}
        for name in self._ran.plan.packed if named else ():
            if name in named and named[name].has_copy:
                (self._folder / "packed" / f"{name}.bin").write_bytes(named[name]._fetch((named[name].size_in_bytes,), np.uint8).tobytes())
        self._content["expected"] = []
        problem = self._ran.problem
        fields = {onnx: field for field, onnx in problem.cell.arguments.items()} if hasattr(problem, "cell") else {}
        for name, right in expected.items():
            field, result = fields.get(name, name), found[name]
            if field not in named or not problem.has(field) or result.size != right.size:
                continue
            sizes = problem.tensor(field).sizes
            if result.shape in (sizes, sizes[1:]):  # ONNX's last states have no dimension T
                for folder, array in (("found", result), ("expected", right)):
                    array = array.astype(np.float64) if array.dtype.kind not in "iu" else array
                    np.save(self._folder / folder / f"{field}.npy", array.reshape(sizes))
                self._content["expected"].append({
                    "name": field, "buffer": self._buffers[named[field]]["number"], "type": result.dtype.name,
                    "strides": problem.tensor(field).strides, "relative": tolerance[0], "absolute": tolerance[1]})
        self._write()

    def _write(self) -> None:
        info: DeviceInfo = next(iter(self._buffers)).gpu.info
        about = self._ran.described() if self._ran else {"problem": "", "ran": {}}
        text = _README.format(problem=about["problem"], ran=json.dumps(about["ran"]), device=info.name, driver=f"{info.driver} {info.driver_version}")
        (self._folder / "README.md").write_text(text)
        shutil.copy(_REPLAY, self._folder / "replay.py")
        given_up = self._ran.plan.timed_out if self._ran else None
        numbers = {about["name"]: about["number"] for about in self._buffers.values()}
        if given_up in numbers:
            self._content["given_up"] = numbers[given_up]
        content = {"problem": about["problem"], "device": info.name, **self._content}
        (self._folder / "replay.json").write_text(json.dumps(content, indent=1))


def _names(kernel: Kernel) -> list[str]:
    """Return the names of the buffers that the kernel binds, in order. A missing tensor is named by its binding."""
    named = kernel.dispatch.buffers
    return [next((named[block] for block in blocks if block in named), _LEFT_OUT) for blocks in kernel.compiled.interface.bindings.values()]


def _bytes(buffer: DeviceMemory) -> int:
    """Return the buffer's size with its guards."""
    return 4 * int(buffer._tensor.size())
