"""What `convert` makes of a module as a whole: what it warns of, and copies."""

import copy
import functools
import sys
import threading
import warnings
from types import MethodType

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'vkdml[torch]'")

from torch import nn
from torch.nn.utils import parametrizations, prune

import vkdml
import vkdml.torch as vt
from tests.faces.torch.support import B, H, I, T, flat
from vkdml.faces.torch import torch_operators

pytestmark = pytest.mark.device


def test_a_module_without_recurrent_ones_warns():
    with pytest.warns(vkdml.NothingOnDeviceWarning, match="warm_up: LSTM has no twin: give it the module that convert returned") as seen:
        vkdml.torch.warm_up(torch.nn.LSTM(3, 4), 5)
    assert seen[0].filename == __file__
    with pytest.warns(vkdml.NothingOnDeviceWarning, match="convert: nothing of Linear runs on the Vulkan device: .* GRU, LSTM") as seen:
        vt.convert(nn.Linear(1, 1))
    assert [warning.filename for warning in seen] == [__file__]


def test_a_module_with_one_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        converted = vt.convert(nn.Sequential(nn.Linear(2, 2), nn.GRUCell(2, 3)))
        assert type(vt.convert(converted)[1]) is type(converted[1]) is not nn.GRUCell


def replaced(module, name):
    """As hooks of other libraries, profilers and patches do it."""
    method = getattr(module, name)
    setattr(module, name, lambda *arguments, **named: method(*arguments, **named))
    return module


@pytest.mark.parametrize("name", ["forward", "_call_impl", "_slow_forward", "check_forward_args", "permute_hidden", "_run", "_module"])
def test_a_method_replaced_on_a_module_is_not_kept(name):
    """Nor an attribute of which the twin has another."""
    module = nn.Sequential(replaced(nn.GRU(I, H), name) if hasattr(nn.GRU, name) else nn.GRU(I, H)).eval()
    vars(module[0]).setdefault(name, "mine")
    with pytest.warns(UserWarning, match=f"vkdml.torch: 0: {name} was replaced on this module") as seen:
        twin = vt.convert(module)
    assert [warning.filename for warning in seen] == [__file__]
    assert name in vars(module[0])
    with pytest.raises(vkdml.InvalidArgumentError, match="GRU: training: found True"):
        twin.train()(torch.randn(T, B, I))
    with pytest.warns(UserWarning, match="vkdml.torch: module: forward was replaced"):
        vt.unconvert(replaced(twin[0], "forward"))


def test_attributes_that_replace_nothing_are_kept():
    module = nn.GRU(I, H).eval()
    module.train, module._device, module.mine = module.train, "cuda", len
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twin = vt.convert(module)
    assert {"train", "_device", "mine"} <= set(vars(twin))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.LSTM(I, H), nn.Linear(H, 2)

    def encode(self, x):
        return self.encoder(x)[0]

    def forward(self, x):
        return self.head(self.encode(x))


class Encoding:
    def __init__(self, model):
        self.model = model

    def __call__(self, x):
        return self.model.encoder(x)[0]


def norm(module, name="weight_hh_l0"):
    return parametrizations.weight_norm(module, name)


def holding(encoder):
    return lambda x: encoder(x)[0]


EAGER = functools.partial(torch.compile, backend="eager")
BOUND = {  # what is bound to a model's parts, by the attribute that it becomes
    "compiled layer": lambda model: model.encoder.compile(backend="eager"),
    "compiled model": lambda model: model.compile(backend="eager"),
    "compiled, parametrized": lambda model: norm(model.encoder).compile(backend="eager"),
    "compiled head": lambda model: norm(model.head, "weight").compile(backend="eager"),
    "compiled, pruned": lambda model: prune.l1_unstructured(model.encoder, "weight_hh_l0", 0.5).compile(backend="eager"),
    "OptimizedModule": lambda model: {"encoder": EAGER(model.encoder)},
    "partial": lambda model: {"encode": functools.partial(Model.encode, model)},
    "object": lambda model: {"encode": Encoding(model)},
    "layer's forward": lambda model: {"run": model.encoder.forward, "encode": MethodType(lambda self, x: self.run(x)[0], model)},
    "compiled forward": lambda model: {"forward": EAGER(model.forward)},
    "compiled encode": lambda model: {"encode": EAGER(model.encode)},
    "decorated": lambda model: {"forward": torch.no_grad()(model.forward)},
    "closure": lambda model: {"encode": holding(model.encoder)},
    "default": lambda model: {"encode": lambda x, encoder=model.encoder: encoder(x)[0]},
}
UNCOPIED = list(BOUND)[-5:]  # functions that deepcopy leaves to the original


@pytest.mark.family("ways in place and copied")
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("way", BOUND)
def test_what_is_bound_to_a_module_runs_the_twin(way, inplace, monkeypatch):
    model, x, runs = Model().eval(), torch.randn(T, B, I), []
    for name, value in (BOUND[way](model) or {}).items():
        setattr(model, name, value)
    run = torch_operators._run
    monkeypatch.setattr(torch_operators, "_run", lambda *arguments: runs.append(1) or run(*arguments))
    with torch.no_grad():
        expected = model(x)
        if way in UNCOPIED and not inplace:
            with pytest.raises(vkdml.InvalidArgumentError, match="convert: (forward|encode): found a function that runs the original"):
                vt.convert(model)
            assert type(model.encoder) is nn.LSTM
            return
        twin = vt.convert(model, inplace=inplace)
        for own in [copy.deepcopy(twin)] * (way == "compiled layer") + [twin]:
            runs.clear()
            torch.testing.assert_close(own(x), expected, atol=1e-5, rtol=1e-5)
            assert runs == [1]
            for parameter in own.parameters():
                parameter.mul_(0.5)
            changed = own(x)
            assert (changed - expected).abs().max() > 0.01
        runs.clear()
        torch.testing.assert_close(vt.unconvert(twin)(x), changed, atol=1e-5, rtol=1e-5)
        assert not runs
        if not inplace:
            torch.testing.assert_close(model(x), expected)


def with_last_output(module):
    model = nn.Sequential(module)
    module.register_forward_hook(lambda part, given, result: setattr(model, "last", result[0]))
    return model


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("change", [
    lambda module: parametrizations.weight_norm(module, "weight_hh_l0"), lambda module: parametrizations.spectral_norm(module, "weight_hh_l0"),
    lambda module: nn.utils.weight_norm(module, "weight_hh_l0"), lambda module: nn.utils.spectral_norm(module, "weight_hh_l0"),
    lambda module: prune.l1_unstructured(module, "weight_hh_l0", 0.5), with_last_output])
@pytest.mark.parametrize("inplace", [False, True])
def test_modules_that_were_called_with_gradients(change, inplace):
    """They have tensors that PyTorch itself does not copy."""
    module, x = change(nn.GRU(I, H)), torch.randn(T, B, I)
    with torch.enable_grad():
        module(x)
    expected, twin = module.eval()(x), vt.convert(module, inplace=inplace)
    for _ in range(2):
        torch.testing.assert_close(flat(twin(x)), flat(expected), atol=1e-5, rtol=1e-5)


def test_what_cannot_be_copied_is_converted_in_place():
    model = nn.Sequential(nn.GRU(I, H))
    model.lock = threading.Lock()
    with pytest.raises(vkdml.InvalidArgumentError, match="convert: module: found TypeError: cannot pickle .*; inplace=True changes"):
        vt.convert(model)
    assert type(vt.convert(model, inplace=True)[0]) is vt.GRU


def test_twins_are_made_by_convert_alone():
    with pytest.raises(vkdml.InvalidArgumentError, match=r"vkdml.torch.LSTM: class: found a call; expected convert\(torch.nn.LSTM"):
        vt.LSTM(8, 16)


@pytest.mark.parametrize("device", [torch.device("cpu"), vkdml.Device])
def test_a_device_of_another_kind_is_named(device):
    with pytest.raises(vkdml.InvalidArgumentError) as raised:
        vt.convert(nn.GRU(I, H), device)
    assert f"found {device!r}; expected a Device" in str(raised.value)


def test_bfloat16_says_which_package_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(vkdml.MissingPackageError, match="bfloat16 needs the package ml_dtypes: pip install"):
        vt.convert(nn.GRU(I, H, dtype=torch.bfloat16).eval())(torch.zeros(T, B, I, dtype=torch.bfloat16))
