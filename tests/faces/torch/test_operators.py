"""The operators that stand in graphs of twins: what is traced, exported and compiled, and autocast."""

import gc
import io
import itertools
import weakref

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'vkdml[torch]'")

from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import vkdml
import vkdml.torch as vt
from tests.faces.torch.support import SEQUENCES, TOLERANCES, B, H, I, T, flat, of_pytorch, states
from vkdml.faces.torch.torch_operators import untraced

pytestmark = pytest.mark.device

CELLS = {"GRUCell": nn.GRUCell, "LSTMCell": nn.LSTMCell, "RNNCell": nn.RNNCell}


class Model(nn.Module):
    def __init__(self, kind="GRU", **settings):
        super().__init__()
        self.rnn = SEQUENCES[kind](I, H, 2, bidirectional=True, **settings)
        self.cell = nn.GRUCell(2 * H, H)
        self.head = nn.Linear(2 * H, 2)

    def forward(self, x):
        y, last = self.rnn(x)
        return self.head(y), self.cell(y[:, -1] if self.rnn.batch_first else y[-1]), *flat(last)


class Packs(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(I, H, batch_first=True)

    def forward(self, x, lengths):
        y, (h, c) = self.rnn(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        return pad_packed_sequence(y, batch_first=True)[0], h, c


def saved(save, load, graph):
    file = io.BytesIO()
    save(graph, file)
    file.seek(0)
    return load(file)


def same(got, expected, atol=1e-5):
    torch.testing.assert_close(flat(got), flat(expected), atol=atol, rtol=atol)


def operators(graph):
    return [str(node.target) for node in graph.nodes if "vkdml" in str(node.target)]


@pytest.mark.family("exports alike", first=1)
@pytest.mark.parametrize(("kind", "grad", "strict"), list(itertools.product(SEQUENCES, (True, False), (False, True))))
def test_torch_export(kind, grad, strict):
    """With dynamic shapes, after it was saved and loaded; where gradients are recorded, too."""
    model = Model(kind).eval()
    steps, rows = torch.export.Dim("T"), torch.export.Dim("B")
    with torch.set_grad_enabled(grad):
        program = torch.export.export(vt.convert(model), (torch.randn(T, B, I),), dynamic_shapes=({0: steps, 1: rows},), strict=strict)
        loaded = saved(torch.export.save, torch.export.load, program).module()
        assert operators(program.graph) == [f"vkdml.{'rnn_tanh' if kind == 'RNN' else kind.lower()}.default", "vkdml.gru.default"]
        for t, b in ((T, B), (7, 2)):
            x = torch.randn(t, b, I)
            same(program.module()(x), model(x))
            same(loaded(x), model(x))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_torch_jit_trace():
    model, packs = Model("LSTM", batch_first=True).eval(), Packs().eval()
    traced = torch.jit.trace(vt.convert(model), torch.randn(B, T, I))
    loaded = saved(torch.jit.save, torch.jit.load, traced)
    for b, t in ((B, T), (2, 7), (0, 3)):
        x = torch.randn(b, t, I)
        same(traced(x), model(x))
        same(loaded(x), model(x))
    traced = torch.jit.trace(vt.convert(packs), (torch.randn(B, T, I), torch.tensor([5, 2, 3])))
    x, lengths = torch.randn(2, 6, I), torch.tensor([3, 6])
    same(traced(x, lengths), packs(x, lengths))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_loaded_graph_packs_its_weights_once(monkeypatch):
    """They are its own, in memory that lives as long as it."""
    from vkdml.faces.torch import stacks
    loaded = saved(torch.jit.save, torch.jit.load, torch.jit.trace(vt.convert(nn.GRU(I, H).eval()), torch.randn(T, B, I)))
    loaded(torch.randn(T, B, I))
    monkeypatch.setattr(stacks.Layer, "arrays", lambda self: pytest.fail("packed again"))
    loaded(torch.randn(T, B, I))


def test_weights_that_nobody_has_are_let_go_of():
    """With all that an operator has made of them."""
    module = nn.GRU(I, H, 2).eval()
    torch.ops.vkdml.gru(torch.randn(T, B, I), [], list(module.parameters()), None, "GRU", I, H, 2, False, 0)
    watched = [weakref.ref(parameter) for parameter in module.parameters()]
    del module
    gc.collect()
    assert not any(reference() is not None for reference in watched)


def test_fx_graphs():
    module = nn.RNN(I, H, nonlinearity="relu").eval()
    graph = torch.fx.experimental.proxy_tensor.make_fx(vt.convert(module))(torch.randn(T, B, I))
    assert operators(graph.graph) == ["vkdml.rnn_relu.default"]
    x = torch.randn(T, B, I)
    same(graph(x), module(x))


def test_torch_compile_leaves_twins_as_they_are():
    """Where it need not make one graph."""
    model = Model().eval()
    compiled = torch.compile(vt.convert(model), backend="eager")
    x = torch.randn(T, B, I)
    same(compiled(x), model(x))


def test_torch_compile_looks_at_nothing_that_is_untraced():
    """What it looks at is told that it is compiled."""
    told = []

    def work(x):
        told.append(torch.compiler.is_compiling())
        return (x,)

    for way, is_compiling in ((lambda x: work(x), True), (lambda x: untraced(work)(x), False)):
        torch.compile(way, backend="eager")(torch.ones(1))
        assert told.pop() is is_compiling


@pytest.mark.family("backends", first=1)
@pytest.mark.parametrize("backend", ["aot_eager", "eager", "inductor"])
def test_torch_compile_makes_one_graph(backend):
    """Where it may look into recurrent modules at all."""
    torch._dynamo.reset()
    model = Model().eval()
    with torch._dynamo.config.patch(allow_rnn=True):
        compiled = torch.compile(vt.convert(model), backend=backend, fullgraph=True, dynamic=True)
        for t, b in ((T, B), (7, 2)):
            x = torch.randn(t, b, I)
            same(compiled(x), model(x))


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["gru", "lstm", "rnn_tanh", "rnn_relu"])
def test_operators_are_what_they_say(mode):
    """PyTorch's own checks of schemas, fake implementations and dispatch."""
    module = (nn.LSTM if mode == "lstm" else nn.GRU if mode == "gru" else nn.RNN)(I, H, 2).requires_grad_(False)
    operator = getattr(torch.ops.vkdml, mode).default
    for hx in ([], list(flat(states(module)))):
        torch.library.opcheck(operator, (torch.randn(T, B, I), hx, list(module.parameters()), None, "GRU", I, H, 2, False, 0))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_wrong_input_of_a_graph_is_refused():
    module = nn.GRU(I, H).eval()
    traced = torch.jit.trace(vt.convert(module), torch.randn(T, B, I))
    for x, message in ((torch.randn(T, B, I).double(), "GRU: input: found torch.float64"),
                       (torch.randn(0, B, I), r"GRU: input: found the shape \(0, 3, 7\); expected at least one time step, and 7 as the last size"),
                       (torch.randn(T, B, I + 1), r"GRU: input: found the shape \(5, 3, 8\); expected at least one time step, and 7 as")):
        with pytest.raises(RuntimeError, match=message):
            traced(x)
    x = torch.randn(T, B, I)
    same(traced(x), module(x))
    with pytest.raises(vkdml.InvalidArgumentError, match=r"GRU: hx\[0\]: found the shape \(1, 2, 6\); expected \(1, 3, 6\)"):
        torch.ops.vkdml.gru(x, [torch.randn(1, 2, H)], list(module.parameters()), None, "GRU", I, H, 1, False, 0)


def test_modules_may_share_weights():
    """As layers, and as directions of one."""
    layers, directions = nn.GRU(H, H, 2).eval(), nn.GRU(H, H, bidirectional=True).eval()
    weights = list(layers.parameters())
    for mine, shared in zip(directions.parameters(), weights):
        mine.copy_(shared)
    x = torch.randn(T, B, H)
    for module in (layers, directions, layers):
        same(torch.ops.vkdml.gru(x, [], weights, None, "GRU", H, H, module.num_layers, module.bidirectional, 0), module(x))


def autocasts(modules, dtypes):
    return [(kind, settings, dtype) for dtype in dtypes for kind in modules
            for settings in ({}, {"proj_size": 4}) if not settings or kind == "LSTM"]


@pytest.mark.family("types of inputs", first=7)
@pytest.mark.parametrize(("kind", "settings", "dtype"), autocasts([*SEQUENCES, *CELLS], [torch.float32, torch.bfloat16]))
def test_autocast(kind, settings, dtype):
    """The types are PyTorch's: not all modules return autocast's own."""
    if kind in CELLS:
        module, shape = CELLS[kind](I, H).eval(), (B, I)
    else:
        module, shape = SEQUENCES[kind](I, H, 2, bidirectional=True, **settings).eval(), (T, B, I)
    twin, x = vt.convert(module), torch.randn(shape, dtype=dtype)
    with torch.autocast("cpu", torch.bfloat16):
        same(twin(x), of_pytorch(module, x), TOLERANCES[torch.bfloat16])
    if dtype is torch.float32:
        same(twin(x), module(x))


def test_float64_goes_through_autocast():
    module = nn.GRU(I, H).double().eval()
    twin, x = vt.convert(module), torch.randn(T, B, I).double()
    with torch.autocast("cpu"):
        same(twin(x), module(x), TOLERANCES[torch.float64])


def test_a_device_that_is_not_there():
    weights = list(nn.GRU(I, H).parameters())
    with pytest.raises(vkdml.VkdmlError, match="99"):
        torch.ops.vkdml.gru(torch.randn(T, B, I), [], weights, None, "GRU", I, H, 1, False, 99)


@pytest.mark.parametrize(("count", "layers"), [(0, 1), (1, 1), (2, 0), (2, -1), (2, 10**9), (4, 3)])
def test_weights_that_are_not_as_many_as_layers_need(count, layers):
    weights = [torch.randn(3 * H, I), torch.randn(3 * H, H), torch.randn(3 * H), torch.randn(3 * H)][:count]
    with pytest.raises(vkdml.InvalidArgumentError, match=f"GRU: weights: found {count} for num_layers {layers}, 1 directions"):
        torch.ops.vkdml.gru(torch.randn(T, B, I), [], weights, None, "GRU", I, H, layers, False, 0)


def test_the_same_weights_with_biases_and_without():
    weights, x = [parameter.detach() for parameter in nn.GRU(I, H).parameters()], torch.randn(T, B, I)
    for count in (2, 4, 2):
        module = nn.GRU(I, H, bias=count == 4).eval()
        for mine, given in zip(module.parameters(), weights):
            mine.data.copy_(given)
        with torch.no_grad():
            same(torch.ops.vkdml.gru(x, [], weights[:count], None, "GRU", I, H, 1, False, 0), module(x))
