"""Gradients of random modules on the device beside PyTorch's float64 autograd, from the same float32 parameters.

    python -m tests.faces.torch.gradients --count 1000 [--first SEED] [--options schedule=persistent lanes=False]

Ten seeds in turn share a module and kernels, as compiling takes most of the time.
"""

from __future__ import annotations

import argparse
import random
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import vkdml.torch as vt
from vkdml import Options
from vkdml.engine import execution
from vkdml.engine.compiled import Compiled

TOLERANCE = 2e-5  # relative to the largest gradient of a tensor; and one that has less than a thousandth of the others counts as that


class Drawn:
    """A random module, and a call of it."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed // 10)
        torch.manual_seed(seed)
        self.kind = draw.choice([nn.RNN, nn.GRU, nn.LSTM, nn.LSTM, nn.GRUCell, nn.LSTMCell, nn.RNNCell])
        self.h, self.i, self.is_cell = draw.choice([3, 16, 21]), draw.choice([1, 5, 8]), self.kind.__name__.endswith("Cell")
        self.settings: dict[str, Any] = {"bias": draw.random() < .8}
        if not self.is_cell:
            self.settings |= {"num_layers": draw.choice([1, 1, 2]), "bidirectional": draw.random() < .4, "batch_first": draw.random() < .5}
        if self.kind in (nn.RNN, nn.RNNCell):
            self.settings["nonlinearity"] = draw.choice(["tanh", "relu"])
        if self.kind is nn.LSTM and draw.random() < .3:
            self.settings["proj_size"] = 2
        rows, is_ragged = draw.choice([(2, 3, 4), (5, 7, 8), (1,), (12, 17)]), draw.random() < .6
        draw = random.Random(seed)  # what differs between the ten
        self.t, self.b = draw.choice([2, 3, 5, 9]), draw.choice(rows)
        self.ragged = None if self.is_cell or not is_ragged else draw.choice(["packed", "lengths"])
        self.lengths = [draw.randrange(1, self.t + 1) for _ in range(self.b)]
        if self.ragged == "packed":
            self.lengths[draw.randrange(self.b)] = self.t
        self.has_states = draw.random() < .5 and "proj_size" not in self.settings
        self.used = draw.choice(["y", "last", "both", "both"])
        self.module = self.kind(self.i, self.h, **self.settings)
        d, p = 1 + self.settings.get("bidirectional", False), self.settings.get("proj_size", 0) or self.h
        sizes = [p, self.h] if "LSTM" in self.kind.__name__ else [p]
        of_layers = [] if self.is_cell else [self.settings["num_layers"] * d]
        self.states = [torch.randn(*of_layers, self.b, size) for size in sizes]
        self.x = torch.randn(self.b, self.i) if self.is_cell else torch.randn(self.t, self.b, self.i)
        self.outside = torch.randn(self.t, self.b, d * p)
        self.outside_last = [torch.randn_like(state) for state in self.states]

    def __str__(self) -> str:
        return f"{self.module}, T {self.t}, B {self.b}, {self.ragged or 'whole rows'}, states {self.has_states}, loss of {self.used}"

    def gradients(self, module: nn.Module, dtype: torch.dtype) -> dict[str, Tensor | None]:
        """Of the input, the states and the parameters. PyTorch's own module takes lengths as a PackedSequence."""
        x = self.x.to(dtype).requires_grad_()
        states = [state.to(dtype).requires_grad_() for state in self.states]
        hx = (tuple(states) if len(states) > 1 else states[0],) if self.has_states else ()
        batch_first = self.settings.get("batch_first", False)
        given = x.transpose(0, 1) if batch_first else x
        y = None
        if self.is_cell:
            last = module(given, *hx)
        elif self.ragged and (self.ragged == "packed" or dtype is torch.float64):
            packed, last = module(pack_padded_sequence(given, self.lengths, batch_first, enforce_sorted=False), *hx)
            y = pad_packed_sequence(packed, batch_first, total_length=self.t)[0]
        else:
            y, last = module(given, *hx, **({"lengths": self.lengths} if self.ragged else {}))
        last = last if isinstance(last, tuple) else (last,)
        loss = torch.zeros((), dtype=dtype)
        if y is not None and self.used != "last":
            loss = loss + ((y.transpose(0, 1) if batch_first else y) * self.outside).sum()
        if y is None or self.used != "y":
            loss = loss + sum((state * outside).sum() for state, outside in zip(last, self.outside_last))
        module.zero_grad()
        loss.backward()
        return {"x": x.grad, **{f"hx[{k}]": state.grad for k, state in enumerate(states) if self.has_states},
                **{name: parameter.grad for name, parameter in module.named_parameters()}}


def error(seed: int) -> tuple[float, str]:
    """The largest relative error of a gradient, and what has it."""
    with torch.enable_grad():
        drawn = Drawn(seed)
        of_pytorch = type(drawn.module)(drawn.i, drawn.h, **drawn.settings).double()
        of_pytorch.load_state_dict(drawn.module.state_dict())
        expected = drawn.gradients(of_pytorch, torch.float64)
        found = drawn.gradients(vt.convert(drawn.module, training="device").train(), torch.float32)
    scale = max(float(gradient.abs().max()) for gradient in expected.values() if gradient is not None)
    worst = 0.0, str(drawn)
    for name, right in expected.items():
        gradient = found[name]
        if gradient is None or right is None:
            assert gradient is right, f"{drawn}: {name} is {gradient}, PyTorch's is {right}"
            continue
        of_this = float((gradient.double() - right).abs().max()) / max(float(right.abs().max()), 1e-3 * scale, 1e-30)
        worst = max(worst, (of_this, f"{name} of {drawn}"))
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=100, help="how many modules")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--options", nargs="*", default=[], metavar="NAME=VALUE", help="fields of vkdml.Options that all runs have")
    chosen = parser.parse_args()
    values: dict[str, Any] = {"True": True, "False": False}
    forced: dict[str, Any] = {name: values[value] if value in values else int(value) if value.isdigit() else value
                              for name, _, value in (one.partition("=") for one in chosen.options)}

    def compiled(gpu: Any, problem: Any, options: Any, *rest: Any) -> Compiled:
        return Compiled(gpu, problem, Options(**forced) if hasattr(problem, "cell") else options, *rest)

    wrong, largest = 0, 0.0
    with patch.object(execution, "Compiled", compiled):
        for seed in range(chosen.first, chosen.first + chosen.count):
            found, where = error(seed)
            largest = max(largest, found)
            if not found < TOLERANCE:
                wrong += 1
                print(f"seed {seed}: {found:.1e}: {where}", flush=True)
    print(f"{chosen.count} modules, {wrong} wrong, largest relative error {largest:.1e}")
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
