"""One table: a row for each recurrent cell. Its step is in shaders/cells/."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """A row. Sizes in `tensors` are products of T, B, I, H, D and numbers, written with `*`.

    gates: in the order of W, R and B. activations: how many one direction takes. kernel: the part of the file name.
    inputs, outputs: tensor fields in DirectML's binding order, with their sizes; `optional` names those that may be left
    out. arguments: their ONNX names, in ONNX's order.
    """

    name: str
    kernel: str
    gates: str
    activations: int
    inputs: dict[str, tuple[str, str, str, str]]
    outputs: dict[str, tuple[str, str, str, str]]
    optional: frozenset[str]
    arguments: dict[str, str]
    default_activations: tuple[str, ...]

    def phases(self, linear_before_reset: bool) -> int:
        """Times that a step goes over all units: the second needs what the first made of all of them."""
        return 1 if linear_before_reset else 2

    def state_slots(self, linear_before_reset: bool) -> int:
        """Vectors of H floats that a row keeps on the device: h of even and odd steps, and the cell's own."""
        return 2 if linear_before_reset else 4

    def split_bias(self, linear_before_reset: bool) -> int:
        """Bit mask of the gates whose recurrent bias is not added to the input's (it is inside r * (...))."""
        return 0b100 if linear_before_reset else 0


GRU = Cell(
    name="GRU",
    kernel="gru",
    gates="zrh",
    activations=2,
    inputs={
        "InputTensor": ("1", "T", "B", "I"),
        "WeightTensor": ("1", "D", "3*H", "I"),
        "RecurrenceTensor": ("1", "D", "3*H", "H"),
        "BiasTensor": ("1", "1", "D", "6*H"),
        "HiddenInitTensor": ("1", "D", "B", "H"),
        "SequenceLengthsTensor": ("1", "1", "1", "B"),
    },
    outputs={
        "OutputSequenceTensor": ("T", "D", "B", "H"),
        "OutputSingleTensor": ("1", "D", "B", "H"),
    },
    optional=frozenset({"BiasTensor", "HiddenInitTensor", "SequenceLengthsTensor",
                        "OutputSequenceTensor", "OutputSingleTensor"}),
    arguments={"InputTensor": "X", "WeightTensor": "W", "RecurrenceTensor": "R", "BiasTensor": "B",
               "SequenceLengthsTensor": "sequence_lens", "HiddenInitTensor": "initial_h",
               "OutputSequenceTensor": "Y", "OutputSingleTensor": "Y_h"},
    default_activations=("Sigmoid", "Tanh"),
)
