"""Turns words into phonemes, with the trained GRU encoder-decoder of the PyPI package g2p_en 2.1.0.

    python examples/phonemes.py [WORD ...]

Needs: pip install --no-deps g2p_en==2.1.0 (Apache-2.0); only the checkpoint inside it is read.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from installed import file_in_package

from vkdml import GRU, Device, DriverError, reference

WORDS = ["vulkan", "compute", "shader", "recurrent", "kompute", "gigaflop", "phoneme", "a", "antidisestablishmentarianism"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
GRAPHEMES = ["<pad>", "<unk>", "</s>", *LETTERS]
PHONEMES = """<pad> <unk> <s> </s> AA0 AA1 AA2 AE0 AE1 AE2 AH0 AH1 AH2 AO0 AO1 AO2 AW0 AW1 AW2 AY0 AY1 AY2 B CH D DH
EH0 EH1 EH2 ER0 ER1 ER2 EY0 EY1 EY2 F G HH IH0 IH1 IH2 IY0 IY1 IY2 JH K L M N NG OW0 OW1 OW2 OY0 OY1 OY2 P R S SH T TH
UH0 UH1 UH2 UW UW0 UW1 UW2 V W Y Z ZH""".split()  # noqa: SIM905  (a list would take 74 lines)
START, STOP = PHONEMES.index("<s>"), PHONEMES.index("</s>")
MOST_PHONEMES = 20


def _word(text: str) -> str:
    word = text.lower()
    if not word or not set(word) <= set(LETTERS):
        raise argparse.ArgumentTypeError(f"{text!r} is not a word of the letters a to z")
    return word


class Layer:
    """One GRU of the checkpoint. PyTorch's gates r z n are reordered to ONNX's z r h. PyTorch applies the reset gate after the
    product, which is linear_before_reset.
    """

    def __init__(self, checkpoint: dict[str, np.ndarray], name: str, device: Device) -> None:
        def reorder(array: np.ndarray) -> np.ndarray:
            r, z, n = np.split(array, 3)
            return np.concatenate([z, r, n])

        self.embedding = checkpoint[f"{name}_emb"]
        biases = np.concatenate([reorder(checkpoint[f"{name}_b_ih"]), reorder(checkpoint[f"{name}_b_hh"])])
        self.weights = [reorder(checkpoint[f"{name}_w_ih"])[None], reorder(checkpoint[f"{name}_w_hh"])[None], biases[None]]
        self.gru = GRU(*self.weights, linear_before_reset=True, device=device)
        self.worst = 0.0  # largest difference from the reference

    def last_state(self, indices: np.ndarray, lengths: np.ndarray, h: np.ndarray, verify: bool) -> np.ndarray:
        """The state after each row's last step, [1, B, H].

        indices: rows of the embedding, [T, B]. lengths: [B]. h: the initial state, [1, B, H]. verify: compare with the
        reference.
        """
        x = self.embedding[indices]
        y_h = self.gru(x, initial_h=h, sequence_lens=lengths)[1]
        if verify:
            expected = reference.gru(x, *self.weights, initial_h=h, sequence_lens=lengths, linear_before_reset=True)[1]
            self.worst = max(self.worst, float(np.abs(y_h - expected).max()))
        return y_h


class Pronouncer:
    """The encoder reads the letters of all words in one batch; the decoder then gives one phoneme of each word at a time."""

    def __init__(self, device: Device) -> None:
        with np.load(file_in_package("g2p-en", "2.1.0", "g2p_en/checkpoint20.npz")) as file:
            checkpoint = dict(file)
        self.encoder, self.decoder = Layer(checkpoint, "enc", device), Layer(checkpoint, "dec", device)
        self.fc_w, self.fc_b = checkpoint["fc_w"], checkpoint["fc_b"]

    def __call__(self, words: list[str], verify: bool = False) -> list[list[str]]:
        """The phonemes of each word, all of LETTERS. verify: compare each GRU call with the float64 reference (see `worst`)."""
        letters = [[*map(GRAPHEMES.index, word), GRAPHEMES.index("</s>")] for word in words]
        lengths = np.array([len(row) for row in letters])
        indices = np.zeros((lengths.max(), len(words)), np.intp)
        for row, codes in enumerate(letters):
            indices[:len(codes), row] = codes
        zeros = np.zeros((1, len(words), self.encoder.weights[1].shape[2]), np.float32)
        h = self.encoder.last_state(indices, lengths, zeros, verify)

        said: list[list[str]] = [[] for _ in words]
        last = np.full(len(words), START)
        talking = np.ones(len(words), bool)
        for _ in range(MOST_PHONEMES):
            h = self.decoder.last_state(last[None], talking.astype(np.int64), h, verify)
            last = (h[0] @ self.fc_w.T + self.fc_b).argmax(1)
            talking &= last != STOP
            if not talking.any():
                break
            for row, phonemes in enumerate(said):
                if talking[row]:
                    phonemes.append(PHONEMES[last[row]])
        return said

    @property
    def worst(self) -> float:
        return max(self.encoder.worst, self.decoder.worst)


def say(words: list[str], device: Device) -> dict[str, Any]:
    """Pronounce words three times: to compile, to time and to verify. Returns the phonemes, times and the largest error."""
    pronounce = Pronouncer(device)
    seconds = []
    for verify in (False, False, True):
        started = time.perf_counter()
        phonemes = pronounce(words, verify)
        seconds.append(time.perf_counter() - started)
    return {"device": device.info.with_driver,
            "words": [{"word": word, "phonemes": said} for word, said in zip(words, phonemes)],
            "milliseconds_per_word": seconds[1] / len(words) * 1e3, "first_seconds": seconds[0],
            "largest_difference": pronounce.worst}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("words", nargs="*", type=_word, default=WORDS, metavar="WORD",
                        help="letters a to z, small or capital; by default, a few words")
    parser.add_argument("--device", help="see `vkdml devices`")
    given = parser.parse_args()
    try:
        device = Device(given.device)
    except DriverError as error:
        raise SystemExit(str(error)) from None
    report = say(given.words, device)
    print(f"device    {report['device']}")
    width = max(len(row["word"]) for row in report["words"])
    for row in report["words"]:
        print(f"{row['word']:<{width}}  {' '.join(row['phonemes'])}")
    print(f"time      {report['milliseconds_per_word']:.2f} ms a word, all words together; {report['first_seconds']:.2f} s "
          "the first time, with the compilation of the shaders")
    print(f"largest difference from the float64 reference: {report['largest_difference']:.1e}")


if __name__ == "__main__":
    main()
