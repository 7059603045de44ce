"""The names that docs/api.md promises: a list, which a change of them must change too."""

from importlib import import_module
from pathlib import Path

MODULES = ("vkdml", "vkdml.onnx", "vkdml.torch", "vkdml.pydirectml", "vkdml.reference")
OF_PARTS = {"buffer", "contents", "offset", "stamp"}  # what Buffer has in common with the engine's Range, and may change
LIST = Path(__file__).parent / "public_names.txt"


def test_public_names_are_those_of_the_list():
    found = [f"{module}.{name}" for module in MODULES for name in sorted(import_module(module).__all__)]
    found += [f"vkdml.Buffer.{name}" for name in sorted(set(dir(import_module("vkdml").Buffer)) - OF_PARTS) if name[0] != "_"]
    assert found == LIST.read_text().splitlines()
    for line in found:
        module, _, name = line.rpartition(".")
        assert module == "vkdml.Buffer" or hasattr(import_module(module), name), line
