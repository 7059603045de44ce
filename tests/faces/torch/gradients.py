"""Gradients of random modules on the device beside PyTorch's float64 autograd, from the same float32 parameters.

    python -m tests.faces.torch.gradients --count 1000 [--first SEED] [--options schedule=persistent lanes=False]

Ten seeds in turn share a module and kernels, as compiling takes most of the time. What differs are lengths, initial states, the
loss, and the way: parts that need no gradient, a graph that is kept, a sum over two calls, a scaled loss, a checkpoint, a copy.
"""

from __future__ import annotations

import argparse
import copy
import random
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

import vkdml.torch as vt
from vkdml import Options
from vkdml.engine import execution
from vkdml.engine.compiled import Compiled

WAYS = ["plain", "plain", "frozen", "kept graph", "two calls", "scaled", "checkpoint", "copy"]
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
        if self.settings.get("num_layers") == 2 and draw.random() < .4:
            self.settings["dropout"] = .3
        rows, is_ragged = draw.choice([(2, 3, 4), (5, 7, 8), (1,), (12, 17)]), draw.random() < .6 and "dropout" not in self.settings  # packed, it drops others
        draw = random.Random(seed)  # what differs between the ten
        self.t, self.b = draw.choice([2, 3, 5, 9]), draw.choice(rows)
        self.ragged = None if self.is_cell or not is_ragged else draw.choice(["packed", "lengths"])
        self.lengths = [draw.randrange(self.ragged != "lengths", self.t + 1) for _ in range(self.b)]
        if self.ragged == "packed":
            self.lengths[draw.randrange(self.b)] = self.t
        self.has_states = draw.random() < .5
        self.used, self.way = draw.choice(["y", "last", "both", "both"]), draw.choice(WAYS)
        self.module = self.kind(self.i, self.h, **self.settings)
        d, p = 1 + self.settings.get("bidirectional", False), self.settings.get("proj_size", 0) or self.h
        sizes = [p, self.h] if "LSTM" in self.kind.__name__ else [p]
        of_layers = [] if self.is_cell else [self.settings["num_layers"] * d]
        self.states = [torch.randn(*of_layers, self.b, size) for size in sizes]
        self.x = torch.randn(self.b, self.i) if self.is_cell else torch.randn(self.t, self.b, self.i)
        parts = ["x", *(f"hx[{k}]" for k in range(len(sizes))), *(name for name, _ in self.module.named_parameters())]
        self.frozen = draw.sample(parts, draw.randrange(1, len(parts))) if self.way == "frozen" else []
        self.outside = torch.randn(self.t, self.b, d * p)
        self.outside_last = [torch.randn_like(state) for state in self.states]

    def __str__(self) -> str:
        return f"{self.module}, T {self.t}, B {self.b}, {self.ragged or 'whole rows'}, states {self.has_states}, loss of {self.used}, "\
               f"{self.way} {', '.join(self.frozen)}"

    def outputs(self, module: nn.Module, x: Tensor, *hx: Any) -> tuple[Tensor | None, list[Tensor]]:
        """Run a module. Returns y [T, B, D * H], if it has one, and the last states."""
        batch_first = self.settings.get("batch_first", False)
        x, y = x.transpose(0, 1) if batch_first else x, None
        if self.is_cell:
            last = module(x, *hx)
        elif self.ragged == "packed":
            packed, last = module(pack_padded_sequence(x, self.lengths, batch_first, enforce_sorted=False), *hx)
            y = pad_packed_sequence(packed, batch_first, total_length=self.t)[0]
        else:
            y, last = module(x, *hx, **({"lengths": self.lengths} if self.ragged else {}))
        return y.transpose(0, 1) if y is not None and batch_first else y, list(last) if isinstance(last, tuple) else [last]

    def loss(self, *given: Any) -> Tensor:
        y, last = checkpoint(self.outputs, *given, use_reentrant=False) if self.way == "checkpoint" else self.outputs(*given)
        loss = torch.zeros((), dtype=last[0].dtype)
        if y is not None and self.used != "last":
            loss = loss + (y * self.outside).sum()
        if y is None or self.used != "y":
            loss = loss + sum((state * outside).sum() for state, outside in zip(last, self.outside_last))
        return loss

    def gradients(self, module: nn.Module, dtype: torch.dtype) -> dict[str, Tensor | None]:
        """Of the input, the states and the parameters."""
        torch.manual_seed(1)  # of dropout
        parts = {"x": self.x, **{f"hx[{k}]": state for k, state in enumerate(self.states)}}
        x, *states = ({name: tensor.to(dtype).requires_grad_(name not in self.frozen) for name, tensor in parts.items()}).values()
        hx = (tuple(states) if len(states) > 1 else states[0],) if self.has_states else ()
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(name not in self.frozen)
        loss = self.loss(module, x, *hx)
        if self.way == "scaled":
            loss = torch.amp.GradScaler("cpu", init_scale=1024.0).scale(loss)
        if loss.requires_grad:  # not if what is frozen is all that the loss depends on
            loss.backward(retain_graph=self.way == "kept graph")
        if self.way == "kept graph":
            loss.backward()
        if self.way == "copy":  # it computes with its own parameters, and has gradients of its own
            module = copy.deepcopy(module)
            module.zero_grad()
        if self.way in ("two calls", "copy"):
            self.loss(module, 2 * x, *hx).backward()
        return {"x": x.grad, **{f"hx[{k}]": state.grad for k, state in enumerate(states) if self.has_states},
                **{name: parameter.grad for name, parameter in module.named_parameters()}}


def error(seed: int) -> tuple[float, str]:
    """The largest relative error of a gradient, and what has it."""
    with torch.enable_grad():
        drawn = Drawn(seed)
        of_pytorch = vt.convert(drawn.module, training="torch").double()  # takes lengths, too
        expected = drawn.gradients(of_pytorch.train(), torch.float64)
        found = drawn.gradients(vt.convert(drawn.module, training="device").train(), torch.float32)
    scale = max((float(gradient.abs().max()) for gradient in expected.values() if gradient is not None), default=0.0)
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

    wrong, largest = 0, (0.0, "")
    with patch.object(execution, "Compiled", compiled):
        for seed in range(chosen.first, chosen.first + chosen.count):
            found, where = error(seed)
            largest = max(largest, (found, f"{where} (seed {seed})"))
            if not found < TOLERANCE:
                wrong += 1
                print(f"seed {seed}: {found:.1e}: {where}", flush=True)
    print(f"{chosen.count} modules, {wrong} wrong, largest relative error {largest[0]:.1e}, in {largest[1]}")
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
