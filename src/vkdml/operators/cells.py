"""The recurrent cells: one table, a row for each. Their equations are in shaders/cells/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from .header.descs import DML_GRU_OPERATOR_DESC, DML_LSTM_OPERATOR_DESC, DML_RNN_OPERATOR_DESC

Sizes = tuple[str, str, str, str]


@dataclass(frozen=True)
class Loop:
    """How the shaders compute a time step of a cell.

    phases: passes over all units in a step. The second pass needs the results of the first for all units, not only its own.
    slots: vectors of H floats that each row of the batch keeps on the device. With one phase: h of the even steps, h of the
        odd steps, and the LSTM's c. With two: h, r * h and z.
    products: sums of products with R that each unit has.
    split_bias: bit mask of the gates whose recurrent bias is not added to the input bias, because the reset gate
        multiplies it.
    """

    phases: int
    slots: int
    products: int
    split_bias: int = 0


@dataclass(frozen=True)
class Cell:
    """A recurrent cell: a row of the table. Sizes are products of T, B, I, H, D and numbers, such as "3*H".

    gates: a letter for each, in the order of W, R and B.
    inputs, outputs: the sizes of each tensor field, in DirectML's binding order.
    arguments: the ONNX name of each tensor field, in ONNX's order.
    default_activations: ONNX's names of the activations that one direction has by default.
    loops: how a step runs with linear_before_reset 0, then with 1; one entry for cells that do not have it.
    flags: DirectML's boolean fields, and the ONNX attribute that sets each.
    peepholes: the number of gates with peephole weights.
    """

    name: str
    desc: Any
    gates: str
    inputs: Mapping[str, Sizes]
    outputs: Mapping[str, Sizes]
    arguments: Mapping[str, str]
    default_activations: tuple[str, ...]
    loops: tuple[Loop, ...]
    flags: Mapping[str, str] = field(default_factory=dict)
    peepholes: int = 0
    required: ClassVar = ("InputTensor", "WeightTensor", "RecurrenceTensor")

    def __reduce__(self) -> str:
        """Pickle only the row's name, so that each cell exists once."""
        return self.name

    @property
    def activations(self) -> int:
        """How many activations one direction takes."""
        return len(self.default_activations)

    @property
    def kernel(self) -> str:
        return self.name.lower()

    @property
    def tensors(self) -> dict[str, Sizes]:
        return {**self.inputs, **self.outputs}

    def sizes(self, x: Sequence[int], w: Sequence[int], r: Sequence[int], directions: int) -> dict[str, int]:
        """Find T, B, I, H and D, given the sizes of X [T, B, I], W [D, gates*H, I] and R [D, gates*H, H].

        If the tensors contradict each other, a letter comes from one that fits the others, so that later checks blame the wrong
        one: H from R, or from W if R contradicts itself; I from W if its other sizes are right.
        """
        gates = len(self.gates)
        h = w[1] // gates if r[1] != gates * r[2] and w[1] % gates == 0 else r[2]
        i = w[2] if (w[0], w[1]) == (directions, gates * h) else x[2]
        return {"T": x[0], "B": x[1], "I": i, "H": h, "D": directions}


_STATE: Sizes = ("1", "D", "B", "H")


def _inputs(gates: int) -> dict[str, Sizes]:
    return {
        "InputTensor": ("1", "T", "B", "I"),
        "WeightTensor": ("1", "D", f"{gates}*H", "I"),
        "RecurrenceTensor": ("1", "D", f"{gates}*H", "H"),
        "BiasTensor": ("1", "1", "D", f"{2 * gates}*H"),
        "HiddenInitTensor": _STATE,
    }


_LENGTHS: dict[str, Sizes] = {"SequenceLengthsTensor": ("1", "1", "1", "B")}
_OUTPUTS: dict[str, Sizes] = {"OutputSequenceTensor": ("T", "D", "B", "H"), "OutputSingleTensor": _STATE}
_ARGUMENTS = {"InputTensor": "X", "WeightTensor": "W", "RecurrenceTensor": "R", "BiasTensor": "B",
              "SequenceLengthsTensor": "sequence_lens", "HiddenInitTensor": "initial_h",
              "OutputSequenceTensor": "Y", "OutputSingleTensor": "Y_h"}

GRU = Cell(
    name="GRU",
    desc=DML_GRU_OPERATOR_DESC,
    gates="zrh",
    inputs=_inputs(3) | _LENGTHS,
    outputs=_OUTPUTS,
    arguments=_ARGUMENTS,
    default_activations=("Sigmoid", "Tanh"),
    loops=(Loop(phases=2, slots=3, products=3), Loop(phases=1, slots=2, products=3, split_bias=0b100)),
    flags={"LinearBeforeReset": "linear_before_reset"},
)

LSTM = Cell(
    name="LSTM",
    desc=DML_LSTM_OPERATOR_DESC,
    gates="iofc",
    inputs=_inputs(4) | {"CellMemInitTensor": _STATE} | _LENGTHS | {"PeepholeTensor": ("1", "1", "D", "3*H")},
    outputs=_OUTPUTS | {"OutputCellSingleTensor": _STATE},
    arguments=_ARGUMENTS | {"CellMemInitTensor": "initial_c", "PeepholeTensor": "P", "OutputCellSingleTensor": "Y_c"},
    default_activations=("Sigmoid", "Tanh", "Tanh"),
    loops=(Loop(phases=1, slots=3, products=4),),
    flags={"CoupleInputForget": "input_forget"},
    peepholes=3,
)

RNN = Cell(
    name="RNN",
    desc=DML_RNN_OPERATOR_DESC,
    gates="i",
    inputs=_inputs(1) | _LENGTHS,
    outputs=_OUTPUTS,
    arguments=_ARGUMENTS,
    default_activations=("Tanh",),
    loops=(Loop(phases=1, slots=2, products=1),),
)

BY_DESC = {cell.desc: cell for cell in (GRU, LSTM, RNN)}

# Output with a last state -> the input that takes it as initial state when the sequence goes on
STATES = {"OutputSingleTensor": "HiddenInitTensor", "OutputCellSingleTensor": "CellMemInitTensor"}
