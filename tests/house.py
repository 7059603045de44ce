"""The house's rules, which tests/test_house.py holds the tree to, and the reading of the tree that they share.

A rule is a function from the root of a tree to its breaches: the file, the line, and what is wrong with the remedy.
"""

from __future__ import annotations

import ast
import gc
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

Breaches = Iterator[tuple[Path, int, str]]

# How large parts of the tree may be. When one shrinks, lower its number; never raise it. The laboratory is its Python and C, its
# tests among them, but not bench, which counted with neither until it moved there. History and generated pages are no documents.
MOST = {"lines of src": 18_517, "files of src": 107, "lines of the laboratory": 23_365, "words of the documents": 20_000}
PLAIN = (".editorconfig", ".github/**/*.yml", "Dockerfile", "Makefile")  # texts that name files, too
LAB_FILES, BENCH = ("lab/**/*.py", "lab/**/*.c"), ("lab/vkdml_lab/bench/*", "lab/tests/bench/*")
DOCUMENTS = tuple(f"{folder}*.md" for folder in ("", ".github/**/", "docs/**/", "lab/**/", "shaders/", "tools/**/"))
NO_DOCUMENTS = ("CHANGELOG.md", "docs/notebook.md", "docs/bench/*", "docs/who-is-right.md")

# The parts of each package, from the lowest: a part imports only parts on its own line or on lines above it here
LAYERS = {
    "vkdml": ["errors", "operators", "planning", "engine", "faces", "__init__ onnx pydirectml reference torch", "__main__ cli"],
    "vkdml.engine": ["vulkan", "commands weights", "trust", "__init__ compiled execution"],
}
LONGEST_CHAIN = {"vkdml": 30, "vkdml.engine": 8}  # the modules in the longest chain of imports

PUBLIC = {"errors", "onnx", "pydirectml", "reference", "torch"}
INNER = "|".join(sorted({part for layer in LAYERS["vkdml"] for part in layer.split()} - PUBLIC - {"__init__", "__main__"}))
LABORATORY = "lab/vkdml_lab/internals.py"
GPUS = "src/vkdml/planning/gpus.py"

OURS = ("src/**/*.py", "lab/**/*.py", "tools/**/*.py", "tests/**/*.py")
OUTSIDE = ("lab/vkdml_lab/**/*.py", "tools/**/*.py")  # programs that use the package
TESTS_IN_LAB = ("lab/vkdml_lab/suite/", "lab/vkdml_lab/fuzz/")  # they test the inside of the package
SHADERS = ("shaders/**/*.comp", "shaders/**/*.glsl")
CELLS = "gru|lstm|rnn"


class Never(NamedTuple):
    """Text that must not stand in some files, with the remedy. A file's name counts as its first line."""

    name: str
    files: tuple[str, ...]
    pattern: str
    remedy: str
    apart_from: tuple[str, ...] = ()


NEVER = [
    Never("outside", ("src/**/*.py",),
          r"\bsys\.path\b|(?<![\w/])(?:tools|tests|lab|vkdml_lab)/\w|\b(?:import|from) (?:tools|tests|lab|vkdml_lab)\b"
          r"|[\"'](?:tools|tests|lab|vkdml_lab)\b(?! )", "the package must not know what is around it: move this out of src",
          ("src/vkdml/onnx.py",)),  # it runs a program, whose folder is the first of sys.path
    Never("kp", ("src/**/*.py", *OUTSIDE, "examples/**/*.py"), r"^[ \t]*(?:import|from)\b.*\b_?kp\b",
          "use the classes of src/vkdml/engine/vulkan/gpu.py, or add the missing one there", ("src/vkdml/engine/vulkan/gpu.py",)),
    Never("inner modules", OUTSIDE, rf"^[ \t]*(?:import|from) vkdml(?:\.(?:{INNER})\b| import (?:\([^)]*|.*)\b(?:{INNER})\b)",
          f"import it from {LABORATORY}, or do without", (LABORATORY, *TESTS_IN_LAB)),
    Never("locals", ("src/**/*.py",), r"\blocals\(\)", "write the arguments out, so that a reader and a tool can follow them"),
    Never("endless caches", ("src/**/*.py",), r"\blru_cache\((?:maxsize=)?None", "give it a number"),
    Never("buffers of compiled operators", ("src/vkdml/engine/compiled.py",), r"import\b.*\bBuffer\b|\bBuffer\(",
          "the caller that records an operator hands all buffers over"),
    Never("drivers", ("src/**/*.py", *SHADERS),
          r"(?i)(?<![a-z])(?<!VK_)(?:llvmpipe|lavapipe|swiftshader|mesa(?!-vulkan-drivers)|radv|amdvlk|amd|nvidia|nvk|nouveau|intel|anv"
          r"|turnip|adreno|qualcomm|mali|panvk|powervr|moltenvk|dozen|dzn|venus)(?![a-z])",
          "write which property of the driver matters, and put its name into profiles.py, gpus.py or shaders/cpu/",
          ("src/vkdml/planning/profiles.py", GPUS, "shaders/cpu/")),
    Never("figures of GPUs", ("src/**/*.py", *OUTSIDE),
          r"\bGpuRates\(|\b(?:clock|simds|simd_lanes|invocation_registers|memory_rate|(?:unit_)?cache_rate)(?:: (?:int|float))? ?= ?[1-9]",
          f"take it from a row of {GPUS}, or add one there", (GPUS, "lab/vkdml_lab/suite/test_", "lab/vkdml_lab/fuzz/")),
    Never("cells", ("shaders/**/*.comp",), rf"(?i)(?<![^\W_])(?:{CELLS})(?![^\W_])",
          "a kernel is for all cells, with CELL in its name"),
    Never("conditionals", ("shaders/gpu/*", "shaders/common/*"),
          r"^[ \t]*#[ \t]*(?:(?:if|ifdef|elif|else)\b|ifndef[ \t]+(\w+)\b(?!\n#define \1\n))",
          "write the other way as a file of its own, which the kernel that needs it includes"),
    Never("riddles", ("src/**/*.py", *OUTSIDE),
          r'^[ \t]*"""\s*(?:After|As|At|Before|Behind|Beside|By|For|From|In|Into|Of|On|That|To|Where|With|Without)\b',
          "begin with a noun or a verb, so that the docstring can be read alone", TESTS_IN_LAB),
]

UNREAD = {".git", ".venv", ".vulkan", "__pycache__", "build", "dist"}
ANY = re.compile(r"\b(PATH|NAME|DIRECTORY|FILE)\b")  # stand for anything in a path
PATH = re.compile(r"(?<![\w/.:~$<}-])((?:\.\./)*(?:(?:[\w.*-]|\{[\w,.-]*\})+/)*(?:[\w*-]|\{[\w,.-]*\})+\.(?:py|glsl|comp|md)"
                  r"|(?:src|shaders|tests|tools|lab|bench|docs|examples)/(?:[\w.*-]|\{[\w,.-]*\}|/)*)(::\w+)?(?![\w/])")


# Reading a tree

def files(root: Path, *patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in root.glob(pattern)
                  if path.is_file() and not UNREAD & set(path.relative_to(root).parts))


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


@cache
def parsed(path: Path) -> list[ast.AST]:
    """All nodes of a module, the module first."""
    gc.disable()  # as nodes are kept, to look for those that are gone takes longer than to parse
    try:
        return list(ast.walk(ast.parse(path.read_text())))
    finally:
        gc.enable()


@cache
def import_statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in parsed(path) if isinstance(node, ast.Import | ast.ImportFrom)]


def nodes(root: Path, *patterns: str) -> Iterator[tuple[Path, ast.AST]]:
    return ((path, node) for path in files(root, *patterns) for node in parsed(path))


def generated(root: Path) -> list[str]:
    """The paths that git ignores."""
    return [f"{line.lstrip('/')}*" for line in (root / ".gitignore").read_text().split()]


# Imports

def modules(root: Path) -> dict[str, Path]:
    """All Python of the tree, by its full names: vkdml.operators.cells, tests.house; a package without its __init__."""
    found = {}
    for path in files(root, *OURS):
        parts = path.relative_to(root).with_suffix("").parts
        own = parts[1:] if parts[:2] in (("src", "vkdml"), ("lab", "vkdml_lab")) else parts
        found[".".join(own).removesuffix(".__init__")] = path
    return found


def imports(name: str, path: Path, known: Mapping[str, Path]) -> Iterator[tuple[str, int]]:
    """The tree's modules that one imports, anywhere in it, with their lines."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in import_statements(path):
        targets = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            base = package[:len(package) - node.level + 1] if node.level else []
            targets = [".".join([*base, *filter(None, [node.module]), target]) for target in targets]
        for target in targets:
            parts = target.split(".")
            tries = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
            if found := next((one for one in tries if one in known), None):
                yield found, node.lineno


def layers(root: Path) -> Breaches:
    known = modules(root)
    for package, rows in LAYERS.items():
        ranks = {part: rank for rank, row in enumerate(rows) for part in row.split()}
        parts = {name: f"{name}.__init__"[len(package) + 1:].split(".")[0] for name in known if f"{name}.".startswith(f"{package}.")}
        for name, part in parts.items():
            if part not in ranks:
                yield known[name], 1, f"is in no layer of {package}: move it into the lowest that has all its imports"
                continue
            for target, line in imports(name, known[name], known):
                if target in parts and ranks.get(parts[target], 0) > ranks[part]:
                    yield known[name], line, f"imports {target}, which is above {part}: move the shared part down, or pass it in"


def chains(root: Path) -> Breaches:
    """No circle of imports anywhere in the tree, and no chain that is too long."""
    known = modules(root)
    graph = {name: {target for target, _ in imports(name, path, known)} - {name} for name, path in known.items()}
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        circle = error.args[1][::-1]
        yield known[circle[0]], 1, f"is in a circle of imports, {' > '.join(circle)}: move the shared part into a module below them"
        return
    for package, most in LONGEST_CHAIN.items():
        longest: dict[str, list[str]] = {}
        for name in order:
            if name.startswith(f"{package}."):
                longest[name] = [name, *max((longest[target] for target in sorted(graph[name] & longest.keys())), key=len, default=[])]
        found = max(longest.values(), key=len, default=[])
        if len(found) > most:
            yield known[found[0]], 1, (f"begins a chain of {len(found)} imports in {package}, which may have {most}: pass in what one of "
                                       f"them needs: {' > '.join(found)}")


def names_twice(root: Path) -> Breaches:
    """A module's or a class's name is used once in the package, but for public modules and for classes of two public modules."""
    first: dict[str, str] = {}
    listed = [line.split(".")[-1] for file in files(root, "tests/public_names.txt") for line in file.read_text().splitlines()]
    for name, path in modules(root).items():
        if not name.startswith("vkdml."):
            continue
        own = [] if name.split(".")[1:] in [[public] for public in PUBLIC] or path.stem == "__init__" else [(path.stem, 1)]
        own += [(f"class {node.name}", node.lineno) for node in parsed(path)
                if isinstance(node, ast.ClassDef) and listed.count(node.name) < 2]
        for one, line in own:
            if one in first:
                yield path, line, f"has the name of another, {one} in {first[one]}: name it after what it alone has"
            first.setdefault(one, name)


def unused_ways_inside(root: Path) -> Breaches:
    path = root / LABORATORY
    used = Counter(word for user in files(root, *OUTSIDE) for word in re.findall(r"\w+", user.read_text()))
    for node in parsed(path):
        if isinstance(node, ast.alias | ast.FunctionDef):
            name = getattr(node, "asname", None) or node.name
            if name != "annotations" and used[name] < 2:
                yield path, node.lineno, f"has {name}, which nothing outside uses: take it out"


def sizes(root: Path) -> dict[str, int]:
    """The sizes of what MOST bounds, of the files that git keeps."""
    def kept(patterns: tuple[str, ...], apart_from: tuple[str, ...] = ()) -> list[bytes]:
        left_out = [*generated(root), *apart_from]
        return [path.read_bytes() for path in files(root, *patterns)
                if not any(fnmatch(path.relative_to(root).as_posix(), one) for one in left_out)]

    src, lab, documents = kept(("src/**/*",)), kept(LAB_FILES, BENCH), kept(DOCUMENTS, NO_DOCUMENTS)
    lines = [sum(text.count(b"\n") for text in part) for part in (src, lab)]
    return dict(zip(MOST, (lines[0], len(src), lines[1], sum(len(text.split()) for text in documents))))


def too_large(root: Path) -> Breaches:
    for what, count in sizes(root).items():
        if count > MOST[what]:
            yield root, 0, f"has {count:,} {what}, and may have {MOST[what]:,}: take some away"


# Words

def forbidden(row: Never, root: Path) -> Breaches:
    for path in files(root, *row.files):
        if not path.relative_to(root).as_posix().startswith(row.apart_from or "/"):
            text = f"{path.name}\n{path.read_text()}"
            for found in re.finditer(row.pattern, text, re.MULTILINE):
                yield path, max(1, line_of(text, found.start()) - 1), f"has {found[0].strip()!r}: {row.remedy}"


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The text, comments and docstrings in which a file names paths, with the lines where they begin."""
    text = path.read_text()
    if path.suffix in (".md", ".yml", ""):
        yield 1, re.sub(r"```.*?```", lambda block: re.sub(r"[^\n]", " ", block[0]), text, flags=re.DOTALL)
    else:
        comment = r"(?:^ *|  )# .*" if path.suffix == ".py" else r"//.*|/\*(?s:.*?)\*/"
        yield from ((line_of(text, found.start()), found[0]) for found in re.finditer(comment, text, re.MULTILINE))
    for node in parsed(path) if path.suffix == ".py" and PATH.search(text) else ():
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node):
            yield node.body[0].lineno, ast.get_docstring(node, clean=False) or ""


def spelled_out(pattern: str) -> list[str]:
    """Each path that {a,b} stands for; {name} stands for anything."""
    found = re.fullmatch(r"(.*?)\{([^}]*)\}(.*)", pattern)
    if found is None:
        return [pattern]
    choices = found[2].split(",") if "," in found[2] else ["*"]
    return [one for choice in choices for one in spelled_out(found[1] + choice + found[3])]


def missing_paths(root: Path) -> Breaches:
    """A path in prose may begin anywhere: at the root, or at a module's or shader's own name."""
    there = set[str]()
    for folder, folders, names in os.walk(root):
        folders[:] = set(folders) - UNREAD
        there |= {f"{folder}/{name}"[len(f"{root}/"):] for name in (*folders, *names)}
    ends = {"/".join(parts[start:]) for parts in (path.split("/") for path in there) for start in range(len(parts))}
    unkept = [f"{one.rstrip('/*')}*" for one in generated(root)]
    for path in files(root, *DOCUMENTS, *PLAIN, *SHADERS, *OURS, "lab/**/*.comp", "examples/**/*.py"):
        for line, text in prose(path):
            for found in PATH.finditer(text):
                where = path, line + line_of(text, found.start()) - 1
                for name in spelled_out(ANY.sub("*", found[1].rstrip("/."))):
                    if name.startswith("../"):  # from where the file is
                        name = os.path.normpath(path.parent.relative_to(root) / name)
                    matches = any(fnmatch(end, name) for end in ends) if "*" in name else name in ends
                    if not matches and not any(fnmatch(name, one) for one in unkept):
                        yield *where, f"names {found[0]}, which is not there: write where it is now"
                    elif found[2] and not any(re.search(rf"(def|class) {found[2][2:]}\b", (root / full).read_text())
                                              for full in there if full.endswith(name)):
                        yield *where, f"names {found[0]}, and {name} has no such test: write where it is now"
