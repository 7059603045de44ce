import json

import pytest

from vkdml_lab.dxdispatch import load


@pytest.fixture
def load_model(tmp_path):
    """A model out of its members, or of text, written to a file first. Takes what `load` takes besides."""
    def write(model, **arguments):
        path = tmp_path / "model.json"
        path.write_text(model if isinstance(model, str) else json.dumps(model))
        return load(path, **arguments)

    return write


@pytest.fixture
def run_model(load_model, device):
    return lambda model, **arguments: load_model(model).run(device, **arguments)
