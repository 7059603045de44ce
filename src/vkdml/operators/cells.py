"""The recurrent cells and their gradients: one table, a row for each. Their equations are in shaders/cells/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from . import element_types
from .element_types import ElementType
from .header.descs import DML_GRU_OPERATOR_DESC, DML_LSTM_OPERATOR_DESC, DML_RNN_OPERATOR_DESC

Sizes = tuple[str, str, str, str]


@dataclass(frozen=True)
class Loop:
    """How the shaders compute a time step of a cell.

    phases: passes over all units in a step. The second pass needs the results of the first for all units, not only its own.
    slots: vectors that each row of the batch keeps on the device. With one phase: h of the even steps, h of the odd steps, and
        the LSTM's c. With two: h, r * h and z.
    products: sums of products with R that each unit has.
    split_bias: bit mask of the gates whose recurrent bias is not added to the input bias, because the reset gate
        multiplies it.
    sources: numbers that each unit has in the vector that R multiplies.
    words: numbers of each unit that a step stores in the output sequence: the sources first.
    """

    phases: int
    slots: int
    products: int
    split_bias: int = 0
    sources: int = 1
    words: int = 1


@dataclass(frozen=True)
class Cell:
    """A recurrent cell: a row of the table. Sizes are products of T, B, I, H, D and numbers, such as "3*H".

    desc: DirectML's structure; None if DirectML has no such operator.
    gates: a letter for each, in the order of W, R and B.
    inputs, outputs: the sizes of each tensor field, in DirectML's binding order.
    arguments: the ONNX name of each tensor field, in ONNX's order.
    default_activations: ONNX's names of the activations that one direction has by default.
    loops: how a step runs with linear_before_reset 0, then with 1; one entry for cells that do not have it.
    flags: DirectML's boolean fields, and the ONNX attribute that sets each.
    peepholes: the number of gates with peephole weights.
    elements: the types in which it can be computed.
    required: the inputs that are always given, of which the first three are X, W and R.
    has_resident: whether a kernel keeps its weights in private memory.
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
    elements: tuple[ElementType, ...] = element_types.ALL
    required: tuple[str, ...] = ("InputTensor", "WeightTensor", "RecurrenceTensor")
    has_resident: bool = True

    def __reduce__(self) -> str:
        """Pickle only the row's name, so that each cell exists once."""
        return self.name

    @property
    def kernel(self) -> str:
        return self.name.removesuffix("_TRAINING").lower()

    @property
    def activations(self) -> int:
        """How many activations one direction takes."""
        return len(self.default_activations)

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


# For training. The LSTM that stores c behind h

LSTM_TRAINING = replace(
    LSTM, name="LSTM_TRAINING", desc=None, elements=(element_types.FLOAT32,),
    outputs={**LSTM.outputs, "OutputSequenceTensor": ("T", "D", "B", "2*H")},
    loops=(Loop(phases=1, slots=3, products=4, words=2),))


# The gradients run in the other direction. A row of X has the h before the step, x and a one, so W is R, W and the biases side
# by side. Here R is R transposed, gate after gate. The outputs are the gradients of the gates' arguments, and that of the first
# c, or of a GRU's first h as far as it passes by the gates. A GRU has four: that of n has one from h and one from x

def _of_gradient(cell: Cell, gates: int, sources: int, words: int, saved: int) -> dict[str, Any]:
    state: dict[str, Sizes] = {"CellMemInitTensor": _STATE} if words > 1 else {}
    return {
        "desc": None, "arguments": {}, "default_activations": cell.default_activations, "elements": (element_types.FLOAT32,),
        "has_resident": False, "required": (*cell.required, "SavedTensor"),
        "inputs": {"InputTensor": ("1", "T", "B", "I"), "WeightTensor": ("1", "D", f"{gates}*H", "I"),
                   "RecurrenceTensor": ("1", "D", "H", f"{sources}*H"), **state, **_LENGTHS,
                   "SavedTensor": ("T", "D", "B", f"{saved}*H")},
        "outputs": {"OutputSequenceTensor": ("T", "D", "B", f"{words}*H"),
                    **({"OutputCellSingleTensor": _STATE} if words > 1 else {})},
        "loops": (Loop(phases=1, slots=3 if words > 1 else 2, products=1, sources=sources, words=words),)}


GRU_BACKWARD = Cell(name="GRU_BACKWARD", gates="mzrn", **_of_gradient(GRU, 4, sources=3, words=4, saved=2))
LSTM_BACKWARD = Cell(name="LSTM_BACKWARD", gates="iofc", **_of_gradient(LSTM, 4, sources=4, words=4, saved=2))
RNN_BACKWARD = Cell(name="RNN_BACKWARD", gates="i", **_of_gradient(RNN, 1, sources=1, words=1, saved=1))

ALL = (*BY_DESC.values(), LSTM_TRAINING, GRU_BACKWARD, LSTM_BACKWARD, RNN_BACKWARD)

# Output with a last state -> the input that takes it as initial state when the sequence goes on
STATES = {"OutputSingleTensor": "HiddenInitTensor", "OutputCellSingleTensor": "CellMemInitTensor"}
