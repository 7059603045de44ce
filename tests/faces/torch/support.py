"""What the tests of PyTorch's twins share: their comparison with PyTorch."""

from itertools import combinations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

import vkdml.torch as vt

T, B, I, H = 5, 3, 7, 6

SEQUENCES = {"GRU": nn.GRU, "LSTM": nn.LSTM, "RNN": nn.RNN}
CELLS = {"GRUCell": nn.GRUCell, "LSTMCell": nn.LSTMCell, "RNNCell": nn.RNNCell}

TOLERANCES = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float64: 1e-12}


def spread(settings):
    """The settings, ordered so that each adds as many new pairs of values as possible."""
    left, seen, ordered = [(one, {*combinations(enumerate(map(str, one)), 2)}) for one in settings], set(), []
    while left:
        ordered.append(max(left, key=lambda row: len(row[1] - seen)))
        left.remove(ordered[-1])
        seen |= ordered[-1][1]
    return [one for one, _ in ordered]


def flat(result):
    """The tensors of nested tuples, and the data of PackedSequences."""
    return [result] if isinstance(result, torch.Tensor) else [result.data] if isinstance(result, PackedSequence) else [] if result is None else [t for part in result for t in flat(part)]


def of_pytorch(module, *arguments):
    """The results of PyTorch's own module. Skips the test where PyTorch cannot run it."""
    try:
        return module(*arguments)
    except RuntimeError as error:
        if "could not create a primitive" not in str(error):
            raise
        pytest.skip("PyTorch's own bfloat16 LSTM needs a processor with AVX-512, and its float16 LSTM one with AVX-512 FP16")


def check(module, *arguments, atol=1e-5):
    """Converted and not, on the same arguments. The twin."""
    twin = vt.convert(module.eval())
    results, expected = flat(twin(*arguments)), flat(module(*arguments))
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected):
        torch.testing.assert_close(result, wanted, atol=atol, rtol=atol)
    return twin


def states(module, batch=B, dtype=torch.float32):
    """Initial states as the module takes them."""
    is_lstm = isinstance(module, nn.LSTM | nn.LSTMCell)
    layers = [] if isinstance(module, nn.RNNCellBase) else [module.num_layers * (1 + module.bidirectional)]
    sizes = [getattr(module, "proj_size", 0) or module.hidden_size] + [module.hidden_size] * is_lstm
    made = tuple(torch.randn(*layers, batch, size, dtype=dtype) for size in sizes)
    return made if is_lstm else made[0]
