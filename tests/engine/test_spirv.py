"""The SPIR-V in the package is what shaders/ compiles to, and asks devices for nothing special."""

import hashlib
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vkdml
from tools import compile_shaders
from vkdml.engine.vulkan import spirv
from vkdml.operators.problem import from_desc
from vkdml.planning.plan import plan as make_plan
from vkdml_lab.suite.devices import CPU
from vkdml_lab.suite.support import CELLS, SCHEDULES, make_desc, options_on

ROOT = Path(__file__).parents[2]
SHIPPED = Path(vkdml.__file__).parent / "spirv"
RNN_FIRST: list[str] = sorted(compile_shaders.kernels(), key=lambda name: "rnn" not in name)

# Shader, GroupNonUniform, and its Shuffle and Quad: what Vulkan 1.1 has without enabling a feature; and StorageBuffer16BitAccess
ALLOWED_CAPABILITIES = {"cpu": {1, 61, 65, 68}, "halves": {1, 4433}}


@pytest.mark.family("no test begins with stale kernels: left are the compiler and its flags", first=6)
@pytest.mark.parametrize("name", RNN_FIRST)
def test_shipped_equals_source(name, tmp_path):
    source, holes = compile_shaders.sources(compile_shaders.SHADERS)[name]
    compile_shaders.compile_source(source, tmp_path / "fresh.spv", holes)
    assert (SHIPPED / f"{name}.spv").read_bytes() == (tmp_path / "fresh.spv").read_bytes(), "run: pip install -e ."


def test_all_kernels_are_shipped_and_listed():
    names = [path.relative_to(SHIPPED).with_suffix("").as_posix() for path in SHIPPED.rglob("*.spv")]
    assert sorted(names) == compile_shaders.kernels(), "run: pip install -e ."
    lines = [f"{hashlib.sha256((SHIPPED / f'{name}.spv').read_bytes()).hexdigest()}  {name}.spv" for name in compile_shaders.kernels()]
    assert (SHIPPED / "checksums.txt").read_text().splitlines() == lines
    assert (SHIPPED / "sources.txt").read_text() == compile_shaders.sources_text(SHIPPED)


def instructions(words):
    """Opcodes and operands."""
    at, words = 5, words.tolist()  # of which Python reads numbers faster
    while at < len(words):
        count = words[at] >> 16
        yield words[at] & 0xFFFF, words[at + 1:at + count]
        at += count


def flipped(at):
    def flip(content):
        place = len(content) * at // 100
        return content[:place] + bytes([content[place] ^ 1]) + content[place + 1:]

    return flip


DAMAGES = {"empty": lambda content: b"", "truncated": lambda content: content[:-4], "longer": lambda content: content + bytes(4),
           "zeros": lambda content: bytes(len(content)), "a bit at the start": flipped(0), "a bit in the middle": flipped(50),
           "a bit at the end": flipped(99)}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of what is installed, from which kernels are loaded."""
    shutil.copytree(SHIPPED, tmp_path / "spirv", ignore=shutil.ignore_patterns("sources.txt"))
    monkeypatch.setattr(spirv.resources, "files", lambda _: tmp_path)
    spirv.load.cache_clear()
    yield tmp_path
    spirv.load.cache_clear()


@pytest.mark.parametrize("file", ["gpu/gru.spv", "checksums.txt"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_found(package, file, damage):
    """In checksums.txt it may be the line of another kernel, which is refused then."""
    path = package / "spirv" / file
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    refused = {}
    for name in compile_shaders.kernels():
        try:
            spirv.load(name)
        except vkdml.DriverError as error:
            refused[name] = str(error)
    assert list(refused) == ["gpu/gru"] if file.endswith(".spv") else refused or damage == "longer"
    for name, message in refused.items():
        assert re.search(rf"spirv/{name}\.spv is damaged, .*: install vkdml again", message)


@pytest.mark.parametrize("file", ["gpu/gru.spv", "checksums.txt"])
def test_missing_files_are_named(package, file):
    (package / "spirv" / file).unlink()
    with pytest.raises(vkdml.DriverError, match=rf"cannot be read \(.*spirv/{file}'\): install vkdml again"):
        spirv.load("gpu/gru")


def test_a_damaged_file_never_reaches_the_driver(package, device):
    path = package / "spirv" / "elementwise.spv"
    path.write_bytes(path.read_bytes()[:-4])
    made = device.gpu.pipelines_made
    tensor = vkdml.DML_BUFFER_TENSOR_DESC(DataType=vkdml.DML_TENSOR_DATA_TYPE.FLOAT32, Sizes=(2, 3))
    operator = device.create_operator(vkdml.DML_ACTIVATION_RELU_OPERATOR_DESC(tensor, tensor))
    with pytest.raises(vkdml.DriverError, match="elementwise.spv is damaged"):
        device.compile_operator(operator)
    assert device.gpu.pipelines_made == made


@pytest.mark.parametrize("name", compile_shaders.kernels())
def test_capabilities(name):
    words = np.frombuffer(spirv.load(name).spirv, "<u4")
    found = {operands[0] for opcode, operands in instructions(words) if opcode == 17}  # OpCapability
    assert found <= ALLOWED_CAPABILITIES.get(name.partition("/")[0], {1})
    assert 1 in found


@pytest.mark.parametrize("name", [name for name in compile_shaders.kernels() if name.startswith("halves/")])
def test_halves_are_stored_without_atomics(name):
    """But for the word of those that wait, which says that they gave up."""
    atomics = {kernel: [opcode for opcode, _ in instructions(np.frombuffer(spirv.load(kernel).spirv, "<u4")) if opcode in (240, 241)]
               for kernel in (name, name.removeprefix("halves/"))}  # OpAtomicAnd, OpAtomicOr
    assert atomics[name] == [241] * name.endswith(("_persistent", "_persistent_coherent"))
    assert {240, 241} <= set(atomics[name.removeprefix("halves/")])


@pytest.mark.parametrize("name", compile_shaders.kernels())
def test_constant_ids_are_unique(name):
    ids = spirv.load(name).interface.constant_ids
    assert len(set(ids.values())) == len(ids)
    assert ids["WORKGROUP"] == 0


def functions(words):
    """All instructions of them but branches."""
    code = [(opcode, tuple(operands)) for opcode, operands in instructions(words)]
    start = next(place for place, (opcode, _) in enumerate(code) if opcode == 54)  # OpFunction
    return [instruction for instruction in code[start:] if instruction[0] not in (247, 249, 250)]


@pytest.mark.parametrize("name", compile_shaders.kernels())
def test_specialize_leaves_nothing_to_the_driver(name):
    kernel = spirv.load(name)
    constants = {key: 16 if key == "WORKGROUP" else place % 3 + 1 for place, key in enumerate(kernel.interface.constant_ids)}
    words = np.frombuffer(kernel.specialize(constants | {"NOT_THERE": 1}), "<u4")
    before = np.frombuffer(kernel.spirv, "<u4")
    assert (words[:5] == before[:5]).all()
    assert functions(words) == functions(before)
    found, named = {}, {}
    for opcode, operands in instructions(words):
        assert not 48 <= opcode <= 52  # specialization constants
        assert opcode != 71 or operands[1] != 1  # SpecId
        if opcode == 5:  # OpName
            named[np.array(operands[1:], "<u4").tobytes().split(b"\0")[0].decode()] = operands[0]
        if opcode in (41, 42, 43):  # true, false, a number
            found[operands[1]] = operands[2] if opcode == 43 else opcode == 41
    assert {key: found[named[key]] for key in constants} == constants
    if "UNITS_AT_ONCE" in constants and "TILE" in named:
        assert found[named["TILE"]] == constants["UNITS_AT_ONCE"] * constants["ROWS"]
    if "IS_STEPPED" in named:
        assert found[named["IS_STEPPED"]] == (constants["PARTS"] > 1)


@pytest.mark.parametrize("name", compile_shaders.kernels())
def test_specialize_leaves_no_choice_by_a_constant(name):
    """But where the way not taken is a block that is reached by others too, and has a value by which."""
    kernel = spirv.load(name)
    words = np.frombuffer(kernel.specialize(dict.fromkeys(kernel.interface.constant_ids, 1)), "<u4")
    known, choices, with_phi, label = {}, [], set(), None
    for opcode, operands in instructions(words):
        if opcode in (41, 42):  # true, false
            known[operands[1]] = opcode == 41
        if opcode == 248:  # OpLabel
            label = operands[0]
        if opcode == 245:  # OpPhi
            with_phi.add(label)
        if opcode == 250:  # OpBranchConditional
            choices.append(operands[:3])
    assert choices
    assert all((if_false if known[condition] else if_true) in with_phi for condition, if_true, if_false in choices if condition in known)


@pytest.mark.skipif(shutil.which("spirv-val") is None, reason="needs spirv-val (on Debian: spirv-tools)")
@pytest.mark.family("each cell in each schedule")
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_specialized_kernels_are_valid(cell, schedule, tmp_path):
    info = replace(CPU, max_storage_buffers=16)
    plan = make_plan(from_desc(make_desc(cell, 20, 4, 20, 33)), info, options_on(info, schedule))
    for place, dispatch in enumerate(plan.initialize + plan.execute[:3] + plan.fallback[:3]):
        path = tmp_path / f"{place}.spv"
        path.write_bytes(spirv.load(dispatch.kernel).specialize(dispatch.constants))
        subprocess.run(["spirv-val", "--target-env", "vulkan1.1", path], check=True)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Shaders of a checkout, compiled into its package, from which kernels are loaded."""
    (tmp_path / "shaders" / "common").mkdir(parents=True)
    (tmp_path / "shaders" / "common" / "size.glsl").write_text("layout(local_size_x = 64) in;\n")
    (tmp_path / "shaders" / "one.comp").write_text('#version 450\n#extension GL_GOOGLE_include_directive : require\n'
                                                   '#include "common/size.glsl"\nvoid main() {}\n')
    monkeypatch.setattr(compile_shaders, "SHADERS", tmp_path / "shaders")
    monkeypatch.setattr(compile_shaders, "ROOT", tmp_path)
    monkeypatch.setattr(compile_shaders, "cells", list)
    compile_shaders.compile_shaders(tmp_path / "src" / "vkdml" / "spirv")
    monkeypatch.setattr(spirv.resources, "files", lambda _: tmp_path / "src" / "vkdml")
    spirv.refuse_stale.cache_clear()
    yield tmp_path
    spirv.refuse_stale.cache_clear()


CHANGES = {"changed": lambda path: path.write_text(f"// Another\n{path.read_text()}"), "removed": lambda path: path.unlink()}


@pytest.mark.parametrize("file", ["one.comp", "common/size.glsl"])
@pytest.mark.parametrize("change", CHANGES)
def test_stale_kernels_are_refused(checkout, file, change):
    assert spirv.load.__wrapped__("one").spirv
    spirv.refuse_stale.cache_clear()  # as in a new process
    CHANGES[change](checkout / "shaders" / file)
    for _ in range(2):
        with pytest.raises(vkdml.DriverError, match=rf"shaders/{file} has changed .*: run: python tools/compile_shaders\.py src/vkdml/spirv$"):
            spirv.load.__wrapped__("one")


def test_sources_are_read_once_in_a_checkout_and_never_from_a_wheel(checkout, monkeypatch):
    read, read_bytes = [], Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path.suffix) or read_bytes(path))
    for _ in range(3):
        spirv.load.__wrapped__("one")
    assert sorted(read) == [".comp", ".glsl", *[".spv"] * 3, *[".txt"] * 3]
    spirv.refuse_stale.cache_clear()
    (checkout / "src" / "vkdml" / "spirv" / "sources.txt").unlink()  # which no wheel has
    read.clear()
    spirv.load.__wrapped__("one")
    assert sorted(read) == [".spv", ".txt"]


def test_tests_do_not_begin_with_stale_kernels(checkout):
    """In a process of their own, as this one has begun."""
    (checkout / "shaders" / "one.comp").unlink()
    program = f"""import pathlib, pytest
from vkdml.engine.vulkan import spirv
spirv.resources.files = lambda _: pathlib.Path({str(checkout / "src" / "vkdml")!r})
raise SystemExit(pytest.main(["tests/test_house.py", "--collect-only"]))"""
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert result.stderr.startswith(f"ERROR: {checkout}/shaders/one.comp has changed since ")


def test_broken_shader_is_named(tmp_path, monkeypatch):
    (tmp_path / "broken.comp").write_text("#version 450\nvoid main() { nothing(); }\n")
    monkeypatch.setattr(compile_shaders, "SHADERS", tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/broken.spv").write_text("as before")
    with pytest.raises(SystemExit, match=r"broken\.comp does not compile: .*nothing"):
        compile_shaders.compile_shaders(tmp_path / "out")
    assert [path.name for path in tmp_path.rglob("*.spv")] == ["broken.spv"]
    assert (tmp_path / "out/broken.spv").read_text() == "as before"
