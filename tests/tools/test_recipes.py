"""CONTRIBUTING.md's recipe for an activation, followed to the letter in a copy of the tree, ends in a device that computes it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COPIED = ["src", "shaders", "tools", "lab", "tests", "docs", "pyproject.toml", "CONTRIBUTING.md"]
NAME = "SQUARED_SOFTSIGN"
STRUCTURE = f"DML_ACTIVATION_{NAME}_OPERATOR_DESC"
OMITTED = "python -m lab.tests.choosing --write"  # takes minutes, and concerns other tests than those below

# What a contributor writes into each file: after a text that is there, or in its place if it ends with it
EDITS = {
    "src/vkdml/operators/header/descs.py": [
        ("DML_OPERATOR_TYPE = IntEnum(\"DML_OPERATOR_TYPE\", {\n", f'    "ACTIVATION_{NAME}": 999,\n'),
        ("class DML_ACTIVATION_SOFTSIGN_OPERATOR_DESC(ActivationDesc):\n    \"\"\"f(x) = `x / (1 + |x|)`.\"\"\"\n",
         f'\n\nclass {STRUCTURE}(ActivationDesc):\n    """f(x) = `x / (1 + |x|)^2`."""\n')],
    "src/vkdml/operators/activations.py": [
        ("_ROWS = [\n", f"    Activation(descs.{STRUCTURE}, 19, lambda x, a, b: x / (1 + np.abs(x)) ** 2),\n")],
    "shaders/common/activations.glsl": [
        ("if (id == SOFTSIGN) result = x / (1.0 + abs(x));\n", f"    if (id == {NAME}) result = x / ((1.0 + abs(x)) * (1.0 + abs(x)));\n")],
    "shaders/float64/activations.glsl": [
        ("    real result = x;  // the result of IDENTITY\n",
         f"    if (id == {NAME}) {{\n        result = divide(divide(x, add(one, magnitude)), add(one, magnitude));\n    }}\n")],
    "docs/faces/directml.md": [("SOFTPLUS, SOFTSIGN, ", f"{NAME}, ")],
    "tests/public_names.txt": [
        ("vkdml.DML_ACTIVATION_SOFTSIGN_OPERATOR_DESC\n", f"vkdml.{STRUCTURE}\n"),
        ("vkdml.DML_OPERATOR_ACTIVATION_SOFTSIGN\n", f"vkdml.DML_OPERATOR_ACTIVATION_{NAME}\n"),
        ("vkdml.pydirectml.activation_softsign\n", f"vkdml.pydirectml.activation_{NAME.lower()}\n")],
    "tests/operators/test_activations.py": [
        ("len(structures) == 19", " + 1"), ('("SOFTSIGN", (), -3.0, -0.75),\n', f'    ("{NAME}", (), -3.0, -3 / 16),\n')],
    "tests/operators/test_descs.py": [("ORDER = {\n", f'    "{STRUCTURE}": "InputTensor OutputTensor",\n')],
    "lab/tests/test_mutations.py": [("FUNCTIONS = [\n", f'    ("{NAME}", "not squared", lambda x, a, b: x / (1 + np.abs(x))),\n')],
}
COMPUTED = f"""
import numpy as np, vkdml
for dtype in np.float32, np.float64:
    x = np.array([-3, -1, 0, 1, 3], dtype).reshape(1, 5, 1)
    one = np.ones((1, 1, 1), dtype)
    y, _ = vkdml.rnn(x, one, 0 * one, activations=[vkdml.{STRUCTURE}()])
    print(*y.ravel().round(6).tolist())
"""


def recipe():
    """The code spans of the recipe, in order."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    spans = re.findall(r"`([^`]+)`", text.partition("**To add an activation**")[2].partition("\n**To add ")[0])
    return [f"src/vkdml/{span}" if span.startswith("operators/") else span for span in spans]


def test_the_recipe_names_what_is_edited():
    assert [span for span in recipe() if "/" in span and not span.startswith("python ")] == list(EDITS)


@pytest.mark.device
@pytest.mark.thorough
def test_the_recipe_ends_in_a_device_that_computes_the_activation(tmp_path):
    for name in COPIED:
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path / 'src'}:{tmp_path / 'lab'}"}

    def run(*command):
        result = subprocess.run([sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
        return result.stdout

    for span in recipe():
        for after, new in EDITS.get(span, []):
            text = (tmp_path / span).read_text()
            assert text.count(after) == 1, f"{span} has {text.count(after)} times {after}"
            (tmp_path / span).write_text(text.replace(after, after + new))
        if span.startswith("python ") and span != OMITTED:
            run(*span.split()[1:])
    assert run("-c", COMPUTED).splitlines() == ["-0.1875 -0.25 0.0 0.25 0.1875"] * 2
    run("-m", "pytest", "tests/operators/test_activations.py", "tests/operators/test_descs.py", "tests/test_public_names.py",
        "tests/tools/test_generate_numbers.py")
    run("-m", "pytest", "lab/tests/test_mutations.py", "-k", NAME)
