"""Which calls of twins run without PyTorch's dispatcher: those for which it would do nothing else."""

from contextlib import nullcontext, suppress

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'vkdml[torch]'")

from torch import Tensor, func, nn
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils.rnn import pack_padded_sequence
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import vkdml
import vkdml.torch as vt
from tests.faces.torch.support import B, H, I, T, flat, states
from vkdml.faces.torch.torch_operators import OPERATORS, OperatorCall, _run, compiled_for

pytestmark = [pytest.mark.device, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")]


class FunctionMode(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class Sub(Tensor):
    pass


class SubParameter(nn.Parameter):
    pass


def within(*contexts):
    def call(twin, x):
        with contexts[0](), (contexts[1] if contexts[1:] else nullcontext)():
            return twin(x)
    return call


def with_weight(kind):
    def call(twin, x):
        return func.functional_call(twin, {"weight_hh_l0": kind(twin.weight_hh_l0.detach())}, (x,))
    return call


def leaked(x):
    """A tensor of torch.func.grad, outside of it."""
    kept = []
    func.grad(lambda x: (kept.append(x), x.sum())[1])(x)
    return kept[0]


PLAIN = {
    "no_grad": within(torch.no_grad),
    "inference_mode": within(torch.inference_mode),
    "no autocast": within(torch.no_grad, lambda: torch.autocast("cpu", enabled=False)),
    "a tensor made for inference": lambda twin, x: twin(torch.inference_mode()(x.clone)()),
    "a view": lambda twin, x: twin(x.transpose(0, 1).contiguous().transpose(0, 1)),
    "a tensor that requires gradients": lambda twin, x: twin(x.clone().requires_grad_()),
    "nothing that requires gradients": lambda twin, x: within(torch.enable_grad)(twin.requires_grad_(False), x),
    "states": lambda twin, x: twin(x, states(twin)),
    "lengths": lambda twin, x: twin(x, lengths=[T, 0, 1]),
    "packed": lambda twin, x: twin(pack_padded_sequence(x, [T, 2, 1])),
    "another weight": with_weight(Tensor.clone),
}
DISPATCHED = {
    "gradients": within(torch.enable_grad),
    "gradients of the input": lambda twin, x: within(torch.enable_grad)(twin.requires_grad_(False), x.clone().requires_grad_()),
    "forward_ad": within(forward_ad.dual_level),
    "autocast": within(lambda: torch.autocast("cpu")),
    "a function mode": within(FunctionMode),
    "a default device": within(lambda: torch.device("cpu")),
    "a dispatch mode": within(DispatchMode),
    "fake tensors": within(lambda: FakeTensorMode(allow_non_fake_inputs=True)),
    "the dispatcher in Python": within(enable_python_dispatcher),
    "a profiler": within(lambda: torch.autograd.profiler.profile(use_kineto=False)),
    "a profiler of kineto": within(torch.profiler.profile),
    "a profiler in inference mode": within(torch.inference_mode, torch.profiler.profile),
    "torch.jit.trace": lambda twin, x: torch.jit.trace(twin, x, check_trace=False)(x),
    "make_fx": lambda twin, x: make_fx(twin)(x)(x),
    "grad round the call": lambda twin, x: func.grad(lambda s: (flat(twin(x))[0] * s).sum())(torch.ones(())),
    "vmap round the call": lambda twin, x: func.vmap(lambda s: flat(twin(x))[0] * s)(torch.ones(2)),
    "functionalize": lambda twin, x: func.functionalize(twin)(x),
    "a subclass as input": lambda twin, x: twin(x.as_subclass(Sub)),
    "a subclass as state": lambda twin, x: twin(x, torch.zeros(1, B, H).as_subclass(Sub)),
    "a subclass as lengths": lambda twin, x: twin(x, lengths=torch.tensor([T] * B).as_subclass(Sub)),
    "a subclass as weight": with_weight(lambda weight: weight.as_subclass(Sub)),
    "a subclass of Parameter as weight": with_weight(SubParameter),
    "a negated view": lambda twin, x: twin((-x)._neg_view()),
    "a negated view as weight": with_weight(lambda weight: (-weight)._neg_view()),
    "a tensor of torch.func": lambda twin, x: twin(leaked(x)),
    "no memory": lambda twin, x: twin(torch._efficientzerotensor(T, B, I)),
    "another device": lambda twin, x: twin(x.to("meta")),
    "another layout": lambda twin, x: twin(x.cpu().to_sparse()),
}


@pytest.mark.parametrize(("situation", "is_dispatched"), [*((name, False) for name in PLAIN), *((name, True) for name in DISPATCHED)])
def test_calls_run_without_the_dispatcher(monkeypatch, situation, is_dispatched):
    """With the results and errors that they have with it."""
    module, x = nn.GRU(I, H).eval(), torch.randn(T, B, I)
    twin, operator, calls = vt.convert(module), OPERATORS["GRU"], []
    monkeypatch.setitem(OPERATORS, "GRU", lambda *arguments: (calls.append(1), operator(*arguments))[1])
    results, call = [], (PLAIN | DISPATCHED)[situation]
    twin(x)
    for _ in range(2):
        results.append(None)
        with suppress(vkdml.InvalidArgumentError):
            torch.manual_seed(1)
            results[-1] = call(twin, x)
        assert bool(calls) is is_dispatched
        monkeypatch.setattr(OperatorCall, "is_plain", lambda self: False)
        is_dispatched = True
    plain, dispatched = map(flat, results)
    assert [(type(one), one.requires_grad, one.is_inference(), one.stride()) for one in plain] == [
        (type(one), one.requires_grad, one.is_inference(), one.stride()) for one in dispatched]
    if situation != "fake tensors":
        torch.testing.assert_close(plain, dispatched, atol=0, rtol=0)


@pytest.mark.parametrize("change", [{"input": torch.zeros(T, B, I, device="meta")}, {"input": torch.zeros(T, B, I, device="cpu").to_sparse()},
                                    {"input": torch.zeros(T, B, I).half()}, {"hx": [torch.zeros(1, B, H, device="meta")]},
                                    {"lengths": torch.tensor([T + 1] * B)}, {"batch_sizes": torch.tensor([B] * T)}])
def test_a_call_is_checked_again_if_a_tensor_differs(change):
    """By the code behind the dispatcher, which calls it with tensors on any device."""
    twin = vt.convert(nn.GRU(I, H).eval())
    for hx in ([], [torch.zeros(1, B, H)]):
        mode, *form = twin._form()
        call = OperatorCall(mode, torch.zeros(T, B, I), hx, twin._weights(), None, *form, 0)
        compiled = compiled_for(twin, None)
        _run(call, compiled)
        with pytest.raises(vkdml.InvalidArgumentError):
            _run(call._replace(**change), compiled)


def test_lengths_come_and_go():
    module, x = nn.GRU(I, H).eval(), torch.randn(T, B, I)
    twin = vt.convert(module)
    for lengths in (None, [T, 2, 1], None, [1, T, T], [1, 2, 3], None):
        packed = pack_padded_sequence(x, lengths or [T] * B, enforce_sorted=False)
        torch.testing.assert_close(twin(x, lengths=lengths)[1], module(packed)[1], atol=1e-5, rtol=1e-5)
