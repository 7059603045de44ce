"""Derivatives through twins, none of which are computed: each raises the same error, or vmap's. What goes round a twin works."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'vkdml[torch]'")

import itertools

from torch import func, nn
from torch.autograd import forward_ad, functional
from torch.utils.checkpoint import checkpoint

import vkdml
import vkdml.torch as vt
from tests.faces.torch.support import B, H, I, T

pytestmark = [pytest.mark.device, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning:torch.fx")]

BACKWARD, FORWARD, FUNC = (rf"vkdml\.torch: {how}: found a converted module in what is differentiated; expected none"
                           for how in ("backward", "forward mode", r"torch\.func"))
VMAP = r"vkdml\.torch: vmap: found a converted module in what is vectorized; expected none"


def dual(f, x):
    with forward_ad.dual_level():
        return f(forward_ad.make_dual(x, x))


def with_gradient(f, x, **how):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(f(x), x, **how)


# What PyTorch differentiates with, for f(x) -> a tensor like x
DERIVATIVES = {
    "backward": (BACKWARD, lambda f, x: f(x.clone().requires_grad_()).sum().backward()),
    "double backward": (BACKWARD, lambda f, x: with_gradient(lambda x: f(x).sum(), x, create_graph=True)),
    "batched backward": (BACKWARD, lambda f, x: with_gradient(f, x, grad_outputs=torch.ones(2, *x.shape), is_grads_batched=True)),
    "checkpoint": (BACKWARD, lambda f, x: with_gradient(lambda x: checkpoint(f, x, use_reentrant=False).sum(), x)),
    "reentrant checkpoint": (BACKWARD, lambda f, x: checkpoint(f, x.clone().requires_grad_(), use_reentrant=True).sum().backward()),
    "functional.jacobian": (BACKWARD, functional.jacobian),
    "functional.hessian": (BACKWARD, lambda f, x: functional.hessian(lambda x: f(x).sum(), x)),
    "functional.vjp": (BACKWARD, lambda f, x: functional.vjp(f, x, x)),
    "functional.jvp": (BACKWARD, lambda f, x: functional.jvp(f, x, x)),
    "functional.hvp": (BACKWARD, lambda f, x: functional.hvp(lambda x: f(x).sum(), x, x)),
    "functional.jacobian, forward": (FORWARD, lambda f, x: functional.jacobian(f, x, vectorize=True, strategy="forward-mode")),
    "forward_ad": (FORWARD, dual),
    "forward_ad, no_grad": (FORWARD, torch.no_grad()(dual)),
    "jvp": (FORWARD, lambda f, x: func.jvp(f, (x,), (x,))),
    "jvp, no_grad": (FORWARD, torch.no_grad()(lambda f, x: func.jvp(f, (x,), (x,)))),
    "jvp, inference_mode": (FORWARD, torch.inference_mode()(lambda f, x: func.jvp(f, (x,), (x,)))),
    "jvp, autocast": (FORWARD, torch.autocast("cpu")(lambda f, x: func.jvp(f, (x,), (x,)))),
    "jvp, compiled": (FORWARD, lambda f, x: torch.compile(lambda x: func.jvp(f, (x,), (x,)), backend="eager")(x)),
    "jvp, no rows": (FORWARD, lambda f, x: func.jvp(f, (x[:, :0],), (x[:, :0],))),
    "jacfwd": (FORWARD, lambda f, x: func.jacfwd(f)(x)),
    "jacfwd of jacfwd": (FORWARD, lambda f, x: func.jacfwd(func.jacfwd(f))(x)),
    "linearize": (FORWARD, lambda f, x: func.linearize(f, x)),
    "grad": (FUNC, lambda f, x: func.grad(lambda x: f(x).sum())(x)),
    "grad_and_value": (FUNC, lambda f, x: func.grad_and_value(lambda x: f(x).sum())(x)),
    "jacrev": (FUNC, lambda f, x: func.jacrev(f)(x)),
    "vjp": (FUNC, lambda f, x: func.vjp(f, x)),
    "hessian": (FUNC, lambda f, x: func.hessian(lambda x: f(x).sum())(x)),
    "jvp of grad": (FUNC, lambda f, x: func.jvp(func.grad(lambda x: f(x).sum()), (x,), (x,))),
    "vmap of grad": (FUNC, lambda f, x: func.vmap(func.grad(lambda x: f(x).sum()))(torch.stack([x, x]))),
    "vmap": (VMAP, lambda f, x: func.vmap(f)(torch.stack([x, x]))),
    "vmap, no_grad": (VMAP, torch.no_grad()(lambda f, x: func.vmap(f)(torch.stack([x, x])))),
    "vmap, autocast": (VMAP, torch.autocast("cpu")(lambda f, x: func.vmap(f)(torch.stack([x, x])))),
    "grad of vmap": (VMAP, lambda f, x: func.grad(lambda x: func.vmap(f)(torch.stack([x, x])).sum())(x)),
}


def of_input(twin):
    return lambda x: twin(x)[0], torch.randn(T, B, I)


def of_states(twin):
    x = torch.randn(T, B, I)
    return lambda h: twin(x, h)[1], torch.randn(1, B, I)


def of_parameters(twin):
    x, name = torch.randn(T, B, I), "weight_hh_l0"
    weights = twin.get_parameter(name).detach()
    return lambda w: func.functional_call(twin, {name: w}, (x,))[0].sum() * w, weights


def of_cells(twin):
    return vt.convert(nn.GRUCell(I, I).eval()), torch.randn(B, I)


def of_graphs(twin):
    """Which have no twin any more."""
    program = torch.export.export(twin, (torch.randn(T, B, I),)).module()
    return lambda x: program(x)[0], torch.randn(T, B, I)


@pytest.mark.family("derivatives", first=len(DERIVATIVES))
@pytest.mark.parametrize(("of", "how"), [
    *itertools.product([of_input], DERIVATIVES),
    *itertools.product([of_states, of_parameters, of_cells, of_graphs], ["backward", "forward_ad", "jvp", "grad", "vmap"])])
def test_derivatives_are_refused(of, how):
    message, derive = DERIVATIVES[how]
    f, x = of(vt.convert(nn.GRU(I, I).eval().requires_grad_(how in ("grad", "backward"))))
    with torch.enable_grad(), pytest.raises(vkdml.InvalidArgumentError, match=message):
        derive(f, x)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("how", ["jvp", "grad", "vmap"])
def test_derivatives_of_traced_graphs_are_refused(how):
    message, derive = DERIVATIVES[how]
    traced = torch.jit.trace(vt.convert(nn.GRU(I, I).eval()), torch.randn(T, B, I))
    with torch.enable_grad(), pytest.raises(RuntimeError, match=message):
        derive(lambda x: traced(x)[0], torch.randn(T, B, I))


def test_what_the_twin_has_no_part_in_is_differentiated():
    """Its parameters may require gradients."""
    module = nn.GRU(I, H).eval()
    twin, x, s = vt.convert(module), torch.randn(T, B, I), torch.tensor(2.0)
    total = module(x)[0].sum()
    with torch.enable_grad():
        def f(s):
            return (twin(x)[0] * s).sum()

        for derive in (func.grad, func.jacfwd, func.jacrev):
            torch.testing.assert_close(derive(f)(s).detach(), total, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(func.vmap(f)(torch.stack([s, s])).detach(), 2 * total.expand(2), atol=1e-4, rtol=1e-4)
        with forward_ad.dual_level():
            tangent = forward_ad.unpack_dual(f(forward_ad.make_dual(s, torch.ones(())))).tangent
        torch.testing.assert_close(tangent.detach(), total, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("how", ["double backward", "checkpoint", "functional.vjp", "jvp", "grad"])
def test_modules_that_train_are_differentiated(how):
    """By PyTorch, to the same bits."""
    module = nn.GRU(I, I).train()
    twin, x = vt.convert(module, training="torch"), torch.randn(T, B, I)
    derive = DERIVATIVES[how][1]
    with torch.enable_grad():
        torch.testing.assert_close(derive(lambda x: twin(x)[0], x), derive(lambda x: module(x)[0], x), atol=0, rtol=0)
