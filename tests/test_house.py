"""The house's rules hold in this tree, and each is seen to be broken where it is: in a little tree made up for it.

One more rule, that a forced option runs or raises, is held by tests/planning/.
"""

from pathlib import Path

import pytest

from tests import house, house_inside

ROOT = Path(__file__).parents[1]
RULES = [house.layers, house.names_twice, house.kp_imports, house.ways_inside, house.unused_ways_inside, house.ways_outside,
         house.driver_names,
         house.conditionals, house.foreign_macros, house.includes, house.named_cells, house.variants, house.numbers_on_both_sides,
         house.gpu_figures, house.places_by_number, house.riddles, house.missing_paths, house.too_many_lines,
         house_inside.engine_floors, house_inside.buffers_of_compiled, house_inside.other_detectors, house_inside.unlisted_caches,
         house_inside.family_by_family]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_this_tree_keeps(rule):
    breaches = list(rule(ROOT))
    assert not breaches, "\n".join(breaches)


def test_the_lines_of_each_room_are_printed(record_property):
    record_property("summary", house.told_lines(ROOT))


def test_the_longest_chain_is_of_the_room_alone():
    assert house_inside.longest_chain(house_inside.imports_within(ROOT, "errors")) == ["errors"]


SHADER = "#version 450\n#extension GL_GOOGLE_include_directive : require\n"
MAIN = "void main() {}\n"
SOUND = {
    ".gitignore": "/docs/api/\n",
    "docs/caches.md": "| cache | bound | goes when |\n|---|---|---|\n"
                      "| `gru` and `_of` in `src/vkdml/engine/commands.py`, `_open` in `src/vkdml/engine/vulkan/gpu.py` | 4 | never |\n",
    "docs/faces/a.md": "As ../../shaders/gpu/CELL.comp and shaders/PATH.comp.\n",
    "README.md": "See `shaders/gpu/CELL.comp`, `gpu/*.comp`, `src/vkdml/{operators,faces}/`, `tests/test_a.py::test_b` and, once made, docs/api/.\n"
                 "```\nvkdml dispatch no/such/model.py\n```\nhttps://example.org/no/such.py\n",
    "src/vkdml/__init__.py": "from .faces.functional import gru\nfrom .operators import cells\n",
    "src/vkdml/__main__.py": "from .cli import main\n",
    "src/vkdml/cli.py": "from . import __version__, onnx\nimport json\n",
    "src/vkdml/errors.py": '"""Formats, Ways and Ones."""\ndef shown():\n    """Form of it, with what is in it."""\n',
    "src/vkdml/onnx.py": "from .faces.onnx import *\n",
    "src/vkdml/faces/functional.py": "from ..engine.vulkan.gpu import Gpu\nfrom ..errors import VkdmlError\n",
    "src/vkdml/faces/onnx/__init__.py": "import onnx\nfrom .nodes import run_node\n",
    "src/vkdml/faces/onnx/nodes.py": "from .. import functional\nfrom ...operators.cells import GRU\n",
    "src/vkdml/planning/families/__init__.py": "from .gpu_loop import GpuLoop\nfrom vkdml.planning.families import gpu_loop\n",
    "src/vkdml/planning/families/gpu_loop.py": "class GpuLoop: pass\nA = isinstance(A, GpuLoop) and self.kernel == 'flow'\n",
    "src/vkdml/planning/gpus.py": "class GpuRates:\n    clock: float\nAMD = GpuRates(clock=1e9)\n",
    "src/vkdml/planning/profiles.py": '"""The driver llvmpipe; see cells.py."""\nfrom ..operators import cells\nSPINS = 12\n',
    "src/vkdml/engine/vulkan/__init__.py": "",
    "src/vkdml/engine/vulkan/gpu.py": "from . import _kp as kp\nfrom ...planning.profiles import SPINS\nINSTALL = 'apt-get install mesa-vulkan-drivers'\n"
                                      "_open = {}\ndef opened(key):\n    return _open.setdefault(key, 1)\n",
    "src/vkdml/engine/vulkan/buffers.py": "class Buffer: pass\ndef made(): return Buffer(1)\n",
    "src/vkdml/engine/commands.py": "from .vulkan.buffers import Buffer\n@lru_cache(4)\ndef gru(): pass\n_of: Any = WeakKeyDictionary()\n",
    "src/vkdml/engine/compiled.py": "from .commands import gru\nfrom .vulkan.buffers import Bound\ngru(weights.origin is None)\n",
    "src/vkdml/engine/weights.py": "def is_current(origin, wanted): return origin == wanted\n",
    "src/vkdml/operators/cells.py": "from ..errors import VkdmlError\n_GATES = 3\nLANES: int = 8\n",
    **{f"src/vkdml/spirv/{room}/{cell}{kind}.spv": "" for cell in ("gru", "lstm", "rnn")
       for room, kind in (("cpu", "_lanes"), ("float64", ""), ("gpu", ""))},
    "src/vkdml/spirv/pack.spv": "",
    "shaders/pack.comp": SHADER + '#include "common/problem.glsl"\n' + MAIN,
    "shaders/cells/gru.glsl": '// As operators/cells.py says.\nconst uint GATES_OF_GRU = 3;\n',
    "shaders/cells/lstm.glsl": "",
    "shaders/cells/rnn.glsl": "",
    "shaders/common/problem.glsl": "// Once\n#ifndef PROBLEM\n#define PROBLEM\nlayout(constant_id = 0) const uint ROWS = 1;\n#endif\n",
    "shaders/common/numbers.glsl": "const uint SPINS = 12u;\n",
    "shaders/cpu/lanes.glsl": "// llvmpipe\n#define SHUFFLED 1\n#define TILE 2\n#ifdef WIDE\n#endif\n",
    "shaders/cpu/CELL_lanes.comp": SHADER + '#include "lanes.glsl"\n#include "cells/CELL.glsl"\n' + MAIN,
    "shaders/float64/pairs.glsl": "#define REAL vec2\n",
    "shaders/float64/CELL.comp": SHADER + '#include "float64/pairs.glsl"\n#include "common/numbers.glsl"\n' + MAIN,
    "shaders/gpu/CELL.comp": SHADER + '#define TILE 1\n#include "cells/CELL.glsl"  // #if\n#include "common/problem.glsl"\n' + MAIN,
    "tests/test_a.py": "def test_b(): pass\n",
    "tools/compile_shaders.py": "COMMAND = ['glslangValidator', '-V']\n",
}

# The rule, what is written into the tree, and a part of what is said of it
BROKEN = [
    (house.layers, {"src/vkdml/operators/cells.py": "from ..planning import profiles\n"},
     "src/vkdml/operators/cells.py:1 imports planning.profiles, from above operators: move what it needs down into operators"),
    (house.layers, {"src/vkdml/engine/vulkan/gpu.py": "def late():\n    from vkdml.faces.onnx.nodes import run_node\n"},
     "gpu.py:2 imports faces.onnx.nodes, from above engine"),
    (house.layers, {"src/vkdml/faces/functional.py": "import vkdml.cli\n"}, "functional.py:1 imports cli, from above faces"),
    (house.layers, {"src/vkdml/faces/functional.py": "from vkdml import gru\n"}, "functional.py:1 imports __init__, from above faces"),
    (house.layers, {"src/vkdml/errors.py": "from .operators.cells import GRU\n"}, "errors.py:1 imports operators.cells, from above errors"),
    (house.layers, {"src/vkdml/onnx.py": "from . import cli\n"}, "onnx.py:1 imports cli, from above onnx"),
    (house.layers, {"src/vkdml/faces/functional.py": "from .onnx import nodes\n"}, "faces.functional, faces.onnx.nodes import each other in a circle"),
    (house.layers, {"src/vkdml/helpers.py": ""}, "src/vkdml/helpers.py:1 is in no layer: move it into operators, planning"),
    (house.names_twice, {"src/vkdml/planning/cells.py": ""}, "src/vkdml/planning/cells.py:1 is named as operators.cells is: name it after"),
    (house.names_twice, {"src/vkdml/functional.py": ""}, "src/vkdml/functional.py:1 is named as faces.functional is"),
    (house.kp_imports, {"lab/vkdml_lab/bench/ceilings.py": "import kp\n"}, "lab/vkdml_lab/bench/ceilings.py:1 imports kp: use what src/vkdml/engine/vulkan/gpu.py offers"),
    (house.kp_imports, {"src/vkdml/engine/execution.py": "def f():\n    from kp import Manager\n"}, "execution.py:2 imports kp"),
    (house.kp_imports, {"src/vkdml/engine/execution.py": "from .vulkan import _kp\n"}, "execution.py:1 imports kp"),
    (house.kp_imports, {"src/vkdml/engine/execution.py": "import vkdml.engine.vulkan._kp\n"}, "execution.py:1 imports kp"),
    (house.ways_inside, {"lab/vkdml_lab/bench/a.py": "\nfrom vkdml.planning.profiles import SPINS\n"},
     "lab/vkdml_lab/bench/a.py:2 imports planning: take it from vkdml/laboratory.py, or do without"),
    (house.ways_inside, {"lab/vkdml_lab/a.py": 'A = """\n    from vkdml import gru, operators\n"""\n'}, "lab/vkdml_lab/a.py:2 imports operators"),
    (house.ways_inside, {"lab/vkdml_lab/a.py": "def f():\n    import vkdml.engine.vulkan.gpu as device\n"}, "lab/vkdml_lab/a.py:2 imports engine"),
    (house.ways_inside, {"lab/vkdml_lab/a.py": "from vkdml import (\n    gru,\n    faces,\n)\n"}, "lab/vkdml_lab/a.py:1 imports faces"),
    (house.unused_ways_inside, {"src/vkdml/laboratory.py": "from .planning.profiles import SPINS\nfrom .operators.cells import LANES\n",
                                "lab/vkdml_lab/a.py": "from vkdml.laboratory import LANES\n"},
     "laboratory.py:1 has SPINS, which nothing in the laboratory uses: take it out"),
    (house.ways_outside, {"src/vkdml/errors.py": "def f():\n    from tests import support\n"}, "errors.py:2 names tests, which is no part of the package"),
    (house.ways_outside, {"src/vkdml/errors.py": "import vkdml_lab.reports\n"}, "errors.py:1 names vkdml_lab"),
    (house.ways_outside, {"src/vkdml/errors.py": "A = import_module('tools.gpu')\n"}, "errors.py:1 names tools"),
    (house.ways_outside, {"src/vkdml/errors.py": "import sys\nsys.path.append('a')\n"}, "errors.py:2 names sys.path"),
    (house.driver_names, {"src/vkdml/planning/plan.py": "# as llvmpipe does\n"}, "plan.py:1 names a driver, llvmpipe: say which property"),
    (house.driver_names, {"src/vkdml/engine/vulkan/queries.py": "\nIS_RADV = 1\n"}, "queries.py:2 names a driver, RADV"),
    (house.driver_names, {"shaders/common/state.glsl": "// faster with NVIDIA's driver\n"}, "state.glsl:1 names a driver, NVIDIA"),
    (house.conditionals, {"shaders/gpu/CELL.comp": SHADER + "#if TILE\n#endif\n" + MAIN}, "CELL.comp:3 has a preprocessor conditional: write the other way"),
    (house.conditionals, {"shaders/common/problem.glsl": "#ifndef A\n#define A\n  # ifdef B\n  # endif\n#endif\n"}, "problem.glsl:3 has a preprocessor"),
    (house.conditionals, {"shaders/common/problem.glsl": "#ifndef A\n#define A 1\n#endif\nconst uint B = A;\n"}, "problem.glsl:1 has a preprocessor"),
    (house.foreign_macros, {"shaders/common/problem.glsl": "\nconst uint A = SHUFFLED;\n"}, "problem.glsl:2 uses SHUFFLED, a macro of shaders/cpu/: give the"),
    (house.foreign_macros, {"shaders/gpu/dot.glsl": "REAL a;\n"}, "dot.glsl:1 uses REAL, a macro of shaders/float64/"),
    (house.includes, {"shaders/gpu/CELL.comp": SHADER + '#include "cpu/lanes.glsl"\n' + MAIN},
     "CELL.comp:3 includes cpu/lanes.glsl: from here only cells, common, gpu may be included"),
    (house.includes, {"shaders/cpu/CELL_lanes.comp": SHADER + '#include "../float64/pairs.glsl"\n' + MAIN}, "from here only cells, common, cpu"),
    (house.includes, {"shaders/float64/CELL.comp": SHADER + '#include "cells/gru.glsl"\n' + MAIN}, "from here only common, float64"),
    (house.includes, {"shaders/common/problem.glsl": '#include "gpu/dot.glsl"\n', "shaders/gpu/dot.glsl": ""}, "from here only common may be"),
    (house.includes, {"shaders/pack.comp": SHADER + '#include "lib/none.glsl"\n' + MAIN}, "pack.comp:3 includes lib/none.glsl, which is not there"),
    (house.includes, {"shaders/lib/state.glsl": ""}, "shaders/lib/state.glsl:1 is in no room: move it into one of shaders/{cells,common"),
    (house.variants, {"tools/compile_shaders.py": "COMMAND = [*(f'-D{macro}' for macro in 'AB')]\n"}, "compile_shaders.py:1 passes macros to the compiler"),
    (house.variants, {"src/vkdml/spirv/gpu/begin.spv": ""}, "src/vkdml/spirv/gpu/begin.spv is shipped without a source shaders/gpu/begin.comp: run"),
    (house.variants, {"shaders/gpu/begin.comp": SHADER + MAIN}, "shaders/gpu/begin.comp has no src/vkdml/spirv/gpu/begin.spv: run pip install"),
    (house.named_cells, {"shaders/gpu/lstm_end.comp": SHADER + MAIN}, "lstm_end.comp:1 names a cell, lstm: a kernel is for all of them"),
    (house.named_cells, {"shaders/pack.comp": SHADER + "// Of a GRU\n" + MAIN}, "pack.comp:3 names a cell, GRU"),
    (house.numbers_on_both_sides, {"shaders/gpu/dot.glsl": "const uint SPINS = 13u;\n"},
     "dot.glsl:1 writes SPINS down, as src/vkdml/planning/profiles.py:3 does: generate it into shaders/common/numbers.glsl"),
    (house.numbers_on_both_sides, {"shaders/cpu/dot.glsl": "\n#define GATES 3\n"}, "dot.glsl:2 writes GATES down, as src/vkdml/operators/cells.py:2 does"),
    (house.numbers_on_both_sides, {"shaders/cells/rnn.glsl": "const int LANES = 0x8;\n"}, "rnn.glsl:1 writes LANES down, as src/vkdml/operators/cells.py:3"),
    (house.numbers_on_both_sides, {"shaders/cells/rnn.glsl": "const uint A = 1,\n           LANES = 8, B = 2;\n"}, "rnn.glsl:1 writes LANES down"),
    (house.gpu_figures, {"src/vkdml/planning/profiles.py": "ROW = replace(LIKE,\n clock=1.4e9)\n"},
     "profiles.py:2 writes a GPU's clock down: take it from a row of src/vkdml/planning/gpus.py"),
    (house.gpu_figures, {"lab/vkdml_lab/gpu/gpus.py": "class Core:\n    clock: float = 2e9\n"}, "gpus.py:2 writes a GPU's clock down"),
    (house.gpu_figures, {"lab/vkdml_lab/bench/peaks.py": "AMD = GpuRates(2e9)\n"}, "lab/vkdml_lab/bench/peaks.py:1 makes GpuRates"),
    (house.places_by_number, {"src/vkdml/planning/plan.py": "bind(buffer, binding=3)\n"}, "plan.py:1 writes the number of a binding down: take it from"),
    (house.places_by_number, {"src/vkdml/planning/plan.py": "ROWS = {'constant_id': 1}\n"}, "plan.py:1 writes the number of a constant_id down"),
    (house.riddles, {"src/vkdml/errors.py": '"""Of a driver."""\n'},
     "errors.py:1 has a docstring that begins with Of: begin with a noun or a verb"),
    (house.riddles, {"src/vkdml/faces/functional.py": 'class Call:\n    """A call."""\n    async def run(self):\n        """\n        Without a device"""\n'},
     "functional.py:4 has a docstring that begins with Without"),
    (house.riddles, {"lab/vkdml_lab/a.py": 'def f():\n    """Where it is."""\n'}, "lab/vkdml_lab/a.py:2 has a docstring that begins with Where"),
    (house.riddles, {"lab/vkdml_lab/bench/a.py": 'class A:\n    """To be called."""\n'}, "lab/vkdml_lab/bench/a.py:2 has a docstring that begins with To"),
    (house.missing_paths, {"README.md": "`shaders/gpu/lstm.comp`\n"}, "README.md:1 names shaders/gpu/lstm.comp, which is not there: write where"),
    (house.missing_paths, {"docs/kernels/gru.md": "../shaders/gpu/CELL.comp\n"}, "docs/kernels/gru.md:1 names ../shaders/gpu/CELL.comp, which"),
    (house.missing_paths, {"docs/kernels/gru.md": "\n\nIn shaders/lib/ it is.\n"}, "docs/kernels/gru.md:3 names shaders/lib/, which is not"),
    (house.missing_paths, {"CONTRIBUTING.md": "src/vkdml/{operators,nothing}/\n"}, "CONTRIBUTING.md:1 names src/vkdml/{operators,nothing}/"),
    (house.missing_paths, {"shaders/gpu/dot.glsl": "void f();  // as in lib/dot.glsl\n"}, "dot.glsl:1 names lib/dot.glsl"),
    (house.missing_paths, {"src/vkdml/operators/cells.py": 'def f():\n    """As types.py\n\n    and costs.py say."""\n', "src/vkdml/planning/costs.py": ""},
     "cells.py:2 names types.py"),
    (house.missing_paths, {"lab/vkdml_lab/bench/a.py": "A = 1  # see problem.glsl and b.py\n"}, "lab/vkdml_lab/bench/a.py:1 names b.py"),
    (house.missing_paths, {"README.md": "`tests/test_a.py::test_c`\n"}, "names tests/test_a.py::test_c, and tests/test_a.py has no such test"),
    (house.too_many_lines, {"src/vkdml/cli/a.py": "\n" * 4000}, "src/vkdml/cli has 4,000 lines, and LINES allows"),
    (house.too_many_lines, {"src/vkdml/big.py": "\n" * 4000}, "src/vkdml/. has 4,00"),
    (house.too_many_lines, {"shaders/gpu/a.glsl": "\n" * 4000}, "shaders has 4,0"),
    (house_inside.engine_floors, {"src/vkdml/engine/plans.py": ""}, "plans.py:1 is in no room of the engine: write it into ENGINE_ROOMS"),
    (house_inside.engine_floors, {"src/vkdml/engine/vulkan/store.py": "\nfrom ..trust import tuner\n", "src/vkdml/engine/trust/tuner.py": ""},
     "store.py:2 imports engine.trust.tuner, from a higher room of the engine: pass in what it needs"),
    (house_inside.engine_floors, {"src/vkdml/engine/commands.py": "from .compiled import Compiled\n", "src/vkdml/engine/compiled.py": ""},
     "commands.py:1 imports engine.compiled, from a higher room"),
    (house_inside.engine_floors, {f"src/vkdml/engine/vulkan/a{floor}.py": f"from . import a{floor + 1}\n" if floor < 4 else "" for floor in range(5)},
     "engine.vulkan.a0 > engine.vulkan.a1 > engine.vulkan.a2 > engine.vulkan.a3 > engine.vulkan.a4: 5 modules import each other in a row, 4 may"),
    (house_inside.engine_floors,
     {f"src/vkdml/engine/{names[floor]}.py": "".join(f"from vkdml.engine.{name.replace('/', '.')} import A\n" for name in names[floor + 1:][:1])
      for names in [["execution", "compiled", "trust/a", "trust/b", "trust/c", "trust/d", "commands", "weights", "vulkan/a"]]
      for floor in range(9)}, "> engine.weights > engine.vulkan.a: 9 modules import each other in a row, 8 may"),
    (house_inside.buffers_of_compiled, {"src/vkdml/engine/compiled.py": "from .vulkan.buffers import Buffer as Made\n"},
     "compiled.py:1 takes Buffer, which makes a buffer: whoever records an operator hands all of them over"),
    (house_inside.buffers_of_compiled, {"src/vkdml/engine/compiled.py": "def record():\n    buffers.made()\n"}, "compiled.py:2 takes made, which"),
    (house_inside.buffers_of_compiled, {"src/vkdml/engine/compiled.py": "A = Scratch(1)\n",
                                        "src/vkdml/engine/scratch.py": "class Scratch:\n    def place(self): return lambda: buffers.Buffer(1)\n"},
     "compiled.py:1 takes Scratch"),
    (house_inside.other_detectors, {"src/vkdml/engine/execution.py": "\nif weights.origin != found: pass\n"},
     "execution.py:2 compares origin: whether weights changed is for is_current in src/vkdml/engine/weights.py to say"),
    (house_inside.other_detectors, {"src/vkdml/faces/onnx/nodes.py": "A = digest(arrays) == last\n"}, "nodes.py:1 compares digest"),
    (house_inside.other_detectors, {"src/vkdml/faces/onnx/nodes.py": "A = last in [part._stamp, 1] or x == _stamp\n"}, "nodes.py:1 compares stamp"),
    (house_inside.unlisted_caches, {"src/vkdml/faces/onnx/nodes.py": "@functools.cache\ndef f(): pass\n"},
     "src/vkdml/faces/onnx/nodes.py:2 keeps f, of which docs/caches.md has no row: add one, `f` in `src/vkdml/faces/onnx/nodes.py`"),
    (house_inside.unlisted_caches, {"src/vkdml/cli.py": "class A:\n    def __init__(self):\n        self._kept: Recent[int] = Recent(4)\n"}, "cli.py:3 keeps _kept"),
    (house_inside.unlisted_caches, {"src/vkdml/cli.py": "class A:\n    def f(self, key):\n        if key not in self._kept:\n            self._kept[key] = 1\n"},
     "cli.py:2 keeps _kept"),
    (house_inside.unlisted_caches, {"src/vkdml/cli.py": "_kept = {}\ndef f(key):\n    found = _kept.get(key)\n    _kept[key] = found or 1\n"}, "cli.py:2 keeps _kept"),
    (house_inside.unlisted_caches, {"src/vkdml/engine/vulkan/gpu.py": "_open = {}\n"},
     "docs/caches.md:3 lists _open in src/vkdml/engine/vulkan/gpu.py, which is no cache: take it out"),
    (house_inside.unlisted_caches, {"src/vkdml/engine/commands.py": "_of = WeakKeyDictionary()\n@lru_cache(None)\ndef gru(): pass\n"},
     "commands.py:3 keeps all that gru ever returned: give lru_cache a number"),
    (house_inside.unlisted_caches, {"docs/caches.md": SOUND["docs/caches.md"] + "| `f` in `src/vkdml/cli.py` | none | never |\n",
                                    "src/vkdml/cli.py": "@lru_cache(maxsize=2)\ndef f(): pass\n"}, "docs/caches.md:4 does not say what bounds f, or when it goes"),
    (house_inside.unlisted_caches, {"docs/caches.md": SOUND["docs/caches.md"] + "| `f` in `src/vkdml/cli.py` | 4 | |\n",
                                    "src/vkdml/cli.py": "@lru_cache(maxsize=2)\ndef f(): pass\n"}, "docs/caches.md:4 does not say"),
    (house_inside.family_by_family, {"src/vkdml/planning/plan.py": "\nif tiling.kernel == 'flow': pass\n"},
     "plan.py:2 chooses by kernel: make it a member of Tiling that each family has its own of"),
    (house_inside.family_by_family, {"src/vkdml/engine/execution.py": "A = kernel in (1, 2)\n"}, "execution.py:1 chooses by kernel"),
    (house_inside.family_by_family, {"src/vkdml/planning/plan.py": "A = isinstance(loop, int | gpu_loop.GpuLoop)\n"}, "plan.py:1 chooses by GpuLoop"),
    (house_inside.family_by_family, {"src/vkdml/planning/plan.py": "class PartsTiling: pass\nA = [isinstance(a, (PartsTiling, int)) for a in b]\n"},
     "plan.py:2 chooses by PartsTiling"),
    (house_inside.family_by_family, {"src/vkdml/planning/plan.py": "match loop:\n    case GpuLoop(): pass\n"}, "plan.py:2 chooses by GpuLoop"),
    (house_inside.family_by_family, {"src/vkdml/planning/plan.py": "from .families.gpu_loop import GpuLoop\n"},
     "plan.py:1 imports planning.families.gpu_loop, of a family: take it from src/vkdml/planning/families/__init__.py, or do without"),
]


def make_tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_sound_tree_keeps(rule, tmp_path):
    make_tree(tmp_path, SOUND)
    assert list(rule(tmp_path)) == []


@pytest.mark.parametrize(("rule", "files", "said"), [pytest.param(rule, *rest, id=f"{rule.__name__}: {'; '.join(rest[0])}-{place}")
                                                     for place, (rule, *rest) in enumerate(BROKEN)])
def test_a_broken_tree_does_not_keep(rule, files, said, tmp_path):
    make_tree(tmp_path, SOUND | files)
    (breach,) = rule(tmp_path)
    assert said in breach
