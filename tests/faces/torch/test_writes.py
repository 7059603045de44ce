"""Writes to the parameters of a twin, in all ways that PyTorch has, compared with PyTorch after each."""

import copy
import gc
import pickle
import random
import weakref
from contextlib import contextmanager

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'vkdml[torch]'")

from torch import nn
from torch.nn.utils import parametrizations, parametrize

import vkdml
import vkdml.torch as vt
from tests.faces.torch.support import flat
from vkdml.faces.torch import stacks, torch_operators
from vkdml.faces.torch.torch_operators import OPERATORS

pytestmark = pytest.mark.device

T, B, I, H = 4, 2, 16, 16  # weights are square, so that layers and directions can share them
MODULES = [lambda: nn.GRU(I, H, 2), lambda: nn.LSTM(I, H, 2), lambda: nn.RNN(I, H, 2, bias=False), lambda: nn.LSTM(I, H, proj_size=8),
           lambda: nn.GRU(I, H, bidirectional=True), lambda: nn.LSTMCell(I, H)]


def names(twin):
    return getattr(twin, "_flat_weights_names", None) or [name for name, _ in twin.named_parameters()]


def drawn(twin, rng):
    """The name of a parameter, the parameter, and one of its elements: most are none of those that calls compare."""
    name = rng.choice(names(twin))
    tensor = getattr(twin, name)
    return name, tensor, tuple(rng.randrange(size) for size in tensor.shape)


def other(tensor, place):
    """Contents that differ in one element."""
    made = tensor.detach().clone()
    made[place] += 1
    return made


WRITES: dict = {}


def write(function):
    WRITES[function.__name__] = function
    return function


@write
def in_place(twin, rng):
    _, tensor, place = drawn(twin, rng)
    tensor[place] += 1


@write
def in_inference_mode(twin, rng):
    _, tensor, place = drawn(twin, rng)
    with torch.inference_mode():
        tensor[place] += 1


@write
def through_a_detached_view(twin, rng):
    _, tensor, place = drawn(twin, rng)
    tensor.detach().view(tensor.shape)[:][0] += 1  # of any strides
    tensor.detach()[place] += 1


@write
def as_an_output(twin, rng):
    _, tensor, place = drawn(twin, rng)
    torch.add(other(tensor, place), 0, out=tensor.detach())


@write
def copied(twin, rng):
    _, tensor, place = drawn(twin, rng)
    tensor.copy_(other(tensor, place))


@write
def by_foreach(twin, rng):
    torch._foreach_mul_(list(twin.parameters()), 0.9)


@write
def by_init(twin, rng):
    nn.init.uniform_(drawn(twin, rng)[1])


@write
def reset(twin, rng):
    twin.reset_parameters()


@write
def by_an_optimizer(twin, rng):
    kind, way = rng.choice([torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW]), rng.choice(["foreach", "fused", "neither"])
    settings = {"foreach": way == "foreach"} | ({"fused": True, "foreach": False} if way == "fused" else {})
    for tensor in twin.parameters():
        tensor.grad = torch.randn_like(tensor)
    kind(twin.parameters(), 0.05, **settings).step()
    twin.zero_grad(set_to_none=rng.random() < 0.5)


@write
def by_a_fused_optimizer_in_one_element(twin, rng):
    """PyTorch does not count this write, and the element is none of those that calls compare."""
    tensor = getattr(twin, rng.choice([name for name in names(twin) if "weight" in name]))
    tensor.grad = torch.zeros_like(tensor)
    tensor.grad[0, 1] = 1
    torch.optim.SGD([tensor], 1.0, fused=True).step()
    twin.zero_grad()


@write
def loaded(twin, rng):
    name, tensor, place = drawn(twin, rng)
    twin.load_state_dict(twin.state_dict() | {name: other(tensor, place)}, assign=rng.random() < 0.5)


@contextmanager
def swapping(twin):
    """PyTorch swaps parameters. It swaps none that its own modules have weak references to, if it does not remove these itself."""
    twin._flat_weight_refs = []
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
        getattr(twin, "_init_flat_weights", list)()


@write
def loaded_by_swapping(twin, rng):
    name, tensor, place = drawn(twin, rng)
    with swapping(twin):
        twin.load_state_dict(twin.state_dict() | {name: other(tensor, place)})


@write
def converted_by_swapping(twin, rng):
    with swapping(twin):
        twin.to(torch.bfloat16).float()


@write
def assigned(twin, rng):
    name, tensor, place = drawn(twin, rng)
    setattr(twin, name, nn.Parameter(other(tensor, place)))


def alias_of(twin, tensor, place):
    """Another parameter with the same memory and count of writes, after a write that the count of the first does not show."""
    for _ in range(3):
        tensor.mul_(1)
    results(twin)
    alias = nn.Parameter(tensor.data)
    alias[place] += 1
    while alias._version < tensor._version:
        alias.mul_(1)
    return alias


@write
def assigned_with_the_same_memory_and_count(twin, rng):
    name, tensor, place = drawn(twin, rng)
    setattr(twin, name, alias_of(twin, tensor, place))


@write
def swapped_with_the_same_memory_and_count(twin, rng):
    _, tensor, place = drawn(twin, rng)
    alias = alias_of(twin, tensor, place)
    with swapping(twin):
        torch.utils.swap_tensors(tensor, alias)


@write
def other_data(twin, rng):
    """So often that memory is used again."""
    _, tensor, place = drawn(twin, rng)
    for _ in range(rng.randrange(1, 5)):
        tensor.data = other(tensor, place)


@write
def another_place_of_the_same_data(twin, rng):
    _, tensor, _ = drawn(twin, rng)
    tensor.data = torch.cat([tensor.data, tensor.data.flip(0)])[:len(tensor)]
    tensor.data = tensor.data.flip(-1)


@write
def other_strides_alone(twin, rng):
    tensor = getattr(twin, rng.choice([name for name in names(twin) if "weight" in name]))
    tensor.data = tensor.data.as_strided(tensor.shape, (1, len(tensor)) if tensor.is_contiguous() else (tensor.shape[1], 1))


@write
def other_strides(twin, rng):
    name = rng.choice([name for name in names(twin) if "weight" in name])
    tensor = getattr(twin, name)
    tensor.data = tensor.data.t().contiguous().t()
    tensor.data[tuple(rng.randrange(size) for size in tensor.shape)] += 1  # not counted, but compared


@write
def other_memory(twin, rng):
    _, tensor, place = drawn(twin, rng)
    tensor.detach().set_(other(tensor, place))
    tensor.set_(other(tensor, place))


@write
def from_a_vector(twin, rng):
    parameters = [tensor for tensor in twin.parameters() if tensor.is_contiguous()]  # PyTorch takes no others
    nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(parameters) * 0.9, parameters)


@write
def through_the_memory_of_all(twin, rng):
    """All parameters are views of one tensor, which is written to."""
    name, tensor, place = drawn(twin, rng)
    memory = torch.cat([tensor.detach().reshape(-1), torch.zeros(3)])
    setattr(twin, name, nn.Parameter(memory[:tensor.numel()].view_as(tensor)))
    results(twin)
    memory[np.ravel_multi_index(place, tensor.shape)] += 1


@write
def converted(twin, rng):
    twin.to(rng.choice([torch.bfloat16, torch.float16])).float()


@write
def in_shared_memory(twin, rng):
    """Where other processes may write: not counted, but compared, also between the elements that other calls look at."""
    tensor = getattr(twin, rng.choice([name for name in names(twin) if "weight" in name]))
    tensor.share_memory_()
    results(twin)
    tensor.data[0, 1] += 1


@write
def inference_tensors(twin, rng):
    """Whose writes are not counted, but which are compared."""
    name, tensor, place = drawn(twin, rng)
    with torch.inference_mode():
        setattr(twin, name, nn.Parameter(tensor.clone(), requires_grad=False))
        results(twin)
        getattr(twin, name)[place] += 1
        results(twin)
        getattr(twin, name)[place] += 1
    setattr(twin, name, nn.Parameter(getattr(twin, name).clone()))


@write
def tied(twin, rng):
    held = [name for name in names(twin) if name in twin._parameters]  # parametrized may leave a tensor
    pairs = [(first, second) for first in held for second in held
             if first < second and getattr(twin, first).shape == getattr(twin, second).shape]
    first, second = rng.choice(pairs)
    setattr(twin, second, getattr(twin, first))
    results(twin)
    getattr(twin, first)[0] += 1
    setattr(twin, second, nn.Parameter(getattr(twin, second).clone()))


@write
def parametrized(twin, rng):
    name = rng.choice([name for name in names(twin) if "weight" in name])
    parametrizations.weight_norm(twin, name)
    results(twin)
    original = getattr(twin.parametrizations, name).original0
    original[rng.randrange(len(original))] += 1
    results(twin)
    with parametrize.cached():
        results(twin)
        results(twin)
    original[rng.randrange(len(original))] += 1
    results(twin)
    parametrize.remove_parametrizations(twin, name)
    twin._load_state_dict_pre_hooks.clear()  # PyTorch leaves one there that cannot be pickled


@write
def in_a_functional_call(twin, rng):
    name, tensor, place = drawn(twin, rng)
    x, module = torch.randn((B, I) if isinstance(twin, nn.LSTMCell) else (T, B, I)), vt.unconvert(copy.deepcopy(twin))
    for _ in range(2):
        changed = {name: other(tensor, place)}
        for weights in (changed, {}):
            expected = torch.func.functional_call(module, weights, x)
            torch.testing.assert_close(flat(torch.func.functional_call(twin, weights, x)), flat(expected), atol=1e-5, rtol=1e-5)
    tensor[place] += 1


@write
def through_data(twin, rng):
    drawn(twin, rng)[1].data.mul_(0.9)


@write
def through_numpy(twin, rng):
    array = drawn(twin, rng)[1].detach().numpy()
    array *= 0.9


@write
def through_the_storage(twin, rng):
    tensor = drawn(twin, rng)[1]
    if tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes:
        tensor.untyped_storage().copy_((tensor.detach() * 0.9).untyped_storage())


def results(twin):
    """The results, which must be PyTorch's. A twin with calls_operator calls its operator too, as graphs do."""
    x = torch.linspace(-1, 1, T * B * I).reshape(T, B, I)
    is_cell = isinstance(twin, nn.RNNCellBase)
    expected = flat(vt.unconvert(copy.deepcopy(twin))(x[0] if is_cell else x))
    for _ in range(2):
        got = flat(twin(x[0] if is_cell else x))
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    if not hasattr(twin, "calls_operator"):
        return expected
    mode, *form = twin._form()
    graph = flat(OPERATORS[mode](x[:1] if is_cell else x, [], twin._weights(), None, *form, 0))
    torch.testing.assert_close([one[0] for one in graph[1:]] if is_cell else graph, expected, atol=1e-5, rtol=1e-5)
    return expected


@pytest.mark.family("draws", first=6)
@pytest.mark.parametrize("seed", range(24))
def test_every_write_is_seen(seed):
    rng, twin = random.Random(seed), vt.convert(MODULES[seed % len(MODULES)]().eval())
    drawable = sorted(WRITES)
    if rng.random() < 0.4:
        twin.calls_operator, drawable = True, [name for name in drawable if "swap" not in name]  # which it has weak references to
    before, changed = results(twin), 0
    for name in rng.sample(drawable, 12):
        WRITES[name](twin, rng)
        if rng.random() < 0.2:
            twin = rng.choice([copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])(twin)
        after = results(twin)
        changed += any((one - two).abs().max() > 1e-4 for one, two in zip(before, after))
        before = after
    assert changed > 5  # not all elements matter


@pytest.mark.parametrize("name", sorted(WRITES))
def test_a_write_is_seen(name):
    torch.manual_seed(1)
    twin = vt.convert(MODULES[0]().eval())
    before = results(twin)
    WRITES[name](twin, random.Random(1))
    assert any((one - two).abs().max() > 1e-4 for one, two in zip(before, results(twin)))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_an_unchanged_call_compares_a_few_elements(monkeypatch, mode):
    twin, x = vt.convert(nn.LSTM(64, 64).eval()), torch.randn(T, B, 64)
    with mode():
        twin(x)
        twin.load_state_dict(twin.state_dict())  # writes what was there
        weights = list(twin.parameters())
        for call in (lambda x: twin(x), lambda x: OPERATORS["LSTM"](x, [], weights, None, "LSTM", 64, 64, 1, False, 0)):
            call(x)
            monkeypatch.setattr(stacks._Seen, "equals", lambda *tensors: pytest.fail("compares all"))
            call(x)
            call(torch.randn(1, B, 64))
            monkeypatch.undo()
        for owner in (twin, weights[0]):
            seen = torch_operators.compiled_for(owner, twin._vulkan_device if owner is twin else 0).parameters._seen
            assert [one._mark[2].size for one in seen] == [64, 64, 52, 52]


def test_a_parameter_can_be_resized():
    """After a call, which has looked at its memory."""
    twin = vt.convert(nn.GRU(I, H).eval())
    results(twin)
    memory = twin.weight_ih_l0.untyped_storage()
    kept, size = twin.weight_ih_l0.clone(), memory.nbytes()
    memory.resize_(0)
    memory.resize_(size)
    twin.weight_ih_l0.copy_(kept * 2)
    results(twin)


@pytest.mark.parametrize("is_graph", [False, True])
def test_refresh(is_graph):
    """After a write that calls do not see, to an element that they do not compare."""
    twin, x = vt.convert(nn.GRU(I, H).eval()), torch.randn(T, B, I)
    module = torch.export.export(twin, (x,)).module() if is_graph else nn.Sequential(twin)
    before = module(x)[0]
    weight = next(parameter for parameter in module.parameters() if parameter.shape == (3 * H, I))
    weight.data[2 * H, 1] += 1
    torch.testing.assert_close(module(x)[0], before, atol=0, rtol=0)
    vt.refresh(module)
    after = module(x)[0]
    assert (after - before).abs().max() > 1e-3
    with torch.no_grad():
        weight.add_(0)  # is counted
    torch.testing.assert_close(module(x)[0], after, atol=0, rtol=0)
    with pytest.raises(vkdml.InvalidArgumentError, match="refresh: module: found int"):
        vt.refresh(3)


def test_replaced_parameters_are_let_go_of():
    twin, x = vt.convert(nn.GRU(I, H).eval()), torch.randn(T, B, I)
    twin(x)
    old = weakref.ref(twin.weight_ih_l0)
    twin.weight_ih_l0 = nn.Parameter(torch.randn(3 * H, I))
    twin(x)
    gc.collect()
    assert old() is None


def test_results_that_serve_as_weights_are_not_kept():
    """With a graph of gradients, as a parametrization computes them at each call."""
    twin, x = parametrizations.weight_norm(vt.convert(nn.GRU(I, H).eval()), "weight_ih_l0"), torch.randn(T, B, I)
    with torch.enable_grad(), parametrize.cached():
        weight = twin.weight_ih_l0
        twin(x)
        made = weakref.ref(weight)
        del weight
    gc.collect()
    assert made() is None


def test_no_tensor_gets_the_address_of_one_that_was_seen():
    seen = stacks._Seen(nn.Parameter(torch.zeros(1000)), stacks._OF_GRAPHS)
    gc.collect()
    assert all(not seen.is_unchanged(nn.Parameter(torch.zeros(1000))) for _ in range(100))
