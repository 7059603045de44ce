"""More of the house's rules: what the package does inside. Each is as those of tests/house.py."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.house import files, imports, in_circles, modules, place

ENGINE = "engine"
# The engine's rooms: a module may import what is in its own or in a lower one
ENGINE_ROOMS = {"vulkan": 0, **dict.fromkeys(["commands", "weights"], 1), "trust": 2,
                **dict.fromkeys(["compiled", "execution"], 3)}
# Modules in the longest chain of imports, of each room and of all
ROOM_FLOORS, ENGINE_FLOORS = 4, 8

COMPILED = "src/vkdml/engine/compiled.py"
WEIGHTS = "src/vkdml/engine/weights.py"
OF_WEIGHTS = {"origin", "stamp", "contents", "OWNED", "origin_of", "digest"}  # what says whether they changed

CACHES = "docs/caches.md"
DECORATORS = {"cache", "lru_cache", "OnceForEachGpu"}
MAPPINGS = {"Recent", "WeakKeyDictionary", "WeakValueDictionary", "WeakTensorKeyDictionary"}

PLANNING = "src/vkdml/planning"
FAMILIES = f"{PLANNING}/families/"
TABLE_OF_FAMILIES = f"{FAMILIES}__init__.py"


def last_name(node: ast.AST) -> str:
    """The c of a.b.c, a.b.c(...) and a.b.c[...]."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


# The engine's floors

def imports_within(root: Path, room: str) -> dict[str, set[str]]:
    """The modules of a room, each with those of the room that it imports."""
    known = modules(root)
    own = {name for name in known if name.split(".")[0] == room}
    return {name: {target for target, _ in imports(name, known[name], known)} & own - {name} for name in own}


def longest_chain(graph: Mapping[str, set[str]]) -> list[str]:
    """Modules of which each imports the next. There must be no circle."""
    chains: dict[str, list[str]] = {}

    def chain(name: str) -> list[str]:
        if name not in chains:
            chains[name] = [name, *max(map(chain, sorted(graph[name])), key=len, default=[])]
        return chains[name]

    return max(map(chain, sorted(graph)), key=len, default=[])


def engine_floors(root: Path) -> Iterator[str]:
    known, graph = modules(root), imports_within(root, ENGINE)
    graph.pop(ENGINE, None)
    rooms = {name: ENGINE_ROOMS.get(name.split(".")[1]) for name in graph}
    for name, room in rooms.items():
        if room is None:
            yield f"{place(root, known[name], 1)} is in no room of the engine: write it into ENGINE_ROOMS, as low as what it imports allows"
            continue
        for target, line in imports(name, known[name], known):
            if (rooms.get(target) or 0) > room:
                yield f"{place(root, known[name], line)} imports {target}, from a higher room of the engine: pass in what it needs"
    if in_circles(graph):
        return  # which `layers` says
    parts = [({name: targets for name, targets in graph.items() if rooms[name] == room}, ROOM_FLOORS) for room in set(rooms.values())]
    for part, most in [*parts, (graph, ENGINE_FLOORS)]:
        chain = longest_chain({name: targets & part.keys() for name, targets in part.items()})
        if len(chain) > most:
            yield f"{' > '.join(chain)}: {len(chain)} modules import each other in a row, {most} may: pass in what one of them needs"


# Who makes buffers

def makers_of_buffers(root: Path) -> set[str]:
    """Buffer, and the functions and classes in which one is made."""
    found = {"Buffer"}
    for path in files(root, "src/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and any(
                    isinstance(call, ast.Call) and last_name(call.func) == "Buffer" for call in ast.walk(node)):
                found.add(node.name)
    return found


def buffers_of_compiled(root: Path) -> Iterator[str]:
    """Only what it does itself: the trials that it may ask for make their own."""
    makers = makers_of_buffers(root)
    for path in files(root, COMPILED):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                named = {last_name(node.func)} & makers
            elif isinstance(node, ast.ImportFrom):
                named = {alias.name for alias in node.names} & {"Buffer"}
            else:
                continue
            for name in named:
                yield (f"{place(root, path, node.lineno)} takes {name}, which makes a buffer: whoever records an operator hands all "
                       "of them over")


# Whether weights changed

def other_detectors(root: Path) -> Iterator[str]:
    """Comparisons of what says so, but with None."""
    for path in files(root, "src/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())) if path != root / WEIGHTS else ():
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                found = {last_name(side).lstrip("_") for side in sides} & OF_WEIGHTS
                if found and not any(isinstance(side, ast.Constant) and side.value is None for side in sides):
                    yield (f"{place(root, path, node.lineno)} compares {', '.join(sorted(found))}: whether weights changed is for "
                           f"is_current in {WEIGHTS} to say")


# Caches

def caches(root: Path) -> Iterator[tuple[str, str, int, bool]]:
    """Each with its module, name, line and whether it is an lru_cache without a bound.

    A function with a decorator that keeps results, a mapping that drops entries, and a mapping that outlives a function which
    fills it where it lacks something.
    """
    for path in files(root, "src/**/*.py"):
        module, tree = path.relative_to(root).as_posix(), ast.parse(path.read_text())
        found: dict[str, tuple[int, bool]] = {}
        shared = {last_name(target) for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)
                  for target in (node.targets if isinstance(node, ast.Assign) else [node.target])}
        of_mappings = {inner for node in tree.body if isinstance(node, ast.ClassDef) and node.name in MAPPINGS for inner in ast.walk(node)}
        for node in ast.walk(tree):
            if node in of_mappings:  # what caches are made of
                continue
            if isinstance(node, ast.FunctionDef):
                for decorator in node.decorator_list:
                    if last_name(decorator) in DECORATORS:
                        is_endless = last_name(decorator) == "lru_cache" and "None" in ast.unparse(decorator)
                        found[node.name] = node.lineno, is_endless
                for name in filled_where_lacking(node, shared):
                    found.setdefault(name, (node.lineno, False))
            elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call) and last_name(node.value) in MAPPINGS:
                found[last_name(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])] = node.lineno, False
        yield from ((module, name, line, is_endless) for name, (line, is_endless) in found.items())


def filled_where_lacking(function: ast.FunctionDef, shared: set[str]) -> set[str]:
    """Of attributes and of the module's own variables, `shared`."""
    read, written = set[str](), set[str]()
    for node in ast.walk(function):
        if isinstance(node, ast.Compare):
            for operator, mapping in zip(node.ops, node.comparators):
                if isinstance(operator, ast.In | ast.NotIn):
                    read.add(ast.unparse(mapping))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("get", "pop", "setdefault"):
                read.add(ast.unparse(node.func.value))
            if node.func.attr == "setdefault":
                written.add(ast.unparse(node.func.value))
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            written.add(ast.unparse(node.value))
    return {name.split(".")[-1] for name in read & written if re.fullmatch(r"[\w.]+", name) and ("." in name or name in shared)}


def unlisted_caches(root: Path) -> Iterator[str]:
    """Those without a row of their own in the document, which says when it goes, and rows whose cache is gone."""
    listed: dict[tuple[str, str], int] = {}
    header: list[str] = []
    for line, text in enumerate((root / CACHES).read_text().splitlines(), start=1):
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")] if text.startswith("|") else []
        header = header if cells and header else cells
        row = dict(zip(header, cells))
        for names, module in re.findall(r"((?:`\w+`(?:, | and )?)+) in `(src/vkdml/[\w/]+\.py)`", row.get("cache", "")):
            for name in re.findall(r"\w+", names.replace(" and ", " ")):
                listed[module, name] = line
                if not row.get("bound") or row["bound"].startswith("none") or not row.get("goes when"):
                    yield f"{CACHES}:{line} does not say what bounds {name}, or when it goes: give it a bound, and write both"
    found = {(module, name): (line, is_endless) for module, name, line, is_endless in caches(root)}
    for (module, name), (line, is_endless) in found.items():
        if is_endless:
            yield f"{module}:{line} keeps all that {name} ever returned: give lru_cache a number"
        if (module, name) not in listed:
            yield f"{module}:{line} keeps {name}, of which {CACHES} has no row: add one, `{name}` in `{module}`, with its bound and lifetime"
    for (module, name), line in listed.items():
        if (module, name) not in found:
            yield f"{CACHES}:{line} lists {name} in {module}, which is no cache: take it out"


# Families of kernels

def tilings(root: Path) -> set[str]:
    """The classes that families define, and all that are called a tiling."""
    return {node.name for path in files(root, f"{PLANNING}/**/*.py") for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ClassDef) and (is_of_family(root, path) or node.name.endswith("Tiling"))}


def is_of_family(root: Path, path: Path) -> bool:
    name = path.relative_to(root).as_posix()
    return name.startswith(FAMILIES) and name != TABLE_OF_FAMILIES


def family_by_family(root: Path) -> Iterator[str]:
    """A choice by a kernel's name or a tiling's class outside of the families, and a family imported but by their table."""
    classes, known = tilings(root), modules(root)
    for name, path in known.items():
        if is_of_family(root, path):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                found = {last_name(side) for side in (node.left, *node.comparators)} & {"kernel"}
            elif isinstance(node, ast.Call) and last_name(node.func) in ("isinstance", "issubclass"):
                found = {last_name(part) for part in ast.walk(node.args[1])} & classes
            elif isinstance(node, ast.MatchClass):
                found = {last_name(node.cls)} & classes
            else:
                continue
            for one in sorted(found):
                yield f"{place(root, path, node.lineno)} chooses by {one}: make it a member of Tiling that each family has its own of"
        for target, line in imports(name, path, known) if path != root / TABLE_OF_FAMILIES else ():
            if target in known and is_of_family(root, known[target]):
                yield f"{place(root, path, line)} imports {target}, of a family: take it from {TABLE_OF_FAMILIES}, or do without"
