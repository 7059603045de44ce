"""Trains two models on the Vulkan device, beside PyTorch's own modules on the CPU: an LSTM predicts each year's sunspots from
those before, and a bidirectional GRU finds where words begin in clauses without spaces, as a PackedSequence.

    python examples/training.py [--steps 20]

Needs: vkdml and PyTorch
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

import vkdml.torch

# The mean number of sunspots of each year from 1700 to 2008 (National Geophysical Data Center, public domain)
SUNSPOTS = """
5 11 16 23 36 58 29 20 10 8 3 0 0 2 11 27 47 63 60 39 28 26 22 11 21 40 78 122 103 73 47 35 11 5 16 34 70 81 111 101 73 40
20 16 5 11 22 40 60 80.9 83.4 47.7 47.8 30.7 12.2 9.6 10.2 32.4 47.6 54 62.9 85.9 61.2 45.1 36.4 20.9 11.4 37.8 69.8 106.1
100.8 81.6 66.5 34.8 30.6 7 19.8 92.5 154.4 125.9 84.8 68.1 38.5 22.8 10.2 24.1 82.9 132 130.9 118.1 89.9 66.6 60 46.9 41
21.3 16 6.4 4.1 6.8 14.5 34 45 43.1 47.5 42.2 28.1 10.1 8.1 2.5 0 1.4 5 12.2 13.9 35.4 45.8 41.1 30.1 23.9 15.6 6.6 4 1.8
8.5 16.6 36.3 49.6 64.2 67 70.9 47.8 27.5 8.5 13.2 56.9 121.5 138.3 103.2 85.7 64.6 36.7 24.2 10.7 15 40.1 61.5 98.5 124.7
96.3 66.6 64.5 54.1 39 20.6 6.7 4.3 22.7 54.8 93.8 95.8 77.2 59.1 44 47 30.5 16.3 7.3 37.6 74 139 111.2 101.6 66.2 44.7 17
11.3 12.4 3.4 6 32.3 54.3 59.7 63.7 63.5 52.2 25.4 13.1 6.8 6.3 7.1 35.6 73 85.1 78 64 41.8 26.2 26.7 12.1 9.5 2.7 5 24.4
42 63.5 53.8 62 48.5 43.9 18.6 5.7 3.6 1.4 9.6 47.4 57.1 103.9 80.6 63.6 37.6 26.1 14.2 5.8 16.7 44.3 63.9 69 77.8 64.9
35.7 21.2 11.1 5.7 8.7 36.1 79.7 114.4 109.6 88.8 67.8 47.5 30.6 16.3 9.6 33.2 92.6 151.6 136.3 134.7 83.9 69.4 31.5 13.9
4.4 38 141.7 190.2 184.8 159 112.3 53.9 37.6 27.9 10.2 15.1 47 93.8 105.9 105.5 104.5 66.6 68.9 38 34.5 15.5 12.6 27.5
92.5 155.4 154.6 140.4 115.9 66.6 45.9 17.9 13.4 29.4 100.2 157.6 142.6 145.7 94.3 54.6 29.9 17.5 8.6 21.5 64.3 93.3 119.6
111 104 63.7 40.4 29.8 15.2 7.5 2.9
"""
WINDOW = 40  # years of a row

# The first half of Lincoln's speech at Gettysburg
SPEECH = """
Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in Liberty, and dedicated to
the proposition that all men are created equal. Now we are engaged in a great civil war, testing whether that nation, or any
nation so conceived and so dedicated, can long endure. We are met on a great battle-field of that war. We have come to dedicate
a portion of that field, as a final resting place for those who here gave their lives that that nation might live. It is
altogether fitting and proper that we should do this.
"""


class Forecast(nn.Module):
    """An LSTM, and the next year's number from each year's state."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(1, 32)
        self.head = nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.layer(x)[0])


class Tagger(nn.Module):
    """A GRU in both directions, and from its states whether a word begins at each letter."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(26, 16)
        self.layer = nn.GRU(16, 32, bidirectional=True)
        self.head = nn.Linear(64, 1)

    def forward(self, letters: PackedSequence) -> Any:
        return self.head(self.layer(letters._replace(data=self.letters(letters.data)))[0].data)[:, 0]


def windows() -> Tensor:
    """All windows of the series, as [years, rows, 1], around 0."""
    numbers = np.array(SUNSPOTS.split(), np.float64)
    numbers = (numbers - numbers.mean()) / numbers.std()
    rows = np.lib.stride_tricks.sliding_window_view(numbers, WINDOW + 1)[::4]
    return torch.from_numpy(rows.T[..., None].astype(np.float32))


def clauses() -> tuple[PackedSequence, Tensor]:
    """The letters of each clause as numbers, and 1.0 for those that begin a word."""
    split = [re.findall("[a-z]+", clause) for clause in re.split("[,.]", SPEECH.lower()) if clause.strip()]
    letters = [torch.tensor([ord(letter) - ord("a") for letter in "".join(words)]) for words in split]
    begins = [torch.tensor([float(k == 0) for word in words for k in range(len(word))]) for words in split]
    return pack_sequence(letters, enforce_sorted=False), pack_sequence(begins, enforce_sorted=False).data


def train(model: nn.Module, loss_of: Callable[[nn.Module], Tensor], steps: int) -> tuple[list[float], float]:
    """PyTorch's usual loop. Returns the loss of each step, and the seconds of the fastest step."""
    optimizer, losses, fastest = torch.optim.Adam(model.parameters(), lr=0.01), [], float("inf")
    for _ in range(steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        fastest = min(fastest, time.perf_counter() - begin)
    return losses, fastest


def main(arguments: list[str] | None = None) -> dict[str, list[list[float]]]:
    """Returns the losses with PyTorch and with vkdml, by model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--steps", type=int, default=20, help="steps of the optimizer; by default 20")
    steps = parser.parse_args(arguments).steps
    data, (letters, begins), found = windows(), clauses(), {}
    tasks: dict[str, tuple[type[nn.Module], Callable[[nn.Module], Tensor]]] = {
        "sunspots": (Forecast, lambda model: nn.functional.mse_loss(model(data[:-1]), data[1:])),
        "words": (Tagger, lambda model: nn.functional.binary_cross_entropy_with_logits(model(letters), begins))}
    for name, (kind, loss_of) in tasks.items():
        torch.manual_seed(0)
        model = kind()
        models = [model, vkdml.torch.convert(model, training="device")]
        (of_pytorch, seconds), (of_vkdml, of_device) = (train(one.train(), loss_of, steps) for one in models)
        print(f"{name}: the fastest step took {1e3 * seconds:.1f} ms with PyTorch, {1e3 * of_device:.1f} with vkdml")
        for step in range(0, steps, max(1, steps // 10)):
            print(f"  step {step}: loss {of_pytorch[step]:.5f} with PyTorch, {of_vkdml[step]:.5f} with vkdml")
        found[name] = [of_pytorch, of_vkdml]
    return found


if __name__ == "__main__":
    main()
