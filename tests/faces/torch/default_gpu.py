"""A GPU that is not there (see vkdml_lab.fake_gpu) for tests, and a plugin of pytest that makes it PyTorch's default device:

    python -m pytest -p tests.faces.torch.default_gpu --tensors CUDA tests/faces/torch
"""

import gc
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, partialmethod
from uuid import UUID

import pytest
import torch
from torch import _C, _VF
from torch.nn.utils import rnn
from torch.utils._pytree import tree_map_only

from vkdml.engine.vulkan.gpu import open_device, select_device
from vkdml.faces.torch import cuda, transfers
from vkdml_lab import fake_gpu
from vkdml_lab.fake_gpu.driver import Driver

WAYS = {"host": None, "CUDA": cuda.CUDA, "HIP": cuda.HIP}

# Tests that do not run with a GPU as the default device, by the beginnings of their names, and why
_AUTOCAST = "tests autocast of the CPU; on_a_gpu.py tests a GPU's"
_ELEMENTS = "PyTorch counts no such write, and elements on a GPU are not compared"
_NUMPY = "the exporter or the test makes numpy arrays of tensors"
_DOUBLE = "the GPU that is not there lacks "
NO_GPU = {
    "test_operators::test_autocast": _AUTOCAST,
    "test_calls::test_calls_run_without_the_dispatcher[autocast": _AUTOCAST,
    "test_training::test_refused[autocast": _AUTOCAST,
    "test_writes::test_an_unchanged_call_compares_a_few_elements": _ELEMENTS,
    "test_modules::test_changed_parameters_are_seen[<lambda>1": _ELEMENTS,
    **{f"test_writes::test_a_write_is_seen[{name}": _ELEMENTS for name in ("through_data", "through_numpy", "through_the_storage", "in_shared_memory")},
    "test_onnx_export": _NUMPY,
    "test_operators::test_torch_compile_makes_one_graph[inductor": f"{_DOUBLE}a code generator",
    "test_calls::test_calls_run_without_the_dispatcher[a negated view": f"{_DOUBLE}negated views",
    "test_writes::test_a_write_is_seen[other_memory": f"{_DOUBLE}set_ of a tensor",
    "test_writes::test_a_parameter_can_be_resized": f"{_DOUBLE}storages of new sizes",
    "test_modules::test_what_is_refused[<lambda>-GRU: parameters: found torch.float8": f"{_DOUBLE}float8",
    "test_operators::test_torch_export": f"{_DOUBLE}an allocator of storages, into which exported programs are loaded",
    "test_modules::test_what_is_refused[<lambda>-convert: 0: found a scripted": "PyTorch scripts nothing with a default device",
    "test_devices": "runs this",
}
UNSEEN_WRITES = ("through_data", "through_numpy", "through_the_storage", "in_shared_memory", "other_memory")  # which others draw


def drop_memory():
    """Drop all of the device's memory, and what was imported of it."""
    open_device(select_device(None)).store.clear()
    gc.collect()
    fake_gpu.idle()


def forget():
    """Drop that, and the outcome of the check."""
    for kept in (transfers._exchange, transfers._why_never):
        kept.cache_clear()
    drop_memory()


@contextmanager
def the_gpu(way, monkeypatch):
    """The GPU, with the library that a way needs. HIP's UUID is another than Vulkan's: its PCI address matches."""
    fake_gpu.install()
    forget()
    api, info = WAYS[way], select_device(None)
    made = Driver(info.uuid if api is not cuda.HIP else str(UUID(int=0)), "0000:42:00.0", bool(api and api.takes_files))
    if api is cuda.HIP:
        monkeypatch.setattr(open_device(info), "info", replace(info, pci_address="0000:42:00.0"))
    monkeypatch.setattr(cuda, "load", lambda name: made)
    monkeypatch.setattr(transfers, "_PATTERN", 2**12)
    monkeypatch.setattr(transfers, "_LATE", 2**12)
    if api:
        monkeypatch.setitem(transfers.APIS, "fake", api._replace(dlpack=12))
    fake_gpu.copies.clear()
    yield made
    fake_gpu.idle()
    forget()


def on_cpu(function, *arguments):
    """Call a function with tensors on the CPU. Returns its results on the GPU."""
    to = partial(tree_map_only, torch.Tensor)
    with torch.device("cpu"):
        return to(lambda one: one.to("fake"), function(*to(torch.Tensor.cpu, arguments)))


def bytes_of(storage):
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, 0, (storage.nbytes(),), (1,))


def copied(name, function, storage, *arguments, **named):
    """A copy of a storage, to, from or on the GPU by tensors, as it has no allocator for storages."""
    target = "cpu" if name == "cpu" else named.get("device", (*arguments, storage.device)[0])
    if "fake" not in f"{storage.device} {target}":
        return function(storage, *arguments, **named)
    return bytes_of(storage).to(target, copy=True).untyped_storage()


def pytest_addoption(parser):
    parser.addoption("--tensors", choices=WAYS, default="host", help="how tensors get to the Vulkan device")


def pytest_configure(config):
    fake_gpu.install()
    fake_gpu.delay = 0
    torch.fake.get_rng_state = lambda _=None: torch.get_rng_state()
    torch.fake.set_rng_state = lambda state, _=None: torch.set_rng_state(state)
    torch.set_default_device("fake")  # before the tests' modules make tensors
    pack = rnn.pack_padded_sequence  # it takes lengths on the CPU only
    rnn.pack_padded_sequence = lambda input, lengths, *rest, **named: pack(input, torch.as_tensor(lengths).cpu(), *rest, **named)
    for name in ("clone", "to", "cpu"):
        setattr(torch.UntypedStorage, name, partialmethod(partial(copied, name, getattr(torch.UntypedStorage, name))))
    for name in ("gru", "lstm", "rnn_tanh", "rnn_relu"):  # PyTorch's own modules run on the CPU
        for function in (name, f"{name}_cell"):
            setattr(_VF, function, partial(on_cpu, getattr(_VF, function)))


def pytest_collection_modifyitems(config, items):
    if config.getoption("--tensors") != "host":
        NO_GPU["test_stacks::test_layers_chain_on_the_device"] = "counts what the host writes"
    for item in items:
        for write in UNSEEN_WRITES if item.path.stem == "test_writes" else ():
            item.module.WRITES.pop(write, None)
        name = f"{item.path.stem}::{item.name}"
        for beginning, reason in NO_GPU.items():
            if name.startswith(beginning):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def default_gpu(request):
    with pytest.MonkeyPatch.context() as monkeypatch, the_gpu(request.config.getoption("--tensors"), monkeypatch) as made:
        # The mode of a default device is no reason to go through PyTorch's dispatcher
        monkeypatch.setattr(_C, "_is_torch_function_mode_enabled", lambda: _C._len_torch_function_stack() > 1)
        yield made
    assert made.imports == 0
