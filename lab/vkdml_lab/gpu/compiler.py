"""Compiles kernels with the compiler of a GPU's driver, in a child process that is started again if it crashes."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tempfile
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from vkdml import DeviceInfo
from vkdml_lab.gpu.assembly import parse
from vkdml_lab.gpu.drivers import driver
from vkdml_lab.gpu.gpus import DESKTOP, INTEGRATED, MOBILE, Gpu
from vkdml_lab.gpu.loops import Loop, loops
from vkdml_lab.internals import Dispatch, load_kernel

SOURCE = Path(__file__).with_name("pipelines.c")
_ENUMERATE = """
import dataclasses, json
from vkdml import Device
print(json.dumps(dataclasses.asdict(Device.enumerate()[0])))
"""
# Devices without a shim have no type, or a wrong one
_TYPES = {DESKTOP: "discrete", INTEGRATED: "integrated", MOBILE: "integrated"}

# The drivers' names of each figure; those that exist are added up
_NAMES = {
    "registers": ("VGPRs", "Number of GPRs", "Max live registers", "Registers used"),
    "spills": ("Spilled VGPRs", "Spilled SGPRs", "Spills to memory", "Spills", "STP Count"),
    "scratch": ("Scratch size", "SLM size", "Scratch Memory Size"),
    "shared": ("LDS size", "Workgroup Memory Size"),
    "subgroups": ("Subgroups per SIMD", "Max warps/SM", "Max Waves Per Core"),
    "bytes": ("Code size",),
    "instructions": ("Instructions", "Instruction count", "Instruction Count"),
}
_OF_A_SIMD = "Subgroups per SIMD"


@dataclass(frozen=True)
class Pipeline:
    """A kernel that a driver has compiled. error: why compiling failed, or "". ms: the compiler's processor time. width: number
    of lanes of a subgroup. figures: the driver's statistics, by the names in _NAMES. of_simd: whether figures["subgroups"]
    counts for one vector unit, and not for a whole core. assembly: the text that the driver shows.
    """

    kernel: str
    ms: float
    error: str = ""
    width: int = 0
    figures: dict[str, int] = field(default_factory=dict)
    of_simd: bool = False
    assembly: str = ""

    @cached_property
    def code(self) -> Loop | None:
        """The assembly as a Loop (instructions and inner loops), or None if its syntax is unknown."""
        blocks = parse(self.assembly)
        return loops(blocks) if blocks else None


def pipeline(kernel: str, answer: dict[str, Any], folder: Path) -> Pipeline:
    """Make a Pipeline from the JSON that pipelines.c printed about a kernel. folder: holds the assembly's files."""
    if answer["result"]:
        return Pipeline(kernel, answer["ms"], f"Vulkan's result is {answer['result']}")
    # If a driver compiles several widths, it runs the widest, which is the last
    last = len(answer["executables"]) - 1
    executable, texts = answer["executables"][last], [file.read_text() for file in _numbered(folder, last)]
    reported = executable["statistics"]
    figures = {name: sum(reported.get(theirs, 0) for theirs in names) for name, names in _NAMES.items()
               if reported.keys() & {*names}}
    if "shared" not in figures and (shared := re.search(r"^shared_size: (\d+)", "\n".join(texts), re.MULTILINE)):
        figures["shared"] = int(shared[1])
    return Pipeline(kernel, answer["ms"], "", executable["subgroup_size"], figures, _OF_A_SIMD in reported, texts[-1])


def _numbered(folder: Path, executable: int) -> list[Path]:
    return sorted(folder.glob(f"{executable}.*.txt"), key=lambda file: int(file.name.split(".")[1]))


def as_of_a_real_one(gpu: Gpu, found: DeviceInfo) -> DeviceInfo:
    """Return the facts that the driver would report on the real GPU. found: those that it reports without the GPU."""
    return replace(found, type=_TYPES[gpu.kind], name=gpu.title or found.name,
                   compute_units=gpu.rates.units if found.compute_units or not gpu.shim else 0)


class Compiler:
    """Compiles kernels for a GPU. folder: the fetched drivers. keep: the folder in which to keep the assembly, or None."""

    def __init__(self, gpu: Gpu, folder: Path | None, keep: Path | None = None) -> None:
        self.gpu = gpu
        self._temporary = tempfile.TemporaryDirectory()
        self._files = Path(self._temporary.name)
        self._keep = keep / gpu.name if keep else None
        self._driver = driver(gpu, folder, self._files)
        self._program = self._files / "pipelines"
        subprocess.run(["cc", "-O1", "-o", self._program, SOURCE, "-lvulkan"], check=True)
        self._made: dict[str, Pipeline] = {}
        self._specialized: dict[tuple[str, tuple[int, ...], int], Pipeline] = {}
        self._process: subprocess.Popen[str] | None = None

    @cached_property
    def info(self) -> DeviceInfo:
        """The facts by which vkdml plans, as the driver would report them on the real GPU."""
        run = subprocess.run([*self._driver.python(), "-c", _ENUMERATE], env=self._driver.environment, text=True,
                             capture_output=True)
        if run.returncode:
            raise RuntimeError(f"{self.gpu.name}: the driver does not load: {run.stderr.strip()[-500:]}")
        return as_of_a_real_one(self.gpu, DeviceInfo(**json.loads(run.stdout.splitlines()[-1])))

    def compile(self, dispatch: Dispatch) -> Pipeline:
        kernel = load_kernel(dispatch.kernel)
        key = dispatch.kernel, kernel.values(dispatch.constants), dispatch.subgroup_size
        if key not in self._specialized:
            spirv, buffers, push = kernel.specialize(dispatch.constants), kernel.interface.bindings, kernel.interface.push
            self._specialized[key] = self.compile_spirv(dispatch.kernel, spirv, len(buffers), 4 * len(push),
                                                        dispatch.subgroup_size)
        return self._specialized[key]

    def compile_spirv(self, name: str, spirv: bytes, buffers: int, push_bytes: int, subgroup_size: int = 0) -> Pipeline:
        key = hashlib.sha256(spirv + bytes([buffers, push_bytes, subgroup_size])).hexdigest()[:16]
        if key not in self._made:
            self._made[key] = self._compile(name, key, spirv, f"{buffers} {push_bytes} {subgroup_size}")
        return self._made[key]

    def _compile(self, name: str, key: str, spirv: bytes, numbers: str) -> Pipeline:
        folder = (self._keep or self._files) / f"{name.replace('/', '-')}-{key}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "kernel.spv"
        path.write_bytes(spirv)
        line = f"{path} {numbers} {folder}\n"
        answer = self._ask(line)
        if answer is None:  # earlier pipelines may be the reason: the AMD shim dies after some 500
            self._crash()
            answer = self._ask(line)
        if answer is None:
            return Pipeline(name, 0.0, self._crash())
        return pipeline(name, json.loads(answer), folder)

    def _ask(self, line: str) -> str | None:
        """Send a line to the compiler's process. Returns the line of JSON that answers it, or None if the process has ended."""
        if self._process is None:
            self._log: IO[str] = (self._files / "log").open("w+")
            self._process = subprocess.Popen([*self._driver.prefix, self._program], env=self._driver.environment, text=True,
                                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log)
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            return None
        # some drivers print to stdout, too
        return next((answer for answer in self._process.stdout if answer.startswith("{")), None)

    def _crash(self) -> str:
        assert self._process
        code = self._process.wait()
        self._process = None
        self._log.seek(0)
        return f"the driver ended with {code}: {self._log.read().strip()[-300:]}"

    def close(self) -> None:
        if self._process and self._process.stdin:
            self._process.stdin.close()
            self._process.wait()
        self._temporary.cleanup()
