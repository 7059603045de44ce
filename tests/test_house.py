"""The house's rules hold in this tree, and each reports a breach in a little tree that is made up to break it."""

import ast
import re
from functools import partial
from pathlib import Path

import pytest

from tests import house, house_inside

ROOT = Path(__file__).parents[1]
RULES = {rule.__name__: rule for rule in (
    house.layers, house.chains, house.names_twice, house.unused_ways_inside, house.too_large, house.missing_paths,
    house_inside.other_detectors, house_inside.unlisted_caches, house_inside.family_by_family, house_inside.includes,
    house_inside.numbers_on_both_sides)} | {row.name: partial(house.forbidden, row) for row in house.NEVER}


def breaches(rule, root):
    return [f"{path.relative_to(root)}:{line} {said}" for path, line, said in RULES[rule](root)]


@pytest.mark.parametrize("rule", RULES)
def test_this_tree_keeps(rule):
    found = breaches(rule, ROOT)
    assert not found, "\n".join(found)


def test_the_bounds_follow_the_tree_down(record_property):
    sizes = house.sizes(ROOT)
    record_property("summary", "; ".join(f"{count:,} {what} of {house.MOST[what]:,}" for what, count in sizes.items()))
    for what, slack in {"lines of src": 250, "files of src": 5, "lines of the laboratory": 250}.items():
        assert house.MOST[what] - sizes[what] < slack, f"lower MOST in tests/house.py to {sizes[what]:,} {what} and a little"


def test_shaders_have_the_texts_that_planted_mistakes_replace():
    """Here and at once, as the tests and checks that compile such mistakes take long."""
    planted = [(path.name, *row) for path, node in house.nodes(ROOT, *house.OURS) if isinstance(node, ast.Call | ast.Tuple)
               for texts in [[getattr(text, "value", None) for text in getattr(node, "args", getattr(node, "elts", None))]]
               for row in zip(texts, texts[1:], texts[2:]) if re.fullmatch(r"[\w/]+\.(comp|glsl)", str(row[0]))]
    assert len(planted) > 50
    assert [row for row in planted if row[2] not in (ROOT / "shaders" / row[1]).read_text()] == []


SHADER = "#version 450\n#extension GL_GOOGLE_include_directive : require\n"
CACHES = ("| cache | bound | goes when |\n|---|---|---|\n"
          "| `gru` and `_of` in `src/vkdml/engine/commands.py` | 4 | never |\n| `_open` in `src/vkdml/engine/vulkan/gpu.py` | 1 | never |\n")
SOUND = {
    ".gitignore": "/docs/api/\n/src/vkdml/spirv/\n",
    "docs/caches.md": CACHES,
    "README.md": "See `shaders/gpu/CELL.comp`, `gpu/*.comp`, `src/vkdml/{operators,faces}/`, `tests/test_a.py::test_b`, shaders/PATH.comp\n"
                 "and, once made, docs/api/.\n```\nvkdml run no/such/model.py\n```\nhttps://example.org/no/such.py\n",
    "src/vkdml/__init__.py": "from .faces.functional import gru\nfrom .operators import cells\n",
    "src/vkdml/cli.py": "from . import __version__, onnx\nimport json\ntests = 'pip install vkdml_lab or ./lab'; tests.values()  # docs/api/tests/a\n",
    "src/vkdml/errors.py": '"""Formats, Ways and Ones."""\ndef shown():\n    """Form of it, with what is in it."""\n',
    "lab/vkdml_lab/internals.py": "from vkdml.operators.cells import LANES\n",
    "src/vkdml/onnx.py": "from .faces.onnx import *\n",
    "src/vkdml/faces/functional.py": "from ..engine.vulkan.gpu import Gpu\nfrom ..errors import VkdmlError\nclass GRU: pass\n",
    "src/vkdml/faces/onnx/__init__.py": "import onnx\nfrom .nodes import run_node\n",
    "src/vkdml/faces/onnx/nodes.py": "from .. import functional\nfrom ...operators.cells import GRU as Cell\nclass GRU: pass\n",
    "src/vkdml/planning/families/__init__.py": "from .gpu_loop import GpuLoop\nfrom vkdml.planning.families import gpu_loop\n",
    "src/vkdml/planning/families/gpu_loop.py": "class GpuLoop: pass\nA = isinstance(A, GpuLoop) and self.kernel == 'gru'\n",
    "src/vkdml/planning/gpus.py": "class GpuRates:\n    clock: float\nAMD = GpuRates(clock=1e9)\n",
    "src/vkdml/planning/profiles.py": '"""The driver llvmpipe; see cells.py."""\nfrom ..operators import cells\nSPINS = 12\n',
    "src/vkdml/engine/vulkan/__init__.py": "",
    "src/vkdml/engine/vulkan/gpu.py": "from . import _kp as kp\nfrom ...planning.profiles import SPINS\nA = 'mesa-vulkan-drivers VK_AMD_a'\n"
                                      "_open = {}\ndef opened(key):\n    return _open.setdefault(key, 1)\n",
    "src/vkdml/engine/vulkan/buffers.py": "class Buffer: pass\n",
    "src/vkdml/engine/commands.py": "from .vulkan.buffers import Buffer\n@lru_cache(4)\ndef gru(): pass\n_of: Any = WeakKeyDictionary()\n",
    "src/vkdml/engine/compiled.py": "from .commands import gru\nfrom .vulkan.buffers import BufferPart\ngru(weights.origin is None)\n",
    "src/vkdml/engine/weights.py": "def is_current(origin, wanted): return origin == wanted\n",
    "src/vkdml/operators/cells.py": "from ..errors import VkdmlError\n_GATES = 3\nLANES: int = 8\n",
    "src/vkdml/spirv/pack.spv": "\n" * 20_000,
    "lab/vkdml_lab/a.py": "from vkdml import errors, gru\nfrom vkdml_lab.internals import LANES\nfrom . import b\n",
    "lab/vkdml_lab/b.py": "class Call: pass\n",
    "shaders/pack.comp": SHADER + '#include "common/problem.glsl"\n',
    "shaders/cells/gru.glsl": '// As operators/cells.py says.\nconst uint GATES_OF_GRU = 3;\n',
    "shaders/cells/lstm.glsl": "",
    "shaders/cells/rnn.glsl": "",
    "shaders/common/problem.glsl": "// Once\n#ifndef PROBLEM\n#define PROBLEM\nlayout(constant_id = 0) const uint ROWS = 1;\n#endif\n",
    "shaders/common/numbers.glsl": "const uint SPINS = 12u;\n",
    "shaders/cpu/lanes.glsl": "// llvmpipe\n#ifdef WIDE\n#endif\n",
    "shaders/gpu/CELL.comp": SHADER + '#define TILE 1\n#include "cells/CELL.glsl"  // #if\n#include "common/problem.glsl"\n',
    "tests/public_names.txt": "vkdml.GRU\nvkdml.torch.GRU\n",
    "tests/test_a.py": "from tools import compile_shaders\nfrom vkdml.engine import commands\ndef test_b(): pass\n",
    "tools/compile_shaders.py": "COMMAND = ['glslangValidator', '-V']\n",
}

LAB, CLI, NODES, PLAN = "lab/vkdml_lab/a.py", "src/vkdml/cli.py", "src/vkdml/faces/onnx/nodes.py", "src/vkdml/planning/plan.py"
FUNCTIONAL, COMPILED, COMMANDS = "src/vkdml/faces/functional.py", "src/vkdml/engine/compiled.py", "src/vkdml/engine/commands.py"
USED = "from vkdml_lab.internals import LANES\n"
# The rule, what is written into the tree, and a part of what is said of it
BROKEN = [
    ("layers", {FUNCTIONAL: "from vkdml import gru\n"}, "faces/functional.py:1 imports vkdml, which is above faces: move the shared part"),
    ("layers", {"src/vkdml/errors.py": "def f():\n    from .operators.cells import A\n"}, "errors.py:2 imports vkdml.operators.cells, which is above"),
    ("layers", {"src/vkdml/helpers.py": ""}, "helpers.py:1 is in no layer of vkdml: move it into the lowest"),
    ("layers", {"src/vkdml/engine/vulkan/buffers.py": "from .. import commands\n"}, "buffers.py:1 imports vkdml.engine.commands, which is above vulkan"),
    ("chains", {FUNCTIONAL: "from .onnx import nodes\n"}, "> vkdml.faces.functional"),
    ("chains", {"lab/vkdml_lab/b.py": "from vkdml_lab.a import A\n"}, "is in a circle of imports, vkdml_lab."),
    ("chains", {f"src/vkdml/operators/a{at}.py": f"from . import a{at + 1}\n" if at < 30 else "" for at in range(31)},
     "operators/a0.py:1 begins a chain of 31 imports in vkdml, which may have 30: pass in what one of them needs: vkdml.operators.a0 > vkdml"),
    ("names_twice", {"src/vkdml/planning/cells.py": ""}, "planning/cells.py:1 has the name of another, cells in vkdml.operators.cells: name it"),
    ("names_twice", {NODES: "\nclass Buffer: pass\n"}, "has the name of another, class Buffer in vkdml."),
    ("unused_ways_inside", {"lab/vkdml_lab/internals.py": "from vkdml.operators.cells import LANES, GRU\n"}, "internals.py:1 has GRU, which nothing outside uses"),
    ("too_large", {"src/vkdml/a.cc": "\n" * 19_000}, "has 19,0"),
    ("too_large", {f"src/vkdml/planning/a{at}.pyi": "" for at in range(110)}, "files of src, and may have"),
    ("too_large", {"lab/tests/native/a.c": "\n" * 25_000, "lab/tests/bench/a.py": "\n" * 9}, "has 25,0"),
    ("too_large", {"docs/kernels/a.md": "word " * 21_000, "docs/bench/a.md": "word " * 9}, "words of the documents"),
    ("outside", {CLI: "import os, sys\nsys.path.insert(0, A)\n"}, "cli.py:2 has 'sys.path': the package must not know"),
    ("outside", {CLI: "import_module(f'tools.{name}')\n"}, "cli.py:1 has \"'tools\""),
    ("outside", {CLI: "\n# as tools/docs.py\n"}, "cli.py:2 has 'tools/d'"),
    ("kp", {LAB: f"{USED}import kp\n"}, "a.py:2 has 'import kp': use the classes of src/vkdml/engine/vulkan/gpu.py"),
    ("inner modules", {LAB: f"{USED}from vkdml.planning.profiles import SPINS\n"}, "a.py:2 has 'from vkdml.planning': import it from lab/vkdml_lab/internals.py"),
    ("inner modules", {LAB: f'{USED}A = """\n    from vkdml import (\n    gru, operators)\n"""\n'}, "a.py:3 has"),
    ("locals", {FUNCTIONAL: "A = run(locals())\n"}, "functional.py:1 has 'locals()': write the arguments out"),
    ("endless caches", {COMMANDS: "@lru_cache(None)\ndef gru(): pass\n"}, "commands.py:1 has 'lru_cache(None': give it a number"),
    ("buffers of compiled operators", {COMPILED: "from .vulkan.buffers import Buffer as Made\n"}, "compiled.py:1 has"),
    ("drivers", {PLAN: "# as llvmpipe does\n"}, "plan.py:1 has 'llvmpipe': write which property"),
    ("figures of GPUs", {LAB: f"{USED}class Core:\n    clock: float = 2e9\n"}, "a.py:3 has 'clock: float = 2': take it from a row"),
    ("cells", {"shaders/gpu/lstm_end.comp": SHADER}, "lstm_end.comp:1 has 'lstm': a kernel is for all cells"),
    ("conditionals", {"shaders/gpu/CELL.comp": f"{SHADER}#if TILE\n"}, "CELL.comp:3 has '#if': write the other way"),
    ("conditionals", {"shaders/common/problem.glsl": "#ifndef A\n#define A 1\n#endif\n"}, "problem.glsl:1 has '#ifndef A'"),
    ("riddles", {CLI: 'class A:\n    def f(self):\n        """\n        Of a driver."""\n'}, "begin with a noun or a verb"),
    ("missing_paths", {"README.md": "\n`shaders/gpu/lstm.comp`\n"}, "README.md:2 names shaders/gpu/lstm.comp, which is not there: write where"),
    ("missing_paths", {"docs/kernels/gru.md": "../shaders/gpu/CELL.comp\n"}, "docs/kernels/gru.md:1 names ../shaders/gpu/CELL.comp"),
    ("missing_paths", {"CONTRIBUTING.md": "src/vkdml/{operators,nothing}/\n"}, "names src/vkdml/{operators,nothing}/"),
    ("missing_paths", {"shaders/gpu/dot.glsl": "void f();  // as in lib/dot.glsl\n"}, "dot.glsl:1 names lib/dot.glsl"),
    ("missing_paths", {CLI: "\n# See cells.py and no.py\n"}, "cli.py:2 names no.py"),
    ("missing_paths", {CLI: "def f():\n    '''As\n\n    types.py says.'''\n".replace("'", '"')}, "cli.py:4 names types.py"),
    ("missing_paths", {".editorconfig": "[{*.yml,tools/setup}]\n"}, ".editorconfig:1 names tools/setup"),
    ("missing_paths", {"Makefile": "all:\n\t@tools/setup\n"}, "Makefile:2 names tools/setup"),
    ("missing_paths", {"README.md": "`tests/test_a.py::test_c`\n"}, "tests/test_a.py has no such test"),
    ("other_detectors", {CLI: "\nif last in [part._stamp, 1] or x == _stamp: pass\n"}, "cli.py:2 compares stamp: call is_current"),
    ("unlisted_caches", {CLI: "@functools.cache\ndef f(): pass\n"}, "src/vkdml/cli.py:2 keeps f, of which docs/caches.md has no row: add one"),
    ("unlisted_caches", {CLI: "class A:\n    def __init__(self):\n        self._kept: Recent[int] = Recent(4)\n"}, "cli.py:3 keeps _kept"),
    ("unlisted_caches", {CLI: "_kept = {}\ndef f(key):\n    found = _kept.get(key)\n    _kept[key] = found or 1\n"}, "cli.py:2 keeps _kept"),
    ("unlisted_caches", {CLI: "def f(self, key):\n    if key not in self._kept:\n        self._kept[key] = 1\n"}, "cli.py:1 keeps _kept"),
    ("unlisted_caches", {"src/vkdml/engine/vulkan/gpu.py": "_open = {}\n"}, "docs/caches.md:4 lists _open in src/vkdml/engine/vulkan/gpu.py, which is no cache"),
    ("unlisted_caches", {"docs/caches.md": CACHES.replace("1 | never", "1 | ")}, "docs/caches.md:4 does not say what bounds _open"),
    ("family_by_family", {PLAN: "\nif tiling.kernel == 'gru': pass\n"}, "plan.py:2 chooses by kernel: make it a member of Tiling"),
    ("family_by_family", {PLAN: "class PartsTiling: pass\nA = [isinstance(a, (PartsTiling, int)) for a in b]\n"}, "plan.py:2 chooses by PartsTiling"),
    ("family_by_family", {PLAN: "match loop:\n    case GpuLoop(): pass\n"}, "plan.py:2 chooses by GpuLoop"),
    ("family_by_family", {PLAN: "from .families.gpu_loop import GpuLoop\n"}, "plan.py:1 imports vkdml.planning.families.gpu_loop, of a family"),
    ("includes", {"shaders/gpu/CELL.comp": '\n#include "cpu/lanes.glsl"\n'}, "CELL.comp:2 includes cpu/lanes.glsl, and from here only cells, common, gpu"),
    ("includes", {"shaders/lib/state.glsl": ""}, "shaders/lib/state.glsl:1 is in no room: move it into one of cells, common"),
    ("numbers_on_both_sides", {"shaders/gpu/dot.glsl": "\n#define GATES 3\n"}, "dot.glsl:2 writes GATES down, as cells.py does: generate it into"),
    ("numbers_on_both_sides", {"shaders/cells/rnn.glsl": "const uint A = 1,\n           LANES = 0x8u, B = 2;\n"}, "rnn.glsl:1 writes LANES down"),
]


def make_tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize("rule", RULES)
def test_a_sound_tree_keeps(rule, tmp_path):
    make_tree(tmp_path, SOUND)
    assert breaches(rule, tmp_path) == []


@pytest.mark.parametrize(("rule", "files", "said"), [pytest.param(*row, id=f"{row[0]}-{place}") for place, row in enumerate(BROKEN)])
def test_a_broken_tree_does_not_keep(rule, files, said, tmp_path):
    make_tree(tmp_path, SOUND | files)
    (breach,) = breaches(rule, tmp_path)
    assert said in breach


def test_each_rule_is_broken_once():
    assert {row[0] for row in BROKEN} == set(RULES)
