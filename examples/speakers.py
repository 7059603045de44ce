"""Tells how many people speak when in each recording of a folder, with pyannote's speaker segmentation: a PyTorch model with
four bidirectional LSTMs, which run on the Vulkan device.

64 windows of 5 s go into one call. A recording's last window is shorter, and `lengths` says so: results are those of each
window alone.

    python examples/speakers.py [FOLDER]

Needs: vkdml and PyTorch 2.6 or newer; pip install --no-deps --ignore-requires-python whisperx==3.8.6 (BSD; it has
pyannote's weights: MIT); espeak-ng if no folder is given.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import speech
import torch
from installed import file_in_package
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, max_pool1d
from torch.nn.utils.rnn import pad_sequence

import vkdml.torch

MODEL = "whisperx", "3.8.6", "whisperx/assets/pytorch_model.bin"
BATCH = 64  # windows in a call
STEP, STEPS = 270, 293  # samples from one score to the next; scores of a window
WINDOW, LEAST = 80000, 1600  # samples of a window, and of the shortest one that counts


class Features(nn.Module):
    """SincNet: 60 features for each step of a window."""

    def __init__(self) -> None:
        super().__init__()
        self.wav_norm1d = nn.InstanceNorm1d(1, affine=True)
        self.conv1d = nn.ModuleList([nn.Conv1d(1, 80, 251, stride=10, bias=False), nn.Conv1d(80, 60, 5), nn.Conv1d(60, 60, 5)])
        self.norm1d = nn.ModuleList([nn.InstanceNorm1d(count, affine=True) for count in (80, 60, 60)])

    def forward(self, samples: Tensor) -> Tensor:
        x = self.wav_norm1d(samples)
        for index, (convolution, norm) in enumerate(zip(self.conv1d, self.norm1d)):
            x = convolution(x)
            x = leaky_relu(norm(max_pool1d(x if index else x.abs(), 3)))
        return x


class Segmentation(nn.Module):
    """The probability that each of three people speaks, from the features of some windows, [B, T, 60]."""

    def __init__(self) -> None:
        super().__init__()
        self.sincnet = Features()
        self.lstm = nn.LSTM(60, 128, num_layers=4, bidirectional=True, batch_first=True)
        self.linear = nn.ModuleList([nn.Linear(256, 128), nn.Linear(128, 128)])
        self.classifier = nn.Linear(128, 3)

    def forward(self, features: Tensor, **lengths: list[int]) -> Tensor:
        y, _ = self.lstm(features, **lengths)  # PyTorch's LSTM has no lengths; a converted one has
        for layer in self.linear:
            y = leaky_relu(layer(y))
        return self.classifier(y).sigmoid()


def sinc_filters(low: Tensor, band: Tensor) -> Tensor:
    """The first convolution's weights, [80, 1, 251]: band-passes, of cosines and of sines. low, band: in Hz, [40, 1]."""
    low = 50 + low.abs()
    high = (low + 50 + band.abs()).clamp(50, speech.RATE / 2)
    n = 2 * torch.pi * torch.arange(-125, 0.0) / speech.RATE
    window = torch.hamming_window(251, periodic=False)[:125]
    cosines = ((high * n).sin() - (low * n).sin()) / (n / 2) * window
    sines = ((low * n).cos() - (high * n).cos()) / (n / 2) * window
    width = 2 * (high - low)
    filters = torch.cat([torch.cat([cosines, width, cosines.flip(1)], 1), torch.cat([sines, 0 * width, -sines.flip(1)], 1)])
    return (filters / width.repeat(2, 1))[:, None]


class Unread:
    """Stands for the checkpoint's objects beside the weights, whose packages are not installed."""

    def __init__(self, *arguments: object) -> None:
        pass


def load() -> Segmentation:
    """The model with pyannote's weights."""
    path = file_in_package(*MODEL)
    unknown = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    with torch.serialization.safe_globals([*((Unread, name) for name in unknown), dict, int, list]):
        state = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
    low, band, *_ = (state.pop(f"sincnet.conv1d.0.filterbank.{name}") for name in ("low_hz_", "band_hz_", "window_", "n_"))
    model = Segmentation()
    model.load_state_dict({**state, "sincnet.conv1d.0.weight": sinc_filters(low, band)})
    return model.eval()


def together(model: Segmentation, features: list[Tensor]) -> list[Tensor]:
    """The scores of each window, [T, 3], by a converted model. features: of each window, [T, 60]."""
    found: list[Tensor] = []
    for start in range(0, len(features), BATCH):
        some = features[start:start + BATCH]
        lengths = [len(one) for one in some]
        scores = model(pad_sequence(some, batch_first=True), lengths=lengths)
        found += (row[:length] for row, length in zip(scores, lengths))
    return found


def stretches(counts: list[int]) -> list[tuple[float, float, int]]:
    """The start and end in seconds, and the number of people, of each stretch with any. counts: of people, at each step."""
    edges = [0, *(step for step in range(1, len(counts)) if counts[step] != counts[step - 1]), len(counts)]
    return [(start * STEP / speech.RATE, end * STEP / speech.RATE, counts[start])
            for start, end in pairwise(edges) if counts[start]]


@torch.inference_mode()
def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description="Counts who speaks in recordings, with LSTMs on a Vulkan device.")
    parser.add_argument("folder", nargs="?", type=Path, help="with 16-bit WAV files; by default espeak-ng speaks")
    recordings = speech.recordings(parser.parse_args(arguments).folder)
    model = load()
    fast = vkdml.torch.convert(model)
    windows = [(name, samples[start:start + WINDOW]) for name, samples in recordings.items()
               for start in range(0, len(samples) - LEAST + 1, STEP * STEPS)]
    features = [model.sincnet(torch.from_numpy(samples)[None, None])[0].T for _, samples in windows]
    fast.lstm.warm_up(T=STEPS, B=min(len(features), BATCH), packed=True)
    started = time.perf_counter()
    scores = together(fast, features)
    seconds = time.perf_counter() - started
    alone = [model(one[None])[0] for one in features]
    difference = max(float((ours - theirs).abs().max()) for ours, theirs in zip(scores, alone))
    counts: dict[str, list[int]] = {}
    for (name, _), rows in zip(windows, scores):
        counts.setdefault(name, []).extend((rows > 0.5).sum(1).tolist())
    found = {name: stretches(some) for name, some in counts.items()}
    for name, parts in found.items():
        shown = ", ".join(f"{count} from {start:.2f} to {end:.2f} s" for start, end, count in parts)
        print(f"{name}: {shown or 'no speech'}")
    print(f"the LSTMs of {len(features)} windows took {seconds:.2f} s; largest difference from PyTorch: {difference:.1e}")
    return {"stretches": found, "scores": scores, "difference": difference}


if __name__ == "__main__":
    main()
