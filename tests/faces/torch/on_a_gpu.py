"""Tensors of a GPU, here of one that is not there: see vkdml_lab.fake_gpu. test_devices.py runs this file."""

import copy
import os
import threading
import time
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import vkdml
import vkdml.torch as vt
from tests.faces.torch.default_gpu import WAYS, drop_memory, forget, the_gpu
from tests.faces.torch.support import TOLERANCES, B, H, I, T, states
from vkdml.engine.vulkan.gpu import open_device, select_device
from vkdml.errors import DriverError, TorchArgumentError
from vkdml.faces.torch import transfers
from vkdml_lab import fake_gpu

pytestmark = pytest.mark.device

MODULES = {"GRU": lambda: nn.GRU(I, H), "LSTM": lambda: nn.LSTM(I, H), "RNN": lambda: nn.RNN(I, H, nonlinearity="relu"),
           "two layers": lambda: nn.GRU(I, H, 2, bidirectional=True), "batch first": lambda: nn.LSTM(I, H, 2, batch_first=True),
           "projected": lambda: nn.LSTM(I, H, proj_size=3, bidirectional=True), "GRUCell": lambda: nn.GRUCell(I, H),
           "LSTMCell": lambda: nn.LSTMCell(I, H), "RNNCell": lambda: nn.RNNCell(I, H)}


INFO = select_device(None)


@pytest.fixture(params=WAYS)
def way(request):
    """How tensors get to the Vulkan device."""
    return request.param


@pytest.fixture(autouse=True)
def driver(request, monkeypatch):
    """The GPU, with the library that the test's way needs."""
    with the_gpu(request.getfixturevalue("way") if "way" in request.fixturenames else "CUDA", monkeypatch) as made:
        yield made
    assert made.imports == 0


def moved(value, device="fake"):
    """A module, or nested tensors, on the device."""
    if isinstance(value, tuple) and not isinstance(value, PackedSequence):
        return tuple(moved(part, device) for part in value)
    return value.to(device)


def pair(module):
    """A module on the CPU, and its twin on the GPU."""
    return module.eval(), vt.convert(copy.deepcopy(module.eval()).to("fake"))


def check(found, expected, atol=1e-5):
    if isinstance(expected, torch.Tensor):
        assert (found.device.type, found.dtype, found.shape) == ("fake", expected.dtype, expected.shape)
        torch.testing.assert_close(found.cpu(), expected, atol=atol, rtol=atol)
    else:
        assert type(found) is type(expected)
        for one, other in zip(found[:2], expected[:2], strict=True):
            if one is not found[1] or not isinstance(found, PackedSequence):  # batch sizes stay on the CPU
                check(one, other, atol)


@pytest.mark.parametrize("with_states", [False, True])
@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
def test_a_module_on_a_gpu(make, with_states, way):
    module, twin = pair(make())
    x = torch.randn(B, I) if isinstance(module, nn.RNNCellBase) else torch.randn(T, B, I)
    before = states(module, T if getattr(module, "batch_first", False) else B) if with_states else None
    if before is not None and getattr(module, "proj_size", 0):
        before = before[0] * 0, before[1]  # the host computes what the projection makes such states of
    expected = module(x, before)
    for _ in range(2):
        check(twin(moved(x), None if before is None else moved(before)), expected)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_types(dtype, way):
    module, x, lengths = nn.GRU(I, H, dtype=dtype), torch.randn(T, B, I, dtype=dtype), [T, 2, 1]
    twin = pair(module)[1]
    check(twin(moved(x), lengths=lengths), vt.convert(module)(x, lengths=lengths), TOLERANCES[dtype])


@pytest.mark.parametrize("given", [list, torch.tensor, lambda lengths: torch.tensor(lengths).to("fake")])
def test_rows_of_several_lengths(given, way):
    module, twin = pair(nn.LSTM(I, H, 2, bidirectional=True))
    x, lengths = torch.randn(B, 2 * T, I).transpose(0, 1)[::2], [2, T, 1]
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    check(twin(pack_padded_sequence(moved(x), lengths, enforce_sorted=False)), module(packed))
    check(twin(moved(x), lengths=given(lengths)), vt.convert(module)(x, lengths=lengths))
    with pytest.raises(TorchArgumentError, match="lengths: found 9 for row 1; expected 0 to 5"):
        twin(moved(x), lengths=given([2, 9, 1]))


def test_an_input_that_is_late_and_then_overwritten(monkeypatch, way):
    """A stream does its work in order: what is put there before the call counts, what is put there after it does not."""
    module, twin = pair(nn.GRU(I, H))
    x, source, nan = torch.zeros(T, B, I).to("fake"), torch.randn(T, B, I), torch.full((T, B, I), torch.nan).to("fake")
    late = moved(source)
    twin(x)
    monkeypatch.setattr(fake_gpu, "delay", 0.02)
    for stream in (fake_gpu.current(), fake_gpu.Stream()):
        with fake_gpu.stream(stream):
            x.copy_(late)
            found = twin(x)
            x.copy_(nan)
            check(found, module(source))
            del found
            assert x.cpu().isnan().all()


@pytest.mark.parametrize("way", ["host", "CUDA"], indirect=True)
def test_a_call_moves_its_input_and_results_alone(way):
    """Weights stay where they are until they change."""
    module, twin = pair(nn.LSTM(I, H, 2))
    x = torch.randn(T, B, I)
    on_gpu, before = moved(x), moved(states(module))
    twin(on_gpu)
    for _ in range(2):
        fake_gpu.copies.clear()
        twin(on_gpu, before)
        moved_by_host = 0 if way == "CUDA" else 1 + 2 * 2
        assert (fake_gpu.copies["to host"], fake_gpu.copies["from host"]) == (moved_by_host,) * 2
    for change in (lambda one: one.weight_hh_l1.mul_(2), lambda one: one.load_state_dict({name: value * 1.5 for name, value in one.state_dict().items()})):
        for one in (module, twin):
            change(one)
        check(twin(on_gpu), module(x))
    for one in (module, twin):
        one.bias_ih_l0.data.mul_(-1)  # PyTorch does not count it
    vt.refresh(twin)
    check(twin(on_gpu), module(x))
    twin.to("cpu")
    torch.testing.assert_close(twin(x), module(x), atol=1e-5, rtol=1e-5)
    with pytest.raises(TorchArgumentError, match="input: found a tensor on fake:0; expected one on cpu"):
        twin(on_gpu)
    check(twin.to("fake")(on_gpu), module(x))


@pytest.mark.parametrize(("arguments", "message"), [
    ((torch.zeros(T, B, I),), "GRU: input: found a tensor on cpu; expected one on fake:0"),
    (lambda x: (x, torch.zeros(1, B, H)), r"GRU: hx\[0\]: found a tensor on cpu; expected one on fake:0"),
    (lambda x: (x.to("fake:1"),), "GRU: input: found a tensor on fake:1; expected one on fake:0"),
    (lambda x: (x, None, torch.tensor([1, 2, 3]).to("fake:1")), r"lengths: found .* on fake:1; expected .* on fake:0")])
def test_tensors_of_two_devices_are_refused(arguments, message):
    twin, x = pair(nn.GRU(I, H))[1], moved(torch.zeros(T, B, I))
    for _ in range(2):
        with pytest.raises(TorchArgumentError, match=message):
            twin(*(arguments(x) if callable(arguments) else arguments))
        twin(x)
    twin.weight_hh_l0 = nn.Parameter(twin.weight_hh_l0.cpu())
    with pytest.raises(TorchArgumentError, match="weight_hh_l0: found a tensor on cpu; expected one on fake:0"):
        twin(x)


@pytest.mark.parametrize("make", [MODULES["GRU"], MODULES["LSTM"], MODULES["LSTMCell"]])
def test_autocast(make):
    """Casts all, and returns autocast's type."""
    module, twin = pair(make())
    x = torch.randn(B, I) if isinstance(module, nn.RNNCellBase) else torch.randn(T, B, I)
    with torch.autocast("fake", torch.bfloat16):
        found = twin(moved(x))
    check(found, vt.convert(module.bfloat16())(x.bfloat16()))


def test_training():
    """By PyTorch, where the tensors are."""
    on_cpu = vt.convert(nn.RNN(I, H), training="torch").train()
    on_gpu, x = copy.deepcopy(on_cpu).to("fake"), torch.randn(T, B, I)
    with torch.enable_grad():
        for lengths in (None, [T, 0, 2], torch.tensor([T, 0, 2]).to("fake")):
            on_cpu(x, lengths=lengths if lengths is None else torch.tensor([T, 0, 2]))[0].sum().backward()
            on_gpu(moved(x), lengths=lengths)[0].sum().backward()
            for one, other in zip(on_gpu.parameters(), on_cpu.parameters(), strict=True):
                torch.testing.assert_close(one.grad.cpu(), other.grad)
                one.grad = other.grad = None


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_training_on_the_device(kind, way):
    """Results and gradients are where the tensors are, and a step of the optimizer is seen."""
    module = kind(I, H, 2, bidirectional=True)
    twin, x = vt.convert(copy.deepcopy(module).to("fake"), training="device"), torch.randn(T, B, I)
    with torch.enable_grad():
        for lengths in (None, [T, 1, 3]):
            results = []
            for one, to in ((module, "cpu"), (twin, "fake")):
                given = x.to(to, copy=True).requires_grad_()
                y, last = one(given if lengths is None or one is twin else pack_padded_sequence(given, lengths, enforce_sorted=False),
                              *[None, lengths][:2 * bool(lengths and one is twin)])
                y = pad_packed_sequence(y)[0] if isinstance(y, PackedSequence) else y
                (y.pow(2).sum() + (last[1] if kind is nn.LSTM else last).sum()).backward()
                assert y.device.type == to
                results.append((y, given.grad, *(parameter.grad for parameter in one.parameters())))
                torch.optim.SGD(one.parameters(), 0.05).step()
                one.zero_grad()
            for found, expected in zip(results[1], results[0], strict=True):
                check(found, expected, 1e-4)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_a_step_of_a_fused_optimizer_is_seen(kind):
    """PyTorch does not count its writes."""
    module, twin = pair(nn.GRU(I, H))
    x = torch.randn(T, B, I)
    twin(moved(x))
    for one in (module, twin):
        for parameter in one.parameters():
            parameter.grad = torch.ones_like(parameter)
        kind(one.parameters(), 0.1, fused=True).step()
    check(twin(moved(x)), module(x))


def test_two_threads(way):
    """Each with a stream of its own, and with the same twin."""
    module, twin = pair(nn.GRU(I, H))
    inputs, found = torch.randn(2, 20, T, B, I), [[], []]

    def work(number):
        with torch.no_grad(), fake_gpu.stream(fake_gpu.Stream()):
            for x in inputs[number]:
                found[number].append(twin(moved(x))[0].cpu())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    for number in range(2):
        for x, y in zip(inputs[number], found[number], strict=True):
            torch.testing.assert_close(y, module(x)[0], atol=1e-5, rtol=1e-5)


def test_results_on_another_stream(monkeypatch, way):
    module, twin = pair(nn.GRU(I, H))
    x, other = torch.randn(T, B, I), fake_gpu.Stream()
    on_gpu = moved(x)
    twin(on_gpu)
    monkeypatch.setattr(fake_gpu, "delay", 0.02)
    y, _ = twin(on_gpu)
    other.wait_stream(fake_gpu.current())
    with fake_gpu.stream(other):
        used = y.clone()
        torch.testing.assert_close(used.cpu(), module(x)[0], atol=1e-5, rtol=1e-5)


def test_a_hundred_calls_keep_memory_and_files(way):
    twin, x = pair(nn.LSTM(I, H))[1], moved(torch.randn(T, B, I))
    found = set()
    for _ in range(100):
        twin(x)
        fake_gpu.idle()
        found.add((files(), len(fake_gpu._memories), open_device(INFO).memory.used))
    assert len(found) == 1


@pytest.fixture
def pins(monkeypatch):
    """Let the device pin memory. Copies to and from it go on without the host."""
    empty, made = torch.empty, []

    def pinned(tensor):
        made.append(tensor)
        fake_gpu.pinned.add(tensor.untyped_storage().data_ptr())
        return tensor

    monkeypatch.setattr(transfers, "_PINS", ("fake",))
    monkeypatch.setattr(torch, "empty", lambda *size, pin_memory=False, **options: pinned(empty(*size, **options)) if pin_memory else empty(*size, **options))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned(tensor.clone()))
    yield made
    fake_gpu.idle()
    fake_gpu.pinned.clear()


@pytest.mark.parametrize("way", ["host"], indirect=True)
def test_pinned_memory(pins, monkeypatch, way):
    """The device reads and writes it late: the host waits for all inputs, and nothing overwrites results before they are copied."""
    module, twin = pair(nn.LSTM(I, H, 2))
    x, before = torch.randn(T, B, I), states(module)
    twin(moved(x), moved(before))
    pins.clear()
    monkeypatch.setattr(fake_gpu, "delay", 0.02)
    found = [twin(moved(x * scale), moved(before)) for scale in (1, -1)]
    assert len(pins) == 2 * (1 + 2 * 2 + 1 + 2 * 2)
    for one, scale in zip(found, (1, -1)):
        check(one, module(x * scale, before))


def test_a_capture_is_refused(monkeypatch):
    twin = pair(nn.GRU(I, H))[1]
    monkeypatch.setattr(torch.fake, "is_current_stream_capturing", lambda: True, raising=False)
    with pytest.raises(TorchArgumentError, match="GRU: call: found a call while a CUDA graph is captured; expected one outside"):
        twin(moved(torch.zeros(T, B, I)))


@pytest.mark.parametrize("strict", [False, True])
def test_graphs(strict):
    module, twin = pair(nn.GRU(I, H))
    x = torch.randn(T, B, I)
    program = torch.export.export(twin, (moved(x),), dynamic_shapes=({0: torch.export.Dim("T", min=2)},), strict=strict)
    check(program.module()(moved(x[:2])), module(x[:2]))


def test_compiled():
    module, twin = pair(nn.GRU(I, H))
    x = torch.randn(T, B, I)
    check(torch.compile(twin, backend="eager")(moved(x)), module(x))


def two_streams(module, twin, monkeypatch, late):
    """A call on one stream whose results are copied late, and at once one on a fast stream. Are both results right?"""
    first, second = torch.randn(T, B, I), torch.randn(T, B, I)
    a, b, other = moved(first), moved(second), fake_gpu.Stream()
    monkeypatch.setattr(fake_gpu, "delay", late)
    found = [twin(a)]
    time.sleep(late / 5)  # until the stream is about to copy results
    monkeypatch.setattr(fake_gpu, "delay", 0)
    with fake_gpu.stream(other):
        found.append(twin(b))
        other.synchronize()
    fake_gpu.idle()
    return [torch.allclose(one[0].cpu(), module(x)[0], atol=1e-5) for one, x in zip(found, (first, second))]


@pytest.mark.parametrize("way", ["CUDA", "HIP"], indirect=True)
def test_two_streams(monkeypatch, way):
    module, twin = pair(nn.GRU(I, H))
    twin(moved(torch.zeros(T, B, I)))
    assert two_streams(module, twin, monkeypatch, 0.05) == [True, True]


def test_a_missing_event_is_seen(monkeypatch):
    """The streams are late enough: where the second call does not wait for the first one's results, these are wrong."""
    module, twin = pair(nn.GRU(I, H))
    twin(moved(torch.zeros(T, B, I)))
    monkeypatch.setattr(fake_gpu.Stream, "wait_event", lambda self, event: None)
    assert two_streams(module, twin, monkeypatch, 1.5) != [True, True]


def test_a_missing_wait_is_seen_by_the_check(monkeypatch):
    """It finds wrong numbers where the host does not wait for the stream, and calls go through the host."""
    monkeypatch.setattr(fake_gpu, "delay", 0.02)
    twin = pair(nn.GRU(I, H))[1]
    with monkeypatch.context() as mistake:
        mistake.setattr(fake_gpu.Stream, "synchronize", lambda self: time.sleep(0))
        reason = transfers._why_never(open_device(INFO), torch.device("fake:0"))
    assert reason == "the check of shared memory found wrong numbers"
    assert repr(twin).endswith(f"tensors through the host: {reason})")


def test_why_tensors_pass_through_the_host(monkeypatch, driver):
    gpu, twin = open_device(INFO), pair(nn.GRU(I, H))[1]
    assert repr(twin).endswith("tensors through shared memory)")
    for change, reason in ((lambda: monkeypatch.setattr(gpu, "info", replace(INFO, shares_memory=False)), "exports no memory"),
                           (lambda: monkeypatch.setattr(driver, "_uuid", bytes(16)), r"fake:0 is another GPU (00000000-"),
                           (lambda: monkeypatch.delitem(transfers.APIS, "fake"), "imports no memory for PyTorch's fake devices")):
        forget()
        with monkeypatch.context():
            change()
            assert reason in repr(twin)
        monkeypatch.setattr(gpu, "info", INFO)
    verified = vt.convert(nn.GRU(I, H).eval().to("fake"), vkdml.Device(verify=1))
    assert "the host" in repr(verified)
    verified(moved(torch.randn(T, B, I)))


def files():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("way", ["CUDA", "HIP"], indirect=True)
def test_memory_is_given_back(way, driver):
    twin, x = pair(nn.LSTM(I, H))[1], moved(torch.randn(T, B, I))
    found = set()
    for _ in range(4):
        twin(x)
        assert driver.imports >= 4
        drop_memory()
        assert driver.imports == 0
        found.add((files(), len(fake_gpu._memories), open_device(INFO).memory.used))
    assert len(found) == 1


@pytest.mark.parametrize("function", ["ImportExternalMemory", "ExternalMemoryGetMappedBuffer"])
@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("way", ["CUDA", "HIP"], indirect=True)
def test_an_import_that_fails(way, driver, function, number):
    """The error names the function. Nothing is lost, and the next call is right."""
    module, twin = pair(nn.LSTM(I, H))
    x = torch.randn(T, B, I)
    on_gpu = moved(x)
    repr(twin)  # checks
    found = set()
    for _ in range(2):
        drop_memory()
        found.add((driver.imports, files(), len(fake_gpu._memories), open_device(INFO).memory.used))
        driver.failing = function, driver.calls[function] + number
        with pytest.raises(DriverError, match=f"{function} failed: error 999 of {way}"):
            twin(on_gpu)
    drop_memory()
    assert found == {(driver.imports, files(), len(fake_gpu._memories), open_device(INFO).memory.used)}
    check(twin(on_gpu), module(x))


def test_a_thread_without_a_context(driver, monkeypatch):
    module, twin = pair(nn.GRU(I, H))
    x = torch.randn(T, B, I)
    monkeypatch.setattr(fake_gpu.Stream, "query", lambda self: setattr(driver, "has_context", True))
    driver.has_context = False
    check(twin(moved(x)), module(x))
    driver.has_context = False
    forget()
