"""More of the house's rules: the package's and the shaders' inside. Each is as those of tests/house.py."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house import CELLS, SHADERS, Breaches, files, imports, line_of, modules, nodes, parsed
from tools import compile_shaders

SRC = "src/**/*.py"
WEIGHTS = "src/vkdml/engine/weights.py"
OF_WEIGHTS = {"origin", "stamp", "contents", "OWNED", "origin_of", "digest"}  # they tell whether weights changed

CACHES = "docs/caches.md"
DECORATORS = {"cache", "lru_cache", "OnceForEachGpu"}
MAPPINGS = {"Recent", "WeakKeyDictionary", "WeakValueDictionary", "WeakTensorKeyDictionary"}

PLANNING = "src/vkdml/planning"
FAMILIES = f"{PLANNING}/families"

# A room for shaders, and those that its files may include
INCLUDES = {"cells": {"cells", "common"}, "common": {"common"}, "gpu": {"gpu", "common", "cells"},
            "cpu": {"cpu", "common", "cells"}, "float64": {"float64", "common"}, "": {"common"}}
NUMBER = r"-?(?:0x[0-9a-fA-F]+|\d+\.?\d*(?:e-?\d+)?)[uf]?[ \t]*"
GLSL_CONSTANTS = re.compile(r"^[ \t]*const[ \t]+\w+\b([^;]*);|^[ \t]*#define[ \t]([^\n]*)", re.MULTILINE)
GLSL_NUMBER = re.compile(rf"(?:^|,)\s*(\w+)(?:\s*=|[ \t])\s*{NUMBER}\s*(?=,|$)")
GENERATED = "shaders/common/numbers.glsl"


def last_name(node: ast.AST) -> str:
    """The c of a.b.c, a.b.c(...) and a.b.c[...]."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def targets_of(node: ast.AST) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []


def other_detectors(root: Path) -> Breaches:
    for path, node in nodes(root, SRC):
        if isinstance(node, ast.Compare) and path != root / WEIGHTS:
            sides = [node.left, *node.comparators]
            found = {last_name(side).lstrip("_") for side in sides} & OF_WEIGHTS
            if found and not any(isinstance(side, ast.Constant) and side.value is None for side in sides):
                yield path, node.lineno, (f"compares {', '.join(sorted(found))}: call is_current in {WEIGHTS}, which alone decides "
                                          "whether weights changed")


def caches(root: Path) -> Iterator[tuple[Path, str, int]]:
    """Each with its module, name and line.

    A function with a decorator that keeps results, a mapping that drops entries, and a mapping that outlives a function which
    fills it where it lacks something.
    """
    for path in files(root, SRC):
        module = parsed(path)[0]
        assert isinstance(module, ast.Module)
        found: dict[str, int] = {}
        shared = {last_name(target) for node in module.body for target in targets_of(node)}
        of_mappings = {inner for node in module.body if isinstance(node, ast.ClassDef) and node.name in MAPPINGS for inner in ast.walk(node)}
        for node in parsed(path):
            if node in of_mappings:  # caches are made of these
                continue
            if isinstance(node, ast.FunctionDef):
                if DECORATORS & set(map(last_name, node.decorator_list)):
                    found[node.name] = node.lineno
                for name in filled_where_lacking(node, shared):
                    found.setdefault(name, node.lineno)
            elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
                target, maker = targets_of(node)[0], last_name(node.value)
                if maker in MAPPINGS or (maker in DECORATORS and isinstance(target, ast.Name)):
                    found[last_name(target)] = node.lineno
        yield from ((path, name, line) for name, line in found.items())


def filled_where_lacking(function: ast.FunctionDef, shared: set[str]) -> set[str]:
    """The attributes and variables of the module, `shared`, in which the function looks for a key and sets one."""
    read, written = set[str](), set[str]()
    for node in ast.walk(function):
        if isinstance(node, ast.Compare):
            read |= {ast.unparse(mapping) for operator, mapping in zip(node.ops, node.comparators) if isinstance(operator, ast.In | ast.NotIn)}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop", "setdefault"):
            read.add(ast.unparse(node.func.value))
            written |= {ast.unparse(node.func.value)} if node.func.attr == "setdefault" else set()
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            written.add(ast.unparse(node.value))
    return {name.split(".")[-1] for name in read & written if re.fullmatch(r"[\w.]+", name) and ("." in name or name in shared)}


def unlisted_caches(root: Path) -> Breaches:
    """Caches without a row of their own in the document, which says when they go, and rows whose cache is gone."""
    listed: dict[tuple[Path, str], int] = {}
    header: list[str] = []
    for line, text in enumerate((root / CACHES).read_text().splitlines(), start=1):
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")] if text.startswith("|") else []
        header = header if cells and header else cells
        row = dict(zip(header, cells))
        for names, module in re.findall(r"((?:`\w+`(?:, | and )?)+) in `(src/vkdml/[\w/]+\.py)`", row.get("cache", "")):
            for name in re.findall(r"\w+", names.replace(" and ", " ")):
                listed[root / module, name] = line
                if not row.get("bound") or row["bound"].startswith("none") or not row.get("goes when"):
                    yield root / CACHES, line, f"does not say what bounds {name}, or when it goes: give it a bound, and write both"
    found = {(path, name): line for path, name, line in caches(root)}
    for (path, name), line in found.items():
        if (path, name) not in listed:
            yield path, line, f"keeps {name}, of which {CACHES} has no row: add one, with its bound and lifetime"
    for (path, name), line in listed.items():
        if (path, name) not in found:
            yield root / CACHES, line, f"lists {name} in {path.relative_to(root)}, which is no cache: take it out"


def family_by_family(root: Path) -> Breaches:
    """A choice by a kernel's name or a tiling's class outside of the families, and a family imported but by their table."""
    table, known = root / FAMILIES / "__init__.py", modules(root)
    families = set(files(root, f"{FAMILIES}/*.py")) - {table}
    classes = {node.name for path, node in nodes(root, f"{PLANNING}/**/*.py")
               if isinstance(node, ast.ClassDef) and (path in families or node.name.endswith("Tiling"))}
    for name, path in known.items():
        if path in families or not name.startswith("vkdml."):
            continue
        for node in parsed(path):
            found: set[str] = set()
            if isinstance(node, ast.Compare):
                found = {last_name(side) for side in (node.left, *node.comparators)} & {"kernel"}
            elif isinstance(node, ast.Call) and last_name(node.func) in ("isinstance", "issubclass"):
                found = {last_name(part) for part in ast.walk(node.args[1])} & classes
            elif isinstance(node, ast.MatchClass):
                found = {last_name(node.cls)} & classes
            for one in found:
                yield path, getattr(node, "lineno", 0), f"chooses by {one}: make it a member of Tiling that each family has its own of"
        for target, line in imports(name, path, known) if path != table else ():
            if known[target] in families:
                yield path, line, f"imports {target}, of a family: take it from {FAMILIES}/__init__.py, or do without"


# Shaders

def shaders(root: Path) -> Iterator[tuple[Path, str, str]]:
    """Each with its room and its text, where comments are blank."""
    for path in files(root, *SHADERS):
        text = re.sub(r"//[^\n]*|/\*.*?\*/", lambda comment: re.sub(r"[^\n]", " ", comment[0]), path.read_text(), flags=re.DOTALL)
        yield path, room_of(root, path), text


def room_of(root: Path, path: Path) -> str:
    return path.relative_to(root / "shaders").parent.as_posix().split("/")[0].strip(".")


def includes(root: Path) -> Breaches:
    for path, room, text in shaders(root):
        if room not in INCLUDES:
            yield path, 1, f"is in no room: move it into one of {', '.join(sorted(filter(None, INCLUDES)))}"
            continue
        for found in re.finditer(r'^[ \t]*#[ \t]*include[ \t]+["<]([^">]+)[">]', text, re.MULTILINE):
            for name in {found[1].replace(compile_shaders.CELL, cell).replace(compile_shaders.STORAGE, storage)
                         for cell in CELLS.split("|") for storage in compile_shaders.ROOMS}:
                target = next((folder / name for folder in (path.parent, root / "shaders") if (folder / name).exists()), None)
                if target and room_of(root, Path(os.path.normpath(target))) not in INCLUDES[room]:
                    yield path, line_of(text, found.start()), (f"includes {name}, and from here only {', '.join(sorted(INCLUDES[room]))} "
                                                               "may be included: move the shared part into common/")


def numbers_on_both_sides(root: Path) -> Breaches:
    """A constant of a shader that a module has, too, with the same name but for a leading _."""
    number = re.compile(r"^_?(\w+)(?:: \w+)? = -?\.?\d[\w.]*(?:-\d+)?(?:\s*#.*)?$", re.MULTILINE)
    ours = {name: path.name for path in files(root, SRC) for name in number.findall(path.read_text())}
    for path, _, text in shaders(root):
        for found in GLSL_CONSTANTS.finditer(text) if path != root / GENERATED else ():
            for name in GLSL_NUMBER.findall(found[1] or found[2]):
                if name in ours:
                    yield path, line_of(text, found.start()), (f"writes {name} down, as {ours[name]} does: generate it into {GENERATED}, "
                                                               "or pass it as a specialization constant")
