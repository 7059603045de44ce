"""The operators that stand in graphs of twins: what is traced, exported and compiled, and autocast."""

import gc
import io
import itertools
import weakref
from contextlib import nullcontext

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'vkdml[torch]'")

from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import vkdml
import vkdml.torch as vt
from tests.faces.torch.support import CELLS, SEQUENCES, TOLERANCES, B, H, I, T, flat, of_pytorch, spread, states
from vkdml.faces.torch.torch_operators import untraced

pytestmark = pytest.mark.device

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
    monkeypatch.setattr(stacks.StackLayer, "arrays", lambda self: pytest.fail("packed again"))
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
    for model in (nn.Sequential(module), nn.Sequential(nn.utils.parametrizations.weight_norm(module, "weight_hh_l0"))):
        graph = torch.fx.symbolic_trace(vt.convert(model))
        assert [node.op for node in graph.graph.nodes] == ["placeholder", "call_module", "output"]
        same(graph(x), module(x))


class Padded(nn.Module):
    """With lengths and initial states."""

    def __init__(self, kind):
        super().__init__()
        self.rnn = SEQUENCES[kind](I, H, 2, bidirectional=True)

    def forward(self, x, lengths, *hx):
        return self.rnn(x, hx if hx[1:] else hx[0], lengths)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.family("kinds in each way")
@pytest.mark.parametrize(("kind", "way"), list(itertools.product(["GRU", "LSTM"], ["export", "strict export", "trace", "compile"])))
def test_graphs_with_lengths(kind, way):
    model = vt.convert(Padded(kind).eval())
    calls = [(torch.randn(t, b, I), torch.tensor([row % (t + 1) for row in range(b)]), *flat(states(model.rnn, b))) for t, b in ((T, B), (7, 2))]
    rows = torch.export.Dim("B")
    if way == "trace":
        graph = torch.jit.trace(model, calls[0])
    elif way == "compile":
        graph = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
    else:
        dynamic = {"x": {0: torch.export.Dim("T"), 1: rows}, "lengths": {0: rows}, "hx": tuple({1: rows} for _ in calls[0][2:])}
        graph = torch.export.export(model, calls[0], dynamic_shapes=dynamic, strict=way.startswith("strict")).module()
    with torch._dynamo.config.patch(allow_rnn=True):
        for call in calls:
            same(graph(*call), model(*call))


@pytest.mark.parametrize("has_states", [False, True])
def test_torch_compile_makes_one_graph_of_packed_sequences(has_states):
    module = nn.GRU(I, H).eval()
    packed, hx = pack_padded_sequence(torch.randn(T, B, I), [2, T, 3], enforce_sorted=False), [states(module)] if has_states else []
    with torch._dynamo.config.patch(allow_rnn=True):
        same(torch.compile(vt.convert(module), backend="eager", fullgraph=True, dynamic=True)(packed, *hx), module(packed, *hx))


def test_torch_compile_looks_at_nothing_that_is_untraced():
    """The code that it traces knows that it is compiled."""
    asked = []

    def work(x):
        asked.append(torch.compiler.is_compiling())
        return (x,)

    for way, is_compiling in ((lambda x: work(x), True), (lambda x: untraced(work)(x), False)):
        torch.compile(way, backend="eager")(torch.ones(1))
        assert asked.pop() is is_compiling


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
    with pytest.raises(RuntimeError, match="GRU: input: found torch.float64"):
        traced(torch.randn(T, B, I).double())
    x = torch.randn(T, B, I)
    same(traced(x), module(x))


def test_modules_may_share_weights():
    """As layers, and as directions of one."""
    layers, directions = nn.GRU(H, H, 2).eval(), nn.GRU(H, H, bidirectional=True).eval()
    weights = list(layers.parameters())
    for mine, shared in zip(directions.parameters(), weights):
        mine.copy_(shared)
    x = torch.randn(T, B, H)
    for module in (layers, directions, layers):
        same(torch.ops.vkdml.gru(x, [], weights, None, "GRU", H, H, module.num_layers, module.bidirectional, 0), module(x))


@pytest.mark.family("settings together", first=9)
@pytest.mark.parametrize(("kind", "input", "is_low", "has_states", "to"), spread([*itertools.product(
    [*SEQUENCES, "LSTM, projected"], ["padded", "packed", "packed, of one length"], [False, True], [False, True],
    [torch.bfloat16, torch.float16]), *itertools.product(CELLS, ["padded"], [False, True], [False, True], [torch.bfloat16])]))
def test_autocast(kind, input, is_low, has_states, to):
    """The types are PyTorch's: not all modules return autocast's own."""
    kind, _, projected = kind.partition(",")
    size = I if kind in CELLS else 2 * (4 if projected else H)  # as of the second layer, so that both have the same kernels
    module = CELLS[kind](I, H) if kind in CELLS else SEQUENCES[kind](size, H, 2, bidirectional=True, **{"proj_size": 4} if projected else {})
    x = torch.randn((B, I) if kind in CELLS else (T, B, size), dtype=to if is_low else torch.float32)
    if input != "padded":
        x = pack_padded_sequence(x, [T, T, T] if "one" in input else [T, 3, 1])
    twin, hx = vt.convert(module.eval()), [states(module)] if has_states else []
    with torch.autocast("cpu", to):
        if kind == "LSTM" and is_low and has_states:  # PyTorch returns another type where its processor has no such LSTM: skip there, too
            of_pytorch(module, torch.randn(T, B, size))
        same(twin(x, *hx), of_pytorch(module, x, *hx), TOLERANCES[torch.bfloat16])
    if not is_low:
        same(twin(x, *hx), module(x, *hx))


def test_float64_goes_through_autocast():
    module = nn.GRU(I, H).double().eval()
    twin, x = vt.convert(module), torch.randn(T, B, I).double()
    with torch.autocast("cpu"):
        same(twin(x), module(x), TOLERANCES[torch.float64])


def test_a_device_that_is_not_there():
    with pytest.raises(vkdml.VkdmlError, match="99"):
        torch.ops.vkdml.gru(**arguments(device=99)[1])


def arguments(mode="gru", **changes):
    module = nn.LSTM(I, H) if mode == "lstm" else nn.GRU(I, H)
    given = {"input": torch.randn(T, B, I), "hx": [], "weights": [weight.detach() for weight in module.parameters()], "batch_sizes": None,
             "module": mode.upper(), "input_size": I, "hidden_size": H, "num_layers": 1, "bidirectional": False, "device": 0}
    return getattr(torch.ops.vkdml, mode), given | changes


WEIGHTS = arguments()[1]["weights"]


@pytest.mark.parametrize(("changes", "message"), [
    ({"input": torch.randn(T, I)}, "GRU: input: found 2 dimensions; expected 3"),
    ({"input": torch.randn(T, B, 1, I)}, "GRU: input: found 4 dimensions; expected 3"),
    ({"input": torch.randn(())}, "GRU: input: found 0 dimensions; expected 3"),
    ({"input": torch.randn(0, B, I)}, "GRU: input: found no time steps; expected at least one"),
    ({"input": torch.randn(T, B, I + 1)}, "GRU: input: found 8 features; expected 7"),
    ({"batch_sizes": torch.tensor([2, 1])}, "GRU: input: found 3 dimensions; expected 2"),
    ({"hx": [torch.randn(1, B, H)] * 2}, "GRU: hx: found 2 tensors; expected none or 1"),
    ({"mode": "lstm", "hx": [torch.randn(1, B, H)]}, "LSTM: hx: found 1 tensors; expected none or 2"),
    ({"mode": "lstm", "hx": [torch.randn(1, B, H)] * 3}, "LSTM: hx: found 3 tensors; expected none or 2"),
    ({"hx": [torch.randn(B, H)]}, r"GRU: hx\[0\]: found 2 dimensions; expected 3"),
    ({"hx": [torch.randn(1, 2, H)]}, r"GRU: hx\[0\]: found 2 rows; expected 3"),
    ({"hx": [torch.randn(2, B, H)]}, r"GRU: hx\[0\]: found 2 layers and directions; expected 1"),
    ({"hx": [torch.randn(1, B, H).double()]}, r"GRU: hx\[0\]: found torch.float64; expected torch.float32"),
    ({"lengths": torch.tensor([1, 2])}, r"GRU: lengths: found torch.int64, the shape \(2,\), on (cpu|fake:0); expected int64 or int32, the shape \(3,\)"),
    ({"weights": []}, "GRU: weights: found 0 for num_layers 1, 1 directions"),
    ({"weights": WEIGHTS[:3]}, r"GRU: weights: found 3 for num_layers 1, 1 directions; expected one of \(2, 4\)"),
    ({"num_layers": 10**9}, "GRU: weights: found 4 for num_layers 1000000000"),
    ({"num_layers": 0}, "GRU: num_layers: found 0; expected at least 1"),
    ({"mode": "lstm", "hidden_size": 0}, "LSTM: hidden_size: found 0; expected at least 1"),
    ({"weights": [WEIGHTS[0][0, 0], *WEIGHTS[1:]]}, r"GRU: weight_ih_l0: found the shape \(\); expected \(18, 7\)"),
])
def test_wrong_calls_are_refused(changes, message):
    """By PyTorch's compilers with the same error."""
    operator, given = arguments(**changes)
    given.pop("mode", None)
    for mode in (nullcontext(), FakeTensorMode(allow_non_fake_inputs=True)):
        with mode, pytest.raises(vkdml.InvalidArgumentError, match=message):
            operator(**given)


def test_the_same_weights_with_biases_and_without():
    weights, x = [parameter.detach() for parameter in nn.GRU(I, H).parameters()], torch.randn(T, B, I)
    for count in (2, 4, 2):
        module = nn.GRU(I, H, bias=count == 4).eval()
        for mine, given in zip(module.parameters(), weights):
            mine.data.copy_(given)
        with torch.no_grad():
            same(torch.ops.vkdml.gru(x, [], weights[:count], None, "GRU", I, H, 1, False, 0), module(x))
