"""Training on the device: PyTorch's gradients, and PyTorch's rules about them."""

import copy
import pickle
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.autograd.functional import jacobian
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import vkdml
import vkdml.torch as vt
from vkdml.faces.sessions import open_device
from vkdml.faces.torch import torch_operators, training

from .gradients import TOLERANCE, error
from .support import B, H, I, T

pytestmark = [pytest.mark.device, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
# Seven of the twenty modules, with all their kinds and settings, in calls with all ways and settings of calls
CHOSEN = [170, 73, 20, 147, 193, 181, 173, 71, 62, 180, 174, 197, 141, 70, 77]


@pytest.fixture(autouse=True)
def gradients_on(no_grad):
    with torch.enable_grad():
        yield


def pair(kind=nn.LSTM, **settings):
    """A module, and its twin that trains on the device."""
    module = kind(I, H, **settings)
    return module, vt.convert(module, training="device")


def loss_of(module, x):
    y, _ = module(x)
    return (y * torch.linspace(-1, 1, y.numel(), device=y.device).reshape(y.shape)).sum()


def assert_same_gradients(module, twin, rtol=1e-4):
    for (name, parameter), (_, of_twin) in zip(module.named_parameters(), twin.named_parameters()):
        assert (parameter.grad is None) == (of_twin.grad is None), name
        if parameter.grad is not None:
            torch.testing.assert_close(of_twin.grad, parameter.grad, rtol=rtol, atol=1e-5, msg=name)


@pytest.mark.family("random modules", first=len(CHOSEN))
@pytest.mark.parametrize("seed", [*CHOSEN, *sorted({*range(0, 200, 10), 112} - {*CHOSEN})])
def test_random_module(seed):
    found, where = error(seed)
    assert found < TOLERANCE, where


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_accumulation_frozen_parameters_and_retain_graph(kind):
    module, twin = pair(kind)
    x = torch.randn(T, B, I)
    for one in (module, twin):
        one.weight_hh_l0.requires_grad_(False)
        loss = loss_of(one, x)
        loss.backward(retain_graph=True)
        loss.backward()
        loss_of(one, 2 * x).backward()
    assert_same_gradients(module, twin)


def test_a_step_of_an_optimizer_changes_what_is_computed():
    """Three steps: each packs the weights of its own."""
    module, twin = pair(nn.GRU)
    x = torch.randn(T, B, I)
    for one in (module, twin):
        optimizer = torch.optim.SGD(one.parameters(), lr=0.05)
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(one, x).backward()
            nn.utils.clip_grad_norm_(one.parameters(), 1.0)
            optimizer.step()
    for parameter, of_twin in zip(module.parameters(), twin.parameters()):
        torch.testing.assert_close(of_twin, parameter, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(twin.eval()(x)[0], module(x)[0], rtol=1e-4, atol=1e-5)


def test_the_bound_of_recordings_counts_shapes(monkeypatch):
    """Not the directions of layers: training with a few lengths in turn records each once."""
    made, make = [], training.Passes
    monkeypatch.setattr(training, "Passes", lambda *arguments: made.append(arguments) or make(*arguments))
    monkeypatch.setattr(torch_operators, "_STACKS_KEPT", 2 + 4)  # two lengths, and the matrices
    _, twin = pair(nn.RNN, num_layers=2, bidirectional=True)
    for steps in (2, 3, 2, 3):
        loss_of(twin, torch.randn(steps, B, I)).backward()
    assert len(made) == 2 * 4


def test_dropout_between_layers():
    module, twin = pair(num_layers=2, dropout=1.0)  # drops all: the second layer sees zeros
    x = torch.randn(T, B, I)
    for one in (module, twin):
        loss_of(one, x).backward()
    assert_same_gradients(module, twin)
    assert not twin.weight_ih_l0.grad.any()


def test_copies_checkpoints_and_no_gradient():
    module, twin = pair(nn.GRU)
    x = torch.randn(T, B, I, requires_grad=True)
    loss_of(module, x).backward()
    for one in (copy.deepcopy(twin), pickle.loads(pickle.dumps(twin))):
        y, _ = checkpoint(one, x, use_reentrant=False)
        (y * torch.linspace(-1, 1, y.numel(), device=y.device).reshape(y.shape)).sum().backward()
        assert_same_gradients(module, one)
    with torch.no_grad():
        assert not twin(x)[0].requires_grad


def test_what_is_past_a_length_has_no_gradient():
    """NaN there, too; and a row without steps."""
    _, twin = pair()
    x = torch.randn(T, B, I)
    x[2:, 0] = torch.nan
    x.requires_grad_()
    y, (h, c) = twin(x, lengths=[2, T, 0])
    (y.sum() + h.sum() + c.sum()).backward()
    assert not x.grad[2:, 0].any()
    assert not x.grad[:, 2].any()
    assert x.grad[:2, 0].all()
    assert all(parameter.grad.isfinite().all() for parameter in twin.parameters())


def test_lengths_that_are_changed_before_backward():
    """Forward has read them, as PyTorch's packing does. A batch's lengths often overwrite the last one's."""
    _, twin = pair(bidirectional=True)
    x, lengths = torch.randn(T, B, I), torch.tensor([2, T, 0], dtype=torch.int32)
    found = []
    for after in (lengths.clone(), 0):
        twin.zero_grad()
        loss = twin(x, lengths=lengths)[0].sum()
        lengths[:] = after
        loss.backward()
        found.append([parameter.grad.clone() for parameter in twin.parameters()])
    torch.testing.assert_close(*found, rtol=0, atol=0)


@pytest.mark.parametrize("changed", ["parameter", "input", "output"])
def test_what_is_changed_in_place_before_backward_is_refused(changed):
    _, twin = pair(nn.GRU)
    x = torch.randn(T, B, I)
    y, _ = twin(x)
    loss = y.pow(2).sum() if changed == "output" else y.sum()
    with torch.no_grad():
        {"parameter": twin.weight_hh_l0, "input": x, "output": y}[changed].add_(1)
    if changed == "parameter":  # its copy in the matrix is unchanged, as are its gradients
        loss.backward()
    else:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_a_matrix_that_is_changed_in_place_is_refused():
    """Its copy on the device would be another one. PyTorch's functions are all that have it."""
    _, twin = pair(nn.GRU)
    loss = loss_of(twin, torch.randn(T, B, I))
    node, = (node for node in graph_of(loss) if "_Layer" in node.name())
    matrix = node.saved_tensors[1]
    with torch.no_grad():
        matrix.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def graph_of(loss):
    """All of its nodes."""
    found, left = set(), [loss.grad_fn]
    while left:
        node = left.pop()
        if node is not None and node not in found:
            found.add(node)
            left += [following for following, _ in node.next_functions]
    return found


def test_a_step_copies_each_matrix_of_parameters_once(uploads):
    module, twin = pair(nn.RNN, num_layers=2, bidirectional=True)
    x = torch.randn(T, B, I)
    for one in (module, twin, twin):
        one.zero_grad()
        loss_of(one, x).backward()
    assert_same_gradients(module, twin)
    assert len(uploads) == 2 * 4


def another_forward(module, x):
    """With other parameters, in the same buffer."""
    for parameter in module.parameters():
        parameter.data.neg_()
    module(x)
    for parameter in module.parameters():
        parameter.data.neg_()


BETWEEN = {  # what happens between forward and backward, and how many matrices are copied in all
    "nothing": (lambda module, x: None, 1),
    "another forward": (another_forward, 3),
    "one of its deep copy": (lambda module, x: another_forward(copy.deepcopy(module), x), 2),
    "one of other sizes": (lambda module, x: another_forward(module, x[:2]), 3),
    "one for inference": (lambda module, x: another_forward(module.eval(), x), 1),
    "one in inference mode": (lambda module, x: torch.inference_mode()(another_forward)(module, x), 3),
    "another backward": (lambda module, x: loss_of(module, x).backward(), 3),
    "the store is cleared": (lambda module, x: clear(), 2),
}


def clear():
    gpu = open_device("", None).gpu
    with gpu.lock:
        gpu.store.drop_memory(lambda: False)


@pytest.mark.parametrize("name", BETWEEN)
def test_what_comes_between_forward_and_backward(name, uploads):
    """It may put another matrix where this one was. The graph is kept: the second backward finds it there again."""
    between, copies = BETWEEN[name]
    module, twin = pair(nn.GRU)
    x = torch.randn(T, B, I)
    for one in (module, twin):
        loss = loss_of(one, x)
        between(one, x)
        one.train()
        for _ in range(2):
            loss.backward(retain_graph=True)
    assert_same_gradients(module, twin)
    assert len(uploads) == copies


@pytest.mark.parametrize("way", ["copied", "zeroed", "zeroed in place"])
def test_hooks_of_saved_tensors_decide_what_backward_reads(way):
    """Also of the matrix, which is on the device. If PyTorch's hooks make it zero, no gradient reaches x."""
    shape = (4 * H, 16)  # of the matrix [R, W, bias], in whole vectors
    _, twin = pair()
    x, saved = torch.randn(T, B, I, requires_grad=True), []

    def unpack(tensor):
        return tensor if tensor.shape != shape or way == "zeroed in place" else tensor * (way == "copied")

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, unpack):
        loss = loss_of(twin, x)
    matrix, = (tensor for tensor in saved if tensor.shape == shape)
    if way == "zeroed in place":
        with torch.no_grad():
            matrix.zero_()
    loss.backward()
    assert x.grad.any() == (way == "copied")


def test_threads_that_train_one_module():
    """Their parameters are the same; their matrices, of which the device keeps one, are not."""
    module, twin = pair(nn.GRU)
    xs = [torch.randn(T, B, I, requires_grad=True) for _ in range(4)]

    def work(x):
        with torch.enable_grad():
            return all(torch.allclose(torch.autograd.grad(loss_of(twin, x), x)[0], torch.autograd.grad(loss_of(module, x), x)[0], atol=1e-5)
                       for _ in range(5))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, xs))


def test_a_lost_device(lose):
    """It keeps no matrix: a backward that needs it is refused, and a step on the device that is opened again is right."""
    module, twin = pair(nn.GRU)
    x = torch.randn(T, B, I)
    loss = loss_of(twin, x)
    lose()
    with pytest.raises(vkdml.DeviceLostError):
        loss.backward()
    for one in (module, twin):
        loss_of(one, x).backward()
    assert_same_gradients(module, twin)


REFUSED = {
    "float64": (lambda twin, x: twin.double()(x.double()), "dtype: found torch.float64; expected torch.float32"),
    "float16": (lambda twin, x: twin.half()(x.half()), "dtype: found torch.float16"),
    "bfloat16": (lambda twin, x: twin.bfloat16()(x.bfloat16()), "dtype: found torch.bfloat16"),
    "autocast": (lambda twin, x: in_autocast(twin, x), "autocast: found enabled"),
    "torch.func": (lambda twin, x: torch.func.grad(lambda x: twin(x)[0].sum())(x), "torch.func or vmap"),
    "vmap": (lambda twin, x: torch.vmap(twin)(x[None]), "torch.func or vmap"),
    "graph capture": (lambda twin, x: torch.jit.trace(twin, x), "graph capture: found active"),
    "graph capture of make_fx": (lambda twin, x: make_fx(lambda x: twin(x)[0])(x), "graph capture: found active"),
    "batched gradients": (lambda twin, x: jacobian(lambda x: twin(x)[0].sum(0)[0], x, vectorize=True), "is_grads_batched or vmap"),
    "DataParallel": (lambda twin, x: twin._replicate_for_data_parallel(), "DataParallel: found several devices; "
                     "expected one, or DistributedDataParallel"),
    "warm_up": (lambda twin, x: vt.warm_up(nn.Sequential(twin), T, B), r"warm_up: training: found True; expected False: call .eval\(\) "
                "first. It compiles for inference; the first step of training compiles what training needs"),
    "no rows": (lambda twin, x: twin(x[:, :0]), "input: found no rows"),
    "another device": (lambda twin, x: twin(x.to("meta")), "input: found a tensor on meta; expected one on (cpu|fake:0)"),
}


def in_autocast(twin, x):
    with torch.autocast("cpu"):
        return twin(x)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, message = REFUSED[name]
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        call(pair()[1], torch.randn(T, B, I))


@pytest.mark.parametrize("name", ["_are_functorch_transforms_active", "_dispatch_keys", "_get_dispatch_mode", "_TorchDispatchModeKey"])
def test_a_pytorch_without_one_of_its_private_names(name, monkeypatch):
    """Another version. Nothing is computed, as what has no gradient could not be refused."""
    twin, x = pair()[1], torch.randn(T, B, I)
    monkeypatch.delattr(torch._C, name)
    with pytest.raises(vkdml.InvalidArgumentError, match=f"PyTorch: found {re.escape(torch.__version__)} without torch._C.{name}; expected a version"):
        twin(x)


def test_torch_compile_breaks_its_graph():
    module, twin = pair()
    x = torch.randn(T, B, I)
    loss_of(module, x).backward()
    torch.compile(lambda x: loss_of(twin, x), backend="eager")(x).backward()
    assert_same_gradients(module, twin)


def test_what_is_saved_for_backward_passes_through_hooks():
    """So that checkpoints free it, and save_on_cpu moves it: x, the matrix, the first states, and y with c."""
    shapes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: shapes.append(tensor.shape) or tensor, lambda tensor: tensor):
        pair()[1](torch.randn(T, B, I))
    assert {(T, B, I), (B, H), (T, B, 2 * H)} <= {*map(tuple, shapes)}


@pytest.mark.family("rows", first=1)
@pytest.mark.parametrize("lengths", [[2, T, 1], None])
def test_states_that_a_projection_cannot_make(lengths):
    """In both directions: inference refuses such states."""
    module = nn.LSTM(I, H, proj_size=2, bidirectional=True)
    of_pytorch, twin = vt.convert(module, training="torch"), vt.convert(module, training="device")
    x, h, c = torch.randn(T, B, I), torch.randn(2, B, 2), torch.randn(2, B, H)
    found = []
    for one in (of_pytorch, twin):
        states = [state.clone().requires_grad_() for state in (h, c)]
        y, last = one(x, tuple(states), lengths=lengths)
        (y.square().sum() + sum(state.sum() for state in last)).backward()
        found.append([y, *last, *(state.grad for state in states)])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    assert_same_gradients(of_pytorch, twin)


def test_second_derivatives_are_refused():
    _, twin = pair()
    x = torch.randn(T, B, I, requires_grad=True)
    with pytest.raises(vkdml.InvalidArgumentError, match="create_graph: found True; expected False"):
        torch.autograd.grad(loss_of(twin, x), x, create_graph=True)
