"""Layers of PyTorch's parameters: their types, projections, and the way from layer to layer."""

import itertools

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'vkdml[torch]'")

from torch import nn

import vkdml
import vkdml.torch as vt
from tests.faces.torch.support import SEQUENCES, TOLERANCES, B, H, I, T, check, spread, states
from vkdml.engine.commands import Commands
from vkdml.engine.execution import Execution

pytestmark = pytest.mark.device


@pytest.mark.family("kinds and types")
@pytest.mark.parametrize("dtype", list(TOLERANCES), ids=str)
@pytest.mark.parametrize("kind", SEQUENCES)
def test_types(kind, dtype):
    module = SEQUENCES[kind](2 * H, H, 2, bidirectional=True).to(dtype)  # whose layers have the same kernels
    check(module, torch.randn(T, B, 2 * H, dtype=dtype), states(module, dtype=dtype), atol=TOLERANCES[dtype])


@pytest.mark.parametrize("first", list(TOLERANCES), ids=str)
@pytest.mark.parametrize("second", list(TOLERANCES), ids=str)
def test_types_in_turn(first, second):
    """Of weights that all types hold exactly, so that they are equal as numbers."""
    twin = vt.convert(nn.GRU(I, H).eval().bfloat16().half().float())
    for dtype in (first, second, first):
        twin.to(dtype)
        x = torch.randn(T, B, I, dtype=dtype)
        module = nn.GRU(I, H).eval().to(dtype)
        module.load_state_dict(twin.state_dict())
        torch.testing.assert_close(twin(x)[0], module(x)[0], atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype])


@pytest.mark.family("settings together", first=4)
@pytest.mark.parametrize(("bidirectional", "batch_first", "layers"), spread(itertools.product((False, True), (False, True), (1, 2))))
def test_projections(bidirectional, batch_first, layers):
    size = 4 * (1 + bidirectional)  # as of the second layer, so that both have the same kernels
    module = nn.LSTM(size, H, layers, proj_size=4, bidirectional=bidirectional, batch_first=batch_first)
    x = torch.randn((B, T, size) if batch_first else (T, B, size))
    check(module, x)
    check(module, x, states(module))


def test_a_state_that_no_projection_makes_is_refused():
    module = nn.LSTM(I, H, proj_size=4).eval()
    module.weight_hr_l0[0] = 0
    twin = check(module, torch.randn(T, B, I))
    with pytest.raises(vkdml.InvalidArgumentError, match=r"LSTM: hx\[0\]: found states that weight_hr cannot make"):
        twin(torch.randn(T, B, I), states(module))


def test_nan_goes_through_projections():
    module = nn.LSTM(I, H, proj_size=4).eval()
    hx = states(module)
    hx[0][0, 1, 2] = float("nan")
    y = vt.convert(module)(torch.randn(T, B, I), hx)[0]
    assert y.isnan().any(2).tolist() == [[False, True, False]] * T


def test_layers_chain_on_the_device(monkeypatch):
    """One execution, in which the host sees x and the results, not what is between the layers."""
    twin = vt.convert(nn.GRU(I, H, 3).eval())
    x = torch.randn(T, B, I)
    twin(x)
    calls = []
    execute = Commands.execute
    monkeypatch.setattr(Commands, "execute", lambda self: (calls.append(self), execute(self)))
    seen = []
    prepared = Execution.prepared
    monkeypatch.setattr(Execution, "prepared", lambda *given: (seen.extend(turns := prepared(*given)), turns)[1])
    twin(x)
    assert [{name for name, memory in turn.buffers.items() if memory.has_copy} for turn in seen] == [{"y-1", "y2", "h0", "h1", "h2"}]
    assert len(calls) == 1


@pytest.mark.parametrize("batch_first", [False, True])
def test_like_lengths_share_pipelines(device, batch_first):
    module = nn.GRU(I, H, 2, bidirectional=True, batch_first=batch_first).eval()
    twin = vt.convert(module)
    made = None
    for t in (60, 50, 56):
        x = torch.randn((1, t, I) if batch_first else (t, 1, I))
        torch.testing.assert_close(twin(x)[0], module(x)[0], atol=1e-5, rtol=1e-5)
        made = made or device.gpu.pipelines_made
        assert device.gpu.pipelines_made == made


def test_float64_out_of_range_is_refused():
    twin = vt.convert(nn.GRU(I, H).double().eval())
    with pytest.raises(vkdml.InvalidArgumentError, match="float64 is computed in pairs"):
        twin(torch.full((T, B, I), 1e300, dtype=torch.float64))
