"""What `convert` tells of a module as a whole."""

import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'vkdml[torch]'")

from torch import nn

import vkdml
import vkdml.torch as vt

pytestmark = pytest.mark.device


def test_a_module_without_recurrent_ones_warns():
    with pytest.warns(vkdml.NothingOnDeviceWarning, match="convert: nothing of Linear runs on the Vulkan device: .* GRU, LSTM") as seen:
        vt.convert(nn.Linear(1, 1))
    assert [warning.filename for warning in seen] == [__file__]


def test_a_module_with_one_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        converted = vt.convert(nn.Sequential(nn.Linear(2, 2), nn.GRUCell(2, 3)))
        vt.convert(converted)
