"""The house's rules, which tests/test_house.py holds the tree to: each is a function from the root of a tree to sentences, one
for each breach, which say what to do.
"""

from __future__ import annotations

import ast
import io
import os
import re
import tokenize
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path

from tools import compile_shaders

# Who may import whom: only what is of one's own rank or a lower one
RANKS = {"errors": 0, "operators": 1, "planning": 2, "engine": 3, "faces": 4,
         **dict.fromkeys(["__init__", "onnx", "pydirectml", "reference", "torch"], 5),
         **dict.fromkeys(["__main__", "cli"], 6), "laboratory": 7}

# What the laboratory may import of the package: modules for users, and one with all else that it needs
PUBLIC = {"errors", "onnx", "pydirectml", "reference", "torch"}
LABORATORY = "laboratory"
LAB = "lab/vkdml_lab"
TESTS_IN_LAB = (f"{LAB}/suite/", f"{LAB}/fuzz/")  # which look inside

# The lines that a room's Python and GLSL may have, so that a tree which grows is seen to. A change may raise its room's bound, and
# says in its message what the lines are for; one that takes lines away lowers it. "." stands for files of the folder itself.
LINES = {"src/vkdml/.": 280, "src/vkdml/operators": 3290, "src/vkdml/planning": 3260, "src/vkdml/engine": 4820, "src/vkdml/faces": 7950,
         "src/vkdml/cli": 1910, "shaders": 3220, "tools": 500, "lab": 25200}

KP_MODULE = "src/vkdml/engine/vulkan/gpu.py"

DRIVERS = re.compile(r"(?<![a-z])(llvmpipe|lavapipe|swiftshader|mesa|radv|amdvlk|amd|nvidia|nvk|nouveau|intel|anv|turnip|adreno|"
                     r"qualcomm|mali|panvk|powervr|moltenvk|dozen|dzn|venus)(?![a-z])", re.IGNORECASE)
NO_DRIVERS = re.compile(r"mesa-vulkan-drivers|\bVK_[A-Z]+_\w+")  # what users install, and Vulkan's extensions
DRIVERS_ROOMS = ("src/vkdml/planning/profiles.py", "src/vkdml/planning/gpus.py", "shaders/cpu/")
GPUS_TABLE = "src/vkdml/planning/gpus.py"

# A room for shaders, and those that its files may include
INCLUDES = {"cells": {"cells", "common"}, "common": {"common"}, "gpu": {"gpu", "common", "cells"},
            "cpu": {"cpu", "common", "cells"}, "float64": {"float64", "common"}, "": {"common"}}
WITHOUT_CONDITIONALS = ("gpu", "common")
GUARD = re.compile(r"\s*#ifndef (\w+)\n#define \1\n(.*)#endif\s*$", re.DOTALL)
NUMBER = r"-?(?:0x[0-9a-fA-F]+|\d+\.?\d*(?:e-?\d+)?)[uf]?[ \t]*"
GLSL_CONSTANTS = re.compile(r"^[ \t]*const[ \t]+\w+\b([^;]*);|^[ \t]*#define[ \t]([^\n]*)", re.MULTILINE)
GLSL_NUMBER = re.compile(rf"(?:^|,)\s*(\w+)(?:\s*=|[ \t])\s*{NUMBER}\s*(?=,|$)")
GENERATED = "shaders/common/numbers.glsl"

# How docstrings begin that cannot be read without the name above them
BEGINNING = re.compile(r"(After|As|At|Before|Behind|Beside|By|For|From|In|Into|Of|On|That|To|Where|With|Without)\b")

UNREAD = {".git", ".venv", ".vulkan", "__pycache__", "build", "dist"}
ANY = re.compile(r"\b(PATH|NAME|DIRECTORY|FILE)\b")  # stand for anything in a path
PATH = re.compile(r"(?<![\w/.:~$<}-])((?:\.\./)*(?:(?:[\w.*-]|\{[\w,.-]*\})+/)*(?:[\w*-]|\{[\w,.-]*\})+\.(?:py|glsl|comp|md)"
                  r"|(?:src|shaders|tests|tools|lab|docs|examples)/(?:[\w.*-]|\{[\w,.-]*\}|/)*)(::\w+)?(?![\w/])")


def files(root: Path, *patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in root.glob(pattern)
                  if path.is_file() and not UNREAD & set(path.relative_to(root).parts))


def place(root: Path, path: Path, line: int) -> str:
    return f"{path.relative_to(root).as_posix()}:{line}"


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


# 1. The layers

def modules(root: Path) -> dict[str, Path]:
    """The package's, by their names within it: operators.cells, and __init__ and onnx of those at its top."""
    package = root / "src/vkdml"
    return {".".join(path.relative_to(package).with_suffix("").parts).replace(".__init__", ""): path
            for path in files(package, "**/*.py")}


def imports(name: str, path: Path, known: dict[str, Path]) -> Iterator[tuple[str, int]]:
    """The package's modules that one imports, anywhere in it, with their lines."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    if name == "__init__":
        package = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names if alias.name.split(".")[0] == "vkdml"]
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = ["vkdml", *package[:len(package) - node.level + 1], *(node.module or "").split(".")]
            targets = [".".join(filter(None, [*base, alias.name])) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vkdml":
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            parts = target.split(".")[1:]
            tries = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
            yield next((found for found in tries if found in known), "__init__"), node.lineno


def layers(root: Path) -> Iterator[str]:
    known = modules(root)
    graph: dict[str, set[str]] = {}
    for name, path in known.items():
        room = name.split(".")[0]
        if room not in RANKS:
            yield (f"{place(root, path, 1)} is in no layer: move it into operators, planning, engine or faces, the first that has all "
                   "that it imports")
            continue
        graph[name] = set()
        for target, line in imports(name, path, known):
            above = target.split(".")[0]
            if RANKS.get(above, 0) <= RANKS[room]:
                graph[name].add(target)
            else:
                yield (f"{place(root, path, line)} imports {target}, from above {room}: move what it needs down into {room}, or "
                       "pass it in as an argument")
    circle = sorted(in_circles(graph))
    if circle:
        yield f"{', '.join(circle)} import each other in a circle: move what they share into a module of its own below them"


def in_circles(graph: dict[str, set[str]]) -> set[str]:
    """What is left when modules that import none of the others, or that none of the others imports, are taken away."""
    left = set(graph)
    while True:
        imported = set().union(*(graph[name] - {name} for name in left))
        inner = {name for name in left if name in imported and (graph[name] - {name}) & left}
        if inner == left:
            return left
        left = inner


def names_twice(root: Path) -> Iterator[str]:
    """Not those of PUBLIC, which are named as the face that they bring up, nor packages."""
    first: dict[str, str] = {}
    for name, path in modules(root).items():
        own = path.stem
        if name in PUBLIC or own == "__init__":
            continue
        if own in first:
            yield f"{place(root, path, 1)} is named as {first[own]} is: name it after what it alone has"
        first.setdefault(own, name)


# 1a. Their sizes

def lines(root: Path, room: str) -> int:
    kinds = ("*.py", "*.comp", "*.glsl") if room.endswith("/.") else ("**/*.py", "**/*.comp", "**/*.glsl")
    return sum(path.read_text().count("\n") for path in files(root / room, *kinds))


def too_many_lines(root: Path) -> Iterator[str]:
    for room, most in LINES.items():
        if lines(root, room) > most:
            yield f"{room} has {lines(root, room):,} lines, and LINES allows {most:,}: take some away, or raise the bound and say what for"


def told_lines(root: Path) -> str:
    return "lines: " + ", ".join(f"{room} {lines(root, room):,} of {most:,}" for room, most in LINES.items())


# 2. kp

def kp_imports(root: Path) -> Iterator[str]:
    for path in files(root, "src/**/*.py", f"{LAB}/**/*.py", "tools/**/*.py", "examples/**/*.py"):
        if path == root / KP_MODULE:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            if {"kp", "_kp"} & {part for name in names for part in name.split(".")}:
                yield f"{place(root, path, node.lineno)} imports kp: use what {KP_MODULE} offers, or add what is missing there"


# 2a. The laboratory

def is_of_tests(root: Path, path: Path) -> bool:
    return path.relative_to(root).as_posix().startswith(TESTS_IN_LAB)


def ways_inside(root: Path) -> Iterator[str]:
    """Also in programs that stand in strings."""
    inner = {name.split(".")[0] for name in modules(root)} - PUBLIC - {LABORATORY, "__init__"}
    for path in files(root, "tools/**/*.py", f"{LAB}/**/*.py"):
        text = path.read_text() if not is_of_tests(root, path) else ""
        for found in re.finditer(r"^[ \t]*(?:import|from) vkdml\b(?:\.(\w+)[\w.]*)?(?: import (\([^)]*|.*))?", text, re.MULTILINE):
            for name in {found[1]} & inner if found[1] else set(re.findall(r"\w+", found[2] or "")) & inner:
                yield (f"{place(root, path, line_of(text, found.start()))} imports {name}: take it from vkdml/{LABORATORY}.py, or do "
                       "without")


def unused_ways_inside(root: Path) -> Iterator[str]:
    path = modules(root).get(LABORATORY)
    if path is None:
        return
    text = path.read_text()
    users = "\n".join([text, *(user.read_text() for user in files(root, f"{LAB}/**/*.py", "tools/**/*.py"))])
    for node in ast.parse(text).body:
        names = [alias.asname or alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
        for name in names + ([node.name] if isinstance(node, ast.FunctionDef) else []):
            if name != "annotations" and len(re.findall(rf"\b{name}\b", users)) < 2:
                yield f"{place(root, path, node.lineno)} has {name}, which nothing in the laboratory uses: take it out"


OUTSIDE = {"bench", "lab", "tests", "tools", "vkdml_lab"}


def ways_outside(root: Path) -> Iterator[str]:
    """The package is installed without these. Also in strings, which may be programs or names of modules."""
    for path in files(root, "src/**/*.py"):
        text = path.read_text()
        said = dict(docstrings(text))
        for node in ast.walk(ast.parse(text)):
            names: list[str] = []
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [*(alias.name for alias in node.names), getattr(node, "module", None) or ""]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and said.get(node.lineno) != node.value:
                names = re.findall(r"(?<![\w/.])\w+(?=[./]\w)", node.value)
            found = {name.split(".")[0] for name in names} & OUTSIDE
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.path":
                found = {"sys.path"}
            for name in sorted(found):
                yield f"{place(root, path, node.lineno)} names {name}, which is no part of the package: do without, or move it to {LAB}"


# 3. Drivers' names

def driver_names(root: Path) -> Iterator[str]:
    for path in files(root, "src/**/*.py", "shaders/**/*.comp", "shaders/**/*.glsl"):
        if path.relative_to(root).as_posix().startswith(DRIVERS_ROOMS):
            continue
        text = NO_DRIVERS.sub(lambda name: " " * len(name[0]), path.read_text())
        for found in DRIVERS.finditer(text):
            yield (f"{place(root, path, line_of(text, found.start()))} names a driver, {found[0]}: say which property of it "
                   f"matters, and put what is only its own into {' or '.join(DRIVERS_ROOMS)}")


# 4. Rooms for shaders

def without_comments(text: str) -> str:
    """With as many lines."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda comment: re.sub(r"[^\n]", " ", comment[0]), text, flags=re.DOTALL)


def room_of(root: Path, path: Path) -> str:
    parts = path.relative_to(root / "shaders").parts
    return parts[0] if len(parts) > 1 else ""


def shaders(root: Path) -> dict[Path, str]:
    """Without comments."""
    return {path: without_comments(path.read_text()) for path in files(root, "shaders/**/*.comp", "shaders/**/*.glsl")}


def conditionals(root: Path) -> Iterator[str]:
    for path, text in shaders(root).items():
        if room_of(root, path) not in WITHOUT_CONDITIONALS:
            continue
        guarded = GUARD.match(text)
        for found in re.finditer(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else)\b.*", text, re.MULTILINE):
            if not guarded or found.start() > guarded.start(1):
                yield (f"{place(root, path, line_of(text, found.start()))} has a preprocessor conditional: write the other way as "
                       "a file of its own, which the kernel that needs it includes")


def foreign_macros(root: Path) -> Iterator[str]:
    """What only a room that GPUs do not run has defined."""
    defined: dict[str, set[str]] = {}
    texts = shaders(root)
    for path, text in texts.items():
        defined.setdefault(room_of(root, path), set()).update(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", text, re.MULTILINE))
    own = set().union(*(defined.get(room, set()) for room in INCLUDES["gpu"]))
    for room in ("cpu", "float64"):
        for name in sorted(defined.get(room, set()) - own):
            for path, text in texts.items():
                used = re.search(rf"\b{name}\b", text)
                if used and room_of(root, path) in WITHOUT_CONDITIONALS:
                    yield (f"{place(root, path, line_of(text, used.start()))} uses {name}, a macro of shaders/{room}/: give the "
                           f"kernels of {room} a file of their own for this")


def includes(root: Path) -> Iterator[str]:
    for path, text in shaders(root).items():
        room = room_of(root, path)
        if room not in INCLUDES:
            yield f"{place(root, path, 1)} is in no room: move it into one of shaders/{{{','.join(sorted(filter(None, INCLUDES)))}}}/"
            continue
        for found in re.finditer(r'^[ \t]*#[ \t]*include[ \t]+["<]([^">]+)[">]', text, re.MULTILINE):
            where = place(root, path, line_of(text, found.start()))
            for name in {found[1].replace(compile_shaders.CELL, cell).replace(compile_shaders.STORAGE, storage)
                         for cell in compile_shaders.cells() for storage in compile_shaders.ROOMS}:
                target = next((folder / name for folder in (path.parent, root / "shaders") if (folder / name).exists()), None)
                if target is None:
                    yield f"{where} includes {name}, which is not there: write its path within shaders/"
                elif room_of(root, Path(os.path.normpath(target))) not in INCLUDES[room]:
                    yield (f"{where} includes {name}: from here only {', '.join(sorted(INCLUDES[room]))} may be included; move what "
                           "both need into common/")


def named_cells(root: Path) -> Iterator[str]:
    for path in files(root, "shaders/**/*.comp"):
        for found in re.finditer(rf"(?<![^\W_])({'|'.join(compile_shaders.cells())})(?![^\W_])", f"{path.stem}\n{path.read_text()}",
                                 re.IGNORECASE):
            line = max(1, line_of(f"{path.stem}\n{path.read_text()}", found.start()) - 1)
            yield f"{place(root, path, line)} names a cell, {found[1]}: a kernel is for all of them, with {compile_shaders.CELL} in its name"


# 5. A variant is a file

def variants(root: Path) -> Iterator[str]:
    """Each compiles by itself: tests/engine/test_spirv.py compiles them all, by the command that is looked at here."""
    compiler = root / "tools/compile_shaders.py"
    for node in ast.walk(ast.parse(compiler.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.match(r"-D|--define|-U", node.value):
            yield (f"{place(root, compiler, node.lineno)} passes macros to the compiler: make each variant a .comp that includes "
                   "what it needs")
    kernels = compile_shaders.sources(root / "shaders")
    spirv = root / "src/vkdml/spirv"
    shipped = {path.relative_to(spirv).with_suffix("").as_posix() for path in files(spirv, "**/*.spv")}
    for name in sorted(shipped - set(kernels)):
        yield f"src/vkdml/spirv/{name}.spv is shipped without a source shaders/{name}.comp: run pip install -e ."
    for name in sorted(set(kernels) - shipped):
        yield f"shaders/{name}.comp has no src/vkdml/spirv/{name}.spv: run pip install -e ."


# 6. No number written down on both sides

def python_numbers(root: Path) -> dict[str, str]:
    """Where each module-level number of the package is, by its name without a leading _."""
    found: dict[str, str] = {}
    for path in files(root, "src/**/*.py"):
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            with suppress(ValueError):  # of what is no literal
                if type(ast.literal_eval(node.value)) in (int, float):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    names = [target.id.lstrip("_") for target in targets if isinstance(target, ast.Name)]
                    found |= dict.fromkeys(names, place(root, path, node.lineno))
    return found


def numbers_on_both_sides(root: Path) -> Iterator[str]:
    ours = python_numbers(root)
    for path, text in shaders(root).items():
        if path == root / GENERATED:
            continue
        for found in GLSL_CONSTANTS.finditer(text):
            for name in GLSL_NUMBER.findall(found[1] or found[2]):
                if name in ours:
                    yield (f"{place(root, path, line_of(text, found.start()))} writes {name} down, as {ours[name]} does: generate it "
                           f"into {GENERATED}, or pass it as a specialization constant")


def gpu_figures(root: Path) -> Iterator[str]:
    """A number for one of GpuRates' fields, or GpuRates made, outside the table. Other tests may make up GPUs."""
    rates = next(node for node in ast.parse((root / GPUS_TABLE).read_text()).body
                 if isinstance(node, ast.ClassDef) and node.name == "GpuRates")
    fields = {node.target.id for node in rates.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    for path in files(root, "src/**/*.py", "tools/**/*.py", f"{LAB}/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())) if path != root / GPUS_TABLE and (
                not is_of_tests(root, path) or path.name == "devices.py") else ():
            written: dict[str | None, ast.expr | None] = {}
            if isinstance(node, ast.Call):
                written = {word.arg: word.value for word in node.keywords}
                if isinstance(node.func, ast.Name) and node.func.id == "GpuRates":
                    yield f"{place(root, path, node.lineno)} makes GpuRates: take a row of {GPUS_TABLE}, or add one there"
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                written = {node.target.id: node.value}
            for name, value in written.items():
                if name in fields and isinstance(value, ast.Constant) and isinstance(value.value, int | float) and value.value:
                    yield (f"{place(root, path, value.lineno)} writes a GPU's {name} down: take it from a row of {GPUS_TABLE}, or "
                           "add one there")


def places_by_number(root: Path) -> Iterator[str]:
    """A binding or a constant's id as a number in Python: the SPIR-V says them."""
    for path in files(root, "src/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            pairs = [(node.arg, node.value)] if isinstance(node, ast.keyword) else []
            if isinstance(node, ast.Dict):
                pairs = [(getattr(key, "value", None), value) for key, value in zip(node.keys, node.values)]
            for name, value in pairs:
                if isinstance(name, str) and re.fullmatch(r"(binding|constant_?id|spec_?id)s?", name.lower()) and isinstance(
                        value, ast.Constant) and isinstance(value.value, int):
                    yield f"{place(root, path, value.lineno)} writes the number of a {name} down: take it from the SPIR-V's names"


# 8. Plain English

def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """All docstrings of a module, with the lines where they begin."""
    nodes: list[ast.AST] = [ast.parse(text)]
    for node in nodes:
        nodes += [inner for inner in ast.iter_child_nodes(node) if isinstance(inner, ast.stmt | ast.excepthandler | ast.match_case)]
        if (isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                and (said := ast.get_docstring(node, clean=False))):
            yield node.body[0].lineno, said


def riddles(root: Path) -> Iterator[str]:
    for path in files(root, "src/**/*.py", "tools/**/*.py", f"{LAB}/**/*.py"):
        for line, said in docstrings(path.read_text() if not is_of_tests(root, path) else ""):
            if found := BEGINNING.match(said.lstrip()):
                yield (f"{place(root, path, line)} has a docstring that begins with {found[0]}: begin with a noun or a verb, so that "
                       "it can be read without the name above it")


# 9. Paths in prose

def prose(path: Path) -> Iterator[tuple[int, str]]:
    """What a file says of paths to its readers, with the lines where it begins: text, comments, docstrings."""
    text = path.read_text()
    if path.suffix == ".md":
        yield 1, re.sub(r"```.*?```", lambda block: re.sub(r"[^\n]", " ", block[0]), text, flags=re.DOTALL)
    elif path.suffix in (".glsl", ".comp"):
        for found in re.finditer(r"//[^\n]*|/\*.*?\*/", text, re.DOTALL):
            yield line_of(text, found.start()), found[0]
    else:
        if not PATH.search(text):
            return  # else it is slow for nothing
        if any(PATH.search(line, line.index("#")) for line in text.splitlines() if "#" in line):
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type == tokenize.COMMENT:
                    yield token.start[0], token.string
        yield from docstrings(text)


def spelled_out(pattern: str) -> list[str]:
    """Of {a,b} each; {name} stands for anything."""
    found = re.search(r"\{([^}]*)\}", pattern)
    if found is None:
        return [pattern]
    choices = found[1].split(",") if "," in found[1] else ["*"]
    return list(chain.from_iterable(spelled_out(pattern[:found.start()] + choice + pattern[found.end():]) for choice in choices))


def missing_paths(root: Path) -> Iterator[str]:
    """A path may begin anywhere: at the root, or at a module's or shader's own name."""
    there = {path.relative_to(root).as_posix() for path in root.rglob("*") if not UNREAD & set(path.relative_to(root).parts)}
    ends = {"/".join(parts[start:]) for parts in (path.split("/") for path in there) for start in range(len(parts))}
    generated = tuple(line.strip("/") for line in (root / ".gitignore").read_text().split())
    for path in files(root, "*.md", "docs/**/*.md", "shaders/**/*.*", "src/**/*.py", "tools/**/*.py", "lab/**/*.py", "lab/**/*.md", "lab/**/*.comp",
                      "examples/**/*.py", "tests/**/*.py"):
        if path.suffix not in (".md", ".py", ".glsl", ".comp"):
            continue
        for line, text in prose(path):
            for found in PATH.finditer(text):
                where = place(root, path, line + line_of(text, found.start()) - 1)
                for name in spelled_out(ANY.sub("*", found[1].rstrip("/."))):
                    if name.startswith("../"):  # from where the file is
                        name = os.path.normpath(path.parent.relative_to(root) / name)
                    matches = [end for end in ends if fnmatch(end, name)] if "*" in name else [name] if name in ends else []
                    if not matches and not name.startswith(generated):
                        yield f"{where} names {found[0]}, which is not there: write where it is now"
                    elif found[2] and not any(re.search(rf"(def|class) {found[2][2:]}\b", (root / full).read_text())
                                              for full in there if full.endswith(name)):
                        yield f"{where} names {found[0]}, and {name} has no such test: write where it is now"
