"""What a first call compiles is counted once, whatever needs it."""

from types import SimpleNamespace

from tests.planning.devices import GPUS, make_problem
from tools.gpu.first_use import rows
from vkdml.laboratory import load_kernel


class MadeUpCompiler:
    """Each pipeline takes 10 ms."""

    gpu = SimpleNamespace(name="made up")

    def __init__(self):
        self.made = {}

    def compile(self, dispatch):
        key = dispatch.kernel, load_kernel(dispatch.kernel).values(dispatch.constants)
        return self.made.setdefault(key, SimpleNamespace(ms=10.0))


def test_pipelines_are_counted_once():
    compiler = MadeUpCompiler()
    *parts, every = rows(compiler, GPUS["RTX 3090"], make_problem(100, 1, 256, 256), "gru")
    assert [row["part"] for row in parts] == ["self-test", "meeting, barrier", "meeting, flow", "tuner"]
    assert all(row["pipelines"] > 2 for row in parts)
    assert every["pipelines"] == sum(row["pipelines"] for row in parts) == len(compiler.made) < 30
    assert every["ms"] == 10 * len(compiler.made)
