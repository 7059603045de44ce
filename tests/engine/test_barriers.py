"""Which barriers small recordings have: each dispatch and copy waits for those that it depends on, and for no others."""

from types import SimpleNamespace

import pytest

from vkdml.engine.commands import Commands


class Memory:
    """In the place of a Buffer."""

    offset, size_in_bytes, _is_counted, _is_exposed = 0, 4, True, False

    def __init__(self, name, serial, host_memory):
        self.name, self._serial, self.has_copy = name, serial, name != "d"
        self._has_other_memory = not host_memory

    @property
    def buffer(self):
        return self


class Submissions:
    """In the place of a Gpu without memory of the host's: notes what is recorded, a list for each submission."""

    def __init__(self, host_memory):
        self.all, self.host_memory = [], host_memory

    def create_submission(self):
        noted = []
        self.all.append(noted)
        return SimpleNamespace(
            upload=lambda buffer, size: noted.append(f"upload {buffer.name}"), readback=lambda buffer, size: noted.append(f"readback {buffer.name}"),
            show=lambda buffers: noted.append("show " + " ".join(buffer.name for buffer in buffers)),
            dispatch=lambda kernel, push: noted.append(kernel.text),
            barrier=lambda buffers: noted.append("| " + " ".join(buffer.name for buffer in buffers)))


def recorded(*operations, host_memory=False, starts=()):
    """operations: "upload a", "readback a", "call", or "a b > c" for a dispatch that reads a and b and writes c. starts: the
    dispatches that start a submission.
    """
    memory = {name: Memory(name, place, host_memory) for place, name in enumerate("abcd")}
    gpu = Submissions(host_memory)
    commands = Commands(gpu)
    for text in operations:
        kind, _, name = text.partition(" ")
        if kind in ("upload", "readback"):
            getattr(commands, kind)(memory[name])
        elif kind == "call":
            commands.call(lambda: None)
        else:
            reads, writes = (frozenset(memory[name] for name in names.split()) for names in text.split(">"))
            commands.dispatch(SimpleNamespace(text=text, reads=reads - writes, writes=writes), {}, text in starts)
    commands._submissions((), ())
    return gpu.all


@pytest.mark.parametrize(("operations", "barriers"), [
    (["a > b", "c > d"], {}),
    (["a > b", "a > c"], {}),
    (["a > b", "b > c"], {1: "b"}),         # a dispatch, and one that reads what it wrote
    (["a > b", "c > b"], {1: "b"}),         # or that writes it too
    (["a > b", "c > a"], {1: "a"}),         # a reader, and the next writer
    (["a > b", "upload a"], {1: "a"}),
    (["a > b", "upload b"], {1: "b"}),
    (["upload a", "b > a"], {1: "a"}),      # a copy, and what writes the buffer then
    (["readback a", "b > a"], {1: "a"}),
    (["upload a", "a > b"], {}),            # kp records one itself, here and in the next
    (["a > b", "readback b"], {}),
    (["a > b", "a > c", "b c > d"], {2: "b c"}),
    (["a > b", "b > c", "b > d"], {1: "b"}),
    (["a > b", "b > c", "c > a"], {1: "b", 2: "a c"}),
    (["upload a", "upload b", "a > c", "c > d", "readback d"], {3: "c"}),
])
def test_barriers(operations, barriers):
    expected = [text for place, operation in enumerate(operations)
                for text in ([f"| {barriers[place]}"] if place in barriers else []) + [operation]]
    assert recorded(*operations) == [expected]


def test_a_buffer_is_copied_once_in_a_submission():
    """Its copies would meet on the host's side, which no barrier of ours is for."""
    assert recorded("upload a", "a > b", "upload a") == [["upload a", "a > b"], ["upload a"]]
    assert recorded("readback a", "readback a") == [["readback a"], ["readback a"]]


def test_what_ends_a_submission():
    assert recorded("a > b", "call", "b > c") == [["a > b"], ["b > c"]]
    assert recorded("a > b", "a > c", starts=["a > c"]) == [["a > b"], ["a > c"]]


def test_the_hosts_memory_is_not_copied_but_shown():
    """Buffers that only kernels use, such as d, are not."""
    assert recorded("upload a", "a > b", "a > d", "readback b", host_memory=True) == [["a > b", "a > d", "show b"]]
