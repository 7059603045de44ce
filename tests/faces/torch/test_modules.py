"""Twins of PyTorch's modules, compared with PyTorch."""

import copy
import io
import itertools
import pickle
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'vkdml[torch]'")

from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

import vkdml
import vkdml.torch as vt
from tests.faces.torch.support import CELLS, SEQUENCES, B, H, I, T, check, flat, states
from vkdml.faces.torch import torch_operators

pytestmark = pytest.mark.device

GRID = list(itertools.product(SEQUENCES, (1, 3), (False, True), (False, True), (False, True)))


@pytest.mark.family("all settings together")
@pytest.mark.parametrize(("kind", "layers", "bidirectional", "batch_first", "bias"), GRID)
def test_grid(kind, layers, bidirectional, batch_first, bias):
    module = SEQUENCES[kind](I, H, layers, bidirectional=bidirectional, batch_first=batch_first, bias=bias, dropout=0.5 * (layers > 1))
    x = torch.randn((B, T, I) if batch_first else (T, B, I))
    twin = check(module, x)
    check(module, x, states(module))
    assert (type(twin).__name__, isinstance(twin, SEQUENCES[kind])) == (kind, True)
    assert repr(twin).partition(", tensors through")[0].removesuffix(")") == (
        repr(module).removesuffix(")") + f", vulkan_device={twin.vulkan_device}")


def inputs(module, form, size=I):
    """An input, and states for it."""
    is_cell, first = isinstance(module, nn.RNNCellBase), getattr(module, "batch_first", False)
    rows = 0 if form == "no rows" else 1 if form == "row" else B
    x, hx = torch.randn((rows, size) if is_cell else (rows, T, size) if first else (T, rows, size)), states(module, rows)
    if form == "row":
        each = [state.squeeze(0 if is_cell else 1) for state in (hx if isinstance(hx, tuple) else [hx])]
        return x.squeeze(0 if is_cell or first else 1), tuple(each) if isinstance(hx, tuple) else each[0]
    if form.startswith("packed"):
        x = pack_padded_sequence(x, [T, 3, 1] if "sorted" in form else [1, T, 3], first, enforce_sorted="sorted" in form)
    return torch.cat([x, x], -1)[..., ::2] if form == "view" else x, hx


@pytest.mark.family("each kind in each form")
@pytest.mark.parametrize(("kind", "first", "form"), [
    *itertools.product(SEQUENCES, (False, True), ["row", "packed", "packed, sorted", "view", "no rows"]),
    *itertools.product(CELLS, (False, True), ["batch", "row", "view", "no rows"])])
def test_forms_of_inputs(kind, first, form):
    more = {"bias": first} if kind in CELLS else {"num_layers": np.int64(2), "bidirectional": True, "batch_first": first}
    more |= {"nonlinearity": "relu"} if "RNN" in kind and form != "row" else {}
    size = I if kind in CELLS else 2 * H  # as of the second layer, so that both have the same kernels
    module = (CELLS | SEQUENCES)[kind](size, H, **more)
    x, hx = inputs(module, form, size)
    check(module, x)
    check(module, x, hx)


def packed_by_pytorch(module, x, hx, lengths):
    """PyTorch's results for the rows that have steps, and zeros for the others."""
    has_steps, first = torch.tensor(lengths) > 0, module.batch_first
    packed = pack_padded_sequence(x, torch.tensor(lengths).clamp(min=1), first, enforce_sorted=False)
    y, last = module(packed, hx)
    y = pad_packed_sequence(y, first, total_length=x.shape[first])[0]
    return [y * (has_steps[:, None, None] if first else has_steps[:, None]), *(state * has_steps[:, None] for state in flat(last))]


@pytest.mark.family("settings together")
@pytest.mark.parametrize(("settings", "layers", "two", "batch_first", "dtype"), [*itertools.product(
    [("GRU", {}), ("LSTM", {"proj_size": 4}), ("RNN", {}), ("LSTM", {})], (1, 3), (False, True), (False, True), (torch.float32, torch.float64))])
def test_lengths(settings, layers, two, batch_first, dtype):
    """Whatever is past a row's length, and in training mode too."""
    (kind, more), lengths = settings, [0, T, 2]
    size = more.get("proj_size", H) * (1 + two)  # as of later layers, so that all have the same kernels
    module = SEQUENCES[kind](size, H, layers, bidirectional=two, batch_first=batch_first, **more).to(dtype).eval()
    twin, hx = vt.convert(module, training="torch"), states(module, dtype=dtype)
    x = torch.randn((B, T, size) if batch_first else (T, B, size), dtype=dtype)
    zeroed = x.clone()
    for tensor, value in ((zeroed, 0), (x, 1e300 if dtype is torch.float64 else torch.nan)):
        rows = tensor if batch_first else tensor.transpose(0, 1)
        rows[0], rows[2, 2:] = value, value
    for given, initial in ((lengths, None), (torch.tensor(lengths, dtype=torch.int32), hx)):
        expected = packed_by_pytorch(module, zeroed, initial, lengths)
        torch.testing.assert_close(flat(twin(x, initial, lengths=given)), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(flat(twin.train()(x, hx, lengths)), expected, atol=0, rtol=0, equal_nan=False)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, I)
        self.encoders = nn.ModuleList([nn.LSTM(I, H, batch_first=True, bidirectional=True), nn.GRU(2 * H, H, batch_first=True)])
        self.head = nn.Sequential(nn.Linear(H, 4), nn.LogSoftmax(-1))
        self.cell = nn.GRUCell(4, 4)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for encoder in self.encoders:
            x, _ = encoder(x)
        return self.cell(self.head(x)[:, -1])


def test_a_model_with_other_modules():
    model = Tagger()
    twin = check(model, torch.randint(0, 10, (B, T)))
    assert [type(m) for m in model.encoders] == [nn.LSTM, nn.GRU]  # it stays as it was
    assert [type(m) for m in (*twin.encoders, twin.cell)] == [vt.LSTM, vt.GRU, vt.GRUCell]
    assert list(twin.state_dict()) == list(model.state_dict())
    assert vt.convert(model, inplace=True) is model
    assert type(model.cell) is vt.GRUCell


def test_state_dicts_and_copies():
    """Loading, deep copies and saved modules have what they should, not what was packed before."""
    twin = vt.convert(nn.GRU(I, H).eval())
    x = torch.randn(T, B, I)
    twin(x)
    other = nn.GRU(I, H).eval()
    twin.load_state_dict(other.state_dict())
    torch.testing.assert_close(twin(x)[0], other(x)[0], atol=1e-5, rtol=1e-5)
    file = io.BytesIO()
    torch.save(twin, file)
    file.seek(0)
    on_device = vt.convert(other, vkdml.Device(verify=0.5))
    for again in (copy.deepcopy(twin), torch.load(file, weights_only=False), pickle.loads(pickle.dumps(on_device))):
        torch.testing.assert_close(again(x)[0], other(x)[0], atol=1e-5, rtol=1e-5)


def test_parameters_may_be_swapped():
    """Which PyTorch refuses where somebody has a weak reference to one."""
    twin, cell = vt.convert(nn.GRUCell(I, H).eval()), nn.GRUCell(I, H).double()
    twin.warm_up(B=B)
    twin(torch.randn(B, I))
    with torch.autocast("cpu"):
        twin(torch.randn(B, I))
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        twin.double()
        twin.load_state_dict(cell.state_dict())
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    x = torch.randn(B, I, dtype=torch.float64)
    torch.testing.assert_close(twin(x), cell(x), atol=1e-10, rtol=1e-10)


def test_networks_are_bounded(monkeypatch):
    monkeypatch.setattr(torch_operators, "_STACKS_KEPT", 4)
    twin = vt.convert(nn.RNN(1, 1).eval())
    for t in range(1, 12):
        twin(torch.randn(t, 1, 1))
    assert len(torch_operators.twin_stacks[twin].stacks.values()) == 4


@pytest.mark.parametrize(("module", "shapes"), [
    (nn.LSTM(2 * H, H, 2, bidirectional=True), [(T, 1), (T, 2), (1, 1)]), (nn.Sequential(nn.GRU(I, H, batch_first=True)), [(1, T), (2, T)])])
def test_nothing_is_made_after_a_warm_up(device, module, shapes):
    twin = vt.convert(module.eval())
    if isinstance(twin, nn.Sequential):
        vt.warm_up(twin, T, [1, 2])
    else:
        twin.warm_up([1, T], [1, 2])
        twin.warm_up(T, 2, hx=True, packed=True)
    made = device.gpu.pipelines_made
    for shape in shapes:
        x = torch.randn(*shape, 2 * H if isinstance(twin, nn.LSTM) else I)
        torch.testing.assert_close(flat(twin(x)), flat(module(x)), atol=1e-5, rtol=1e-5)
    if isinstance(twin, nn.LSTM):
        packed = nn.utils.rnn.pack_padded_sequence(torch.randn(T, 2, 2 * H), torch.tensor([T, 2]))
        twin(packed, (torch.randn(4, 2, H), torch.randn(4, 2, H)))
    assert device.gpu.pipelines_made == made


def test_a_warm_up_of_sizes_that_can_be_read_once():
    twins = vt.convert(nn.Sequential(nn.GRU(I, H), nn.RNN(H, H)).eval())
    vt.warm_up(twins, iter([1, T]), iter([1, 2]))
    assert [len(torch_operators.twin_stacks[twin].stacks.values()) for twin in twins] == [4, 4]


def test_a_cell_has_one_step(device):
    twin = vt.convert(nn.LSTMCell(I, H).eval())
    twin.warm_up(B=[B])
    twin.warm_up([1, T], B, hx=True)
    made = device.gpu.pipelines_made
    h = twin(torch.randn(B, I))
    twin(torch.randn(B, I), h)
    assert device.gpu.pipelines_made == made


@pytest.mark.parametrize(("call", "message"), [
    (lambda: vt.convert(nn.GRU(I, H).eval()).warm_up(0), "GRU: warm_up: T: found 0"),
    (lambda: vt.warm_up(vt.convert(nn.GRU(I, H).eval()), B=[1, 2]), "GRU: warm_up: T: found None; expected whole numbers from 1"),
    (lambda: vt.convert(nn.GRU(I, H)).warm_up(1), "GRU: warm_up: training: found True"),
])
def test_wrong_warm_ups(call, message):
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        call()


class Mine(nn.GRU):
    pass


def unsorted():
    return nn.utils.rnn.pack_padded_sequence(torch.randn(T, B, I), torch.tensor([1, T, 2]), enforce_sorted=False)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: vt.convert(nn.Sequential(nn.Linear(1, 1), Mine(1, 1))), "convert: 1: found Mine, a subclass"),
    (lambda: vt.convert(3), "convert: module: found int"),
    (lambda: vt.unconvert(3), "unconvert: module: found int"),
    (lambda: vt.convert(nn.GRU(I, H), training="cpu"), "convert: training: found 'cpu'; expected 'refuse' or 'torch'"),  # type: ignore[arg-type]
    (lambda: torch.jit.script(nn.Sequential(vt.convert(nn.GRU(I, H).eval()))), "GRU: torch.jit.script: found a converted module"),
    (lambda: vt.convert(nn.Sequential(torch.jit.script(nn.GRU(I, H)))), "convert: 0: found a scripted or traced module"),
    (lambda: vt.convert(nn.GRU(I, H).eval())(np.zeros((T, B, I))), "GRU: input: found ndarray; expected a dense Tensor or a PackedSequence"),
    (lambda: vt.convert(nn.GRUCell(I, H).eval())(None), "GRUCell: input: found NoneType; expected a dense Tensor"),
    (lambda: vt.convert(nn.GRU(I, H))(torch.randn(T, B, I)), "GRU: training: found True; expected False: call .eval"),
    (lambda: vt.convert(nn.GRUCell(I, H).eval())(torch.randn(B, I).double()), "GRUCell: input: found torch.float64; expected torch.float32"),
    (lambda: vt.convert(nn.GRU(I, H).eval())(torch.randn(T, B, I), torch.randn(1, B, H).double()), r"GRU: hx\[0\]: found torch.float64"),
    (lambda: vt.convert(nn.GRU(I, H).eval())(torch.randn(T, B, I, device="cpu").to_sparse()), "GRU: input: found a Tensor, torch.sparse_coo"),
    (lambda: vt.convert(nn.GRU(I, H).eval().to(torch.float8_e5m2))(torch.zeros(T, B, I).to(torch.float8_e5m2)),
     "GRU: parameters: found torch.float8_e5m2; expected one of torch.float32"),
    (lambda: vt.convert(nn.GRU(I, H).eval().to("meta"))(torch.randn(T, B, I)), "GRU: weight_ih_l0: found a tensor on meta"),
    (lambda: vt.convert(nn.GRU(I, H).eval())(torch.randn(T, B, I), torch.randn(1, B, H, device="meta")), r"GRU: hx\[0\]: found a tensor on meta"),
    (lambda: vt.convert(nn.GRU(I, H).eval())(unsorted(), torch.randn(1, B, H, device="meta")), r"GRU: hx\[0\]: found a tensor on meta"),
    (lambda: vt.convert(nn.GRU(I, H).eval())(unsorted(), torch.randn(1, B - 1, H)), r"GRU: hx\[0\]: found the shape \(1, 2, 6\); expected 3 rows"),
    (lambda: vt.convert(nn.GRU(I, H).eval())(unsorted(), torch.randn(H)), r"GRU: hx\[0\]: found the shape \(6,\); expected 3 rows"),
    (lambda: vt.convert(nn.LSTMCell(I, H).eval())(torch.randn(B, I), (torch.randn(B, H),)), "LSTMCell: hx: found Tensor; expected 2 Tensors"),
    (lambda: vt.convert(nn.GRU(I, H).eval())(torch.nested.nested_tensor([torch.randn(T, I)])), "GRU: input: found a nested Tensor"),
])
def test_what_is_refused(call, message):
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        call()


def without(name):
    return lambda module: delattr(module, name)


def with_value(name, value):
    return lambda module: setattr(module, name, value)


@pytest.mark.parametrize("kind", [nn.RNN, nn.RNNCell])
@pytest.mark.parametrize("setting", [("nonlinearity", "relu"), ("mode", "RNN_RELU")])
def test_another_activation_is_that_of_pytorch(kind, setting):
    """A module reads its mode, which its nonlinearity does not change later, and a cell reads its nonlinearity."""
    module, x = kind(I, H), torch.randn(B, I)
    twin = vt.convert(module.eval())
    for one in (module, twin):
        setattr(one, *setting)
    torch.testing.assert_close(flat(twin(x)), flat(module(x)), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("change", "message"), [
    (without("weight_hh_l0"), "GRU: weight_hh_l0: found NoneType; expected a parameter"),
    (with_value("bias_ih_l0", None), "GRU: bias_ih_l0: found NoneType; expected a parameter"),
    (with_value("weight_ih_l0", None), "GRU: weight_ih_l0: found NoneType"),
    (with_value("hidden_size", 2 * H), "GRU: weight_ih_l0: found the shape"),
    (with_value("hidden_size", "6"), "GRU: hidden_size: found '6'"),
    (with_value("num_layers", 3), "GRU: weights: found 4 for num_layers 3, 1 directions"),
])
def test_a_twin_that_was_changed_is_refused(change, message):
    """Before any work; another one still computes."""
    twin = vt.convert(nn.GRU(I, H).eval())
    twin(torch.randn(T, B, I))
    change(twin)
    with pytest.raises(vkdml.InvalidArgumentError, match=message):
        twin(torch.randn(T, B, I))


@pytest.mark.parametrize("batch_sizes", [[2, 3], [-1, 6], [0, 0], [2, 2, 2], [], [4, 1, 0], [[3, 2]], [1.5, 2.5, 1.0], [2**62, 2**62]], ids=str)
def test_a_packed_sequence_that_is_none_is_refused(batch_sizes):
    packed = PackedSequence.__new__(PackedSequence, torch.randn(5, I), torch.tensor(batch_sizes, device="cpu"), None, None)
    with pytest.raises(vkdml.InvalidArgumentError, match="GRU: batch_sizes: found .* from 1 that never grow, 5 together"):
        vt.convert(nn.GRU(I, H).eval())(packed)


@pytest.mark.parametrize("order", [torch.tensor([0, 5]), torch.tensor([0, 0]), torch.tensor([0.5, 1.0]), "10"], ids=str)
def test_an_order_of_rows_that_is_none_is_refused(order):
    packed = PackedSequence.__new__(PackedSequence, torch.randn(5, I), torch.tensor([3, 2], device="cpu"), order, order)
    with pytest.raises(vkdml.InvalidArgumentError, match="GRU: sorted_indices: found"):
        vt.convert(nn.GRU(I, H).eval())(packed)


@pytest.mark.parametrize(("name", "shape"), [
    ("weight_ih_l0", (4 * H, I - 1)), ("weight_ih_l1", (4 * H, H)), ("weight_hh_l1_reverse", (3 * H, H)), ("bias_hh_l0", (8 * H,))])
def test_parameters_of_other_shapes_are_refused(name, shape):
    """As by a tool that prunes weights in place. PyTorch's own modules refuse them too."""
    module = nn.LSTM(I, H, num_layers=2, bidirectional=True).eval()
    setattr(module, name, nn.Parameter(torch.zeros(shape)))
    with pytest.raises(vkdml.InvalidArgumentError, match=re.escape(f"LSTM: {name}: found the shape {shape}; expected (")):
        vt.convert(module)(torch.zeros(T, B, I))


@pytest.mark.parametrize(("arguments", "message"), [
    ((torch.zeros(T, B, I + 1),), "LSTM: input: found 8 features; expected 7"),
    ((torch.zeros(T, B, I).double(),), "LSTM: input: found torch.float64; expected torch.float32, as the parameters"),
    ((torch.zeros(T, B, I, device="cpu").to_sparse(),), "LSTM: input: found a Tensor, torch.sparse_coo"),
    ((torch.zeros(T, B, I, device="meta"),), "LSTM: input: found a tensor on meta"),
    ((torch.zeros(T, B, I), (torch.zeros(1, B, H), torch.zeros(1, B + 1, H))), r"LSTM: hx\[1\]: found 4 rows; expected 3"),
    ((torch.zeros(T, I), (torch.zeros(1, B, H),) * 2), r"LSTM: hx\[0\]: found 3 dimensions; expected the input's 2"),
    ((torch.zeros(T, B, I), torch.zeros(1, B, H)), "LSTM: hx: found Tensor; expected 2 Tensors"),
    ((torch.zeros(T, B, I), ()), "LSTM: hx: found none; expected 2 Tensors"),
    ((torch.zeros(T, B, I), (torch.zeros(1, B, H), None)), "LSTM: hx: found Tensor, NoneType; expected 2 Tensors"),
    ((torch.zeros(T, B, I), None, [1, T + 1, 0]), "LSTM: lengths: found 6 for row 1; expected 0 to 5"),
    ((torch.zeros(T, B, I), None, [1, 2]), r"LSTM: lengths: found torch.int64, the shape \(2,\), .*; expected int64 or int32, the shape \(3,\)"),
    ((torch.zeros(T, B, I), None, [1.0, 2.0, 3.0]), "LSTM: lengths: found torch.float32"),
    ((torch.zeros(T, B, I), None, torch.zeros(B, 1).long()), r"LSTM: lengths: found torch.int64, the shape \(3, 1\)"),
    ((torch.zeros(T, B, I), None, "abc"), "LSTM: lengths: found 'abc'; expected a list or Tensor of whole numbers"),
    ((torch.zeros(T, I), None, [T]), r"LSTM: lengths: found \[5\]; expected None, or an input with 3 dimensions"),
    ((pack_sequence([torch.zeros(T, I)]), None, [T]), r"LSTM: lengths: found \[5\]; expected None, or an input with 3 dimensions"),
])
def test_a_wrong_call_leaves_a_twin_usable(arguments, message):
    module = nn.LSTM(I, H).eval()
    twin, x = vt.convert(module), torch.randn(T, B, I)
    for hx in (None, states(module), None):  # as the first call, and after right ones
        with pytest.raises(vkdml.InvalidArgumentError, match=message) as caught:
            twin(*arguments)
        assert isinstance(caught.value, RuntimeError)  # as PyTorch's
        torch.testing.assert_close(twin(x, hx)[0], module(x, hx)[0], atol=1e-5, rtol=1e-5)


def test_a_right_call_is_wrong_for_other_parameters():
    twin, x = vt.convert(nn.GRU(I, H).eval()), torch.randn(T, B, I)
    twin(x)
    twin.double()
    with pytest.raises(vkdml.InvalidArgumentError, match=r"GRU: input: found torch.float32; expected torch.float64, as the parameters"):
        twin(x)


@pytest.mark.parametrize(("kind", "shapes"), [
    *itertools.product(CELLS, [[(3, 11), (3, 20)], [(3, 10), (3, 21)], [(3, 10), (5, 20)], [(3, 10), (3, 1, 1, 20)], [(2, 3, 10)]]),
    *itertools.product(SEQUENCES, [[(0, 2, 10)], [(4, 2, 11)], [(4, 2, 10), (1, 3, 20)], [(4, 2, 10), (2, 20)], [(10,)], "float64"])])
def test_a_wrong_call_raises_what_pytorch_raises(kind, shapes):
    """The wrong calls of PyTorch's own tests, and some more."""
    module = (CELLS | SEQUENCES)[kind](10, 20).eval()
    x, *hx = [torch.zeros(4, 2, 10).double()] if shapes == "float64" else map(torch.zeros, shapes)
    hx = [(*hx, *hx)] if hx and "LSTM" in kind else hx
    with pytest.raises((RuntimeError, ValueError)) as theirs:
        module(x, *hx)
    with pytest.raises(theirs.type) as ours:
        vt.convert(module)(x, *hx)
    assert isinstance(ours.value, vkdml.InvalidArgumentError)


@pytest.mark.parametrize("grad_of", ["parameters", "input"])
def test_results_have_no_gradient(grad_of):
    module = nn.GRU(I, H).eval().requires_grad_(grad_of == "parameters")
    twin = vt.convert(module)
    x = torch.randn(T, B, I, requires_grad=grad_of == "input")
    with torch.enable_grad():
        y = twin(x)[0]
        torch.testing.assert_close(y, module(x)[0], atol=1e-5, rtol=1e-5)
        with pytest.raises(vkdml.InvalidArgumentError, match="vkdml.torch: backward: found a converted module .* for inference"):
            y.sum().backward()
    assert not twin.requires_grad_(False)(x)[0].requires_grad
    with torch.inference_mode():
        assert not twin(x)[0].requires_grad


def trained(module):
    """Gradients, and the parameters after a step."""
    torch.manual_seed(1)
    with torch.enable_grad():
        module.train()(torch.ones(T, B, I))[0].sum().backward()
        torch.optim.SGD(module.parameters(), 0.1).step()
    return [tensor for parameter in module.parameters() for tensor in (parameter.grad, parameter.detach())]


def test_one_module_trains_and_infers():
    module = nn.LSTM(I, H, 2, dropout=0.5)
    twin = vt.convert(module, training="torch")
    x = torch.randn(T, B, I)
    twin.eval()(x)
    torch.testing.assert_close(trained(twin), trained(module), atol=0, rtol=0)
    torch.testing.assert_close(twin.eval()(x), module.eval()(x), atol=1e-5, rtol=1e-5)
    with pytest.raises(vkdml.InvalidArgumentError, match="LSTM: training: found True"):
        vt.convert(twin.train())(x)


def test_unconvert():
    model = nn.Sequential(nn.GRUCell(I, H), nn.LSTMCell(H, H)).eval()
    attributes, parameters = [set(vars(cell)) for cell in model], list(map(id, model.parameters()))
    twin = vt.convert(model, inplace=True)
    twin[0](torch.randn(B, I))
    assert vt.unconvert(twin) is model
    assert [type(cell) for cell in model] == [nn.GRUCell, nn.LSTMCell]
    assert ([set(vars(cell)) for cell in model], list(map(id, model.parameters()))) == (attributes, parameters)


def parametrized(module):
    for name in ("weight_ih", "weight_hh") if isinstance(module, nn.RNNCellBase) else ("weight_ih_l0", "weight_hh_l1"):
        nn.utils.parametrizations.weight_norm(module, name)
        getattr(module.parametrizations, name).original0.mul_(0.5)
    return module.eval()


@pytest.mark.parametrize("module", [nn.GRU(I, H, 2), nn.LSTMCell(I, H)], ids=["GRU", "LSTMCell"])
def test_parametrized_weights(module):
    """Before and after they are converted, and with the parametrizations removed."""
    x, module = torch.randn(B, I), parametrized(copy.deepcopy(module))
    twin = check(module, x)
    assert type(twin).__name__ == type(module).__name__ == "Parametrized" + twin._module
    expected = flat(module(x))
    torch.testing.assert_close(flat(vt.unconvert(copy.deepcopy(twin))(x)), expected, atol=0, rtol=0)
    for name in list(twin.parametrizations):
        nn.utils.parametrize.remove_parametrizations(twin, name)
    assert type(twin) is getattr(vt, twin._module)
    torch.testing.assert_close(flat(twin(x)), expected, atol=1e-5, rtol=1e-5)
    module = vt.unconvert(copy.deepcopy(twin))
    torch.testing.assert_close(flat(parametrized(twin)(x)), flat(parametrized(module)(x)), atol=1e-5, rtol=1e-5)
