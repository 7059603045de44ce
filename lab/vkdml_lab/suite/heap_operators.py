"""The operators that the random programs of heaps.py dispatch, and the outputs to expect."""

from __future__ import annotations

import numpy as np

import vkdml as v
from vkdml.operators import cells
from vkdml_lab.suite.support import CELLS, execute, make_desc, owned, tensor

LEFT_OUT = ("SequenceLengthsTensor", "HiddenInitTensor", "CellMemInitTensor", "PeepholeTensor", "OutputSingleTensor",
            "OutputCellSingleTensor")
TWELVE = tensor(12)  # as many elements as the GRU's weights


def recurrent(cell, *sizes, **changes):
    """Make a descriptor with few tensors, each of at most 256 bytes (a slot of a heap). sizes: T, B and I, up to 3; H is I."""
    return make_desc(cell, *sizes, sizes[-1], **{name: None for name in LEFT_OUT if name in cell.tensors}, **changes)


def drawn(rng):
    """Draw a small descriptor (see `recurrent`) of any cell, forward or backward."""
    cell = CELLS[rng.integers(len(CELLS))]
    direction = v.DML_RECURRENT_NETWORK_DIRECTION(int(rng.integers(2)))
    return recurrent(cell, *(int(size) for size in rng.integers(1, 4, 3)), Direction=direction)


def two_layers(desc):
    """Return a function that compiles, on a device, a graph of two layers of an operator. Each layer has its own weights."""
    def made(device):
        operator = device.create_operator(desc)
        edges = [v.DML_INPUT_GRAPH_EDGE_DESC(0, 0, 0)]
        edges += [v.DML_INPUT_GRAPH_EDGE_DESC(1 + 3 * node + place, node, 1 + place) for node in range(2) for place in range(3)]
        return device.compile_graph(v.DML_GRAPH_DESC(
            InputCount=7, OutputCount=1, Nodes=[v.DML_OPERATOR_GRAPH_NODE_DESC(operator)] * 2, NodeCount=2, InputEdges=edges,
            IntermediateEdges=[v.DML_INTERMEDIATE_GRAPH_EDGE_DESC(0, 0, 1, 0)],
            OutputEdges=[v.DML_OUTPUT_GRAPH_EDGE_DESC(1, 0, 0)]))

    return made


def compiled(desc):
    return lambda device: device.compile_operator(device.create_operator(desc))


def kinds(desc):
    """Return functions that compile the operators on a device, by operator name. desc: descriptor of recurrent operators."""
    return {
        "one": compiled(desc), "one again": compiled(desc), "owned": compiled(owned(desc)), "graph": two_layers(desc),
        "negate": compiled(v.DML_ACTIVATION_LINEAR_OPERATOR_DESC(InputTensor=TWELVE, OutputTensor=TWELVE, Alpha=-1)),
        "add": compiled(v.DML_ELEMENT_WISE_ADD_OPERATOR_DESC(ATensor=TWELVE, BTensor=TWELVE, OutputTensor=TWELVE))}


GRU = recurrent(cells.GRU, 2, 1, 2)
KINDS = tuple(kinds(GRU))
# Operators with weights are drawn twice as often
DISPATCHED = ["one", "owned", *KINDS]


class Reference:
    """Computes expected outputs by running each operator alone, on buffers that nothing else uses. Keeps all results."""

    def __init__(self, device, desc=GRU):
        self.device, self.kinds = device, kinds(desc)
        self.known = {}

    def __call__(self, whose, inputs):
        """Return the outputs of the operator `whose` as bytes. inputs: bytes in binding order, but owned weights last."""
        name = "one" if whose in ("one again", "owned") else whose
        key = (name, *inputs)
        if key not in self.known:
            self.known[key] = self.computed(self.kinds[name](self.device), inputs)
        return self.known[key]

    def computed(self, operator, inputs):
        named = zip(filter(operator.problem.has, operator.input_fields), inputs)
        sizes = {name: operator.problem.tensor(name).size_in_bytes for name in filter(operator.problem.has, operator.output_fields)}
        buffers = {name: self.device.create_buffer(size) for name, size in sizes.items()}
        execute(self.device, operator, {name: self.device.upload(np.frombuffer(given, np.uint8)) for name, given in named}, buffers)
        return [buffers[name].download((size,), np.uint8).tobytes() for name, size in sizes.items()]
