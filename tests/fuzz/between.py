"""Random nodes between two recurrent ones, on the device wherever a GPU would have them, against float64:

    python -m tests.fuzz.between [--first SEED] [--count N]

Moves, also of batch-first layers and of computed shapes, sums, products and activations, whose first input may be a scalar. Prints
each seed that fails, with its nodes; the exit status is 1 if one does.
"""

import argparse
import random
import sys
from unittest import mock

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from vkdml import reference
from vkdml.faces.onnx import linear, programs
from vkdml.onnx import InferenceSession

I, H, MOST = 3, 4, 4000  # elements between the nodes
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
EDGE = [(5, 2), (3, 3), (4, 1), (1, 2), (1, 1), (0, 2), (3, 0)]


def _weights(rng, op, inputs, directions=1):
    gates = GATES[op]
    shapes = (directions, gates * H, inputs), (directions, gates * H, H), (directions, 2 * gates * H)
    return [(rng.standard_normal(shape) * 0.4).astype(np.float32) for shape in shapes]


class Chain:
    """Nodes from x on, with what the last one's output is, in float64."""

    def __init__(self, seed):
        self.random, self.rng = random.Random(seed), np.random.default_rng(seed)
        self.nodes, self.arrays, self.last = [], {}, "x"
        self.sizes = self.random.choice(EDGE)
        self.x = self.rng.standard_normal((*self.sizes, I)).astype(np.float32)
        self.value = self.x.astype(np.float64)
        self._recur(self.random.choice(list(GATES)), self.random.choice([1, 2]))
        for _ in range(self.random.randint(1, 6)):
            getattr(self, self.random.choice([name for name in dir(Chain) if name.startswith("add_")]))()
        self.is_run = self.value.size <= MOST and 0 not in self.value.shape[2:]  # not too large, and of inputs that a layer can have
        if self.is_run:
            if self.value.ndim != 3:
                last = self.value.shape[-1] if self.value.ndim and self.value.size else 1
                shape = (self.value.size // last, 1, last)
                self._add("Reshape", self.value.reshape(shape), self.last, np.array(shape), allowzero=1)
            self._recur("GRU", 1)

    def model(self):
        graph = helper.make_graph(
            self.nodes, "between", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["T", "B", I])],
            [helper.make_tensor_value_info(self.last, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(array, name) for name, array in self.arrays.items()])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)

    def _add(self, op, value, *inputs, outputs=1, **attributes):
        names = []
        for given in inputs:
            if isinstance(given, str):
                names.append(given)
            else:
                names.append(f"c{len(self.arrays)}")
                self.arrays[names[-1]] = given
        made = [f"v{len(self.nodes)}_{place}" for place in range(outputs)]
        self.nodes.append(helper.make_node(op, names, made, **attributes))
        self.last, self.value = made[0], value

    def _recur(self, op, directions):
        arrays = _weights(self.rng, op, self.value.shape[2], directions)
        settings = {"direction": "bidirectional" if directions == 2 else self.random.choice(["forward", "reverse"])}
        if op == "GRU" and self.random.random() < 0.5:
            settings["linear_before_reset"] = 1
        layout = self.random.random() < 0.3
        if layout:
            settings["layout"] = 1
        if 0 in self.value.shape[:2]:
            steps, rows = self.value.shape[1::-1] if layout else self.value.shape[:2]
            value = np.zeros((rows, steps, directions, H) if layout else (steps, directions, rows, H))
        else:
            value = getattr(reference, op.lower())(self.value, *map(np.float64, arrays), **settings)[0]
        self._add(op, value, self.last, *arrays, outputs=1, hidden_size=H, **settings)

    def _axis(self):
        return self.random.randrange(self.value.ndim) if self.value.ndim else None

    def add_transpose(self):
        perm = self.random.sample(range(self.value.ndim), self.value.ndim)
        self._add("Transpose", self.value.transpose(perm), self.last, perm=perm)

    def add_slice(self):
        if (axis := self._axis()) is None or not self.value.shape[axis]:
            return
        size, step = self.value.shape[axis], self.random.choice([1, 1, 2, 3, -1])
        begin = self.random.randrange(size)
        end = self.random.randint(begin + 1, size + 3) if step > 0 else -size - 1
        part = self.value[(slice(None),) * axis + (slice(begin, end, step),)]
        self._add("Slice", part, self.last, *(np.array([number]) for number in (begin, end, self.random.choice([axis, axis - self.value.ndim]), step)))

    def add_gather(self):
        if (axis := self._axis()) is None or not self.value.shape[axis]:
            return
        size, kind = self.value.shape[axis], self.random.random()
        indices = np.array([self.random.randrange(-size, size) for _ in range(self.random.randint(1, 3))])
        indices = indices[0] if kind < 0.3 and self.value.ndim > 2 else np.arange(0, size, 2) if kind < 0.6 else np.sort(indices % size)
        self._add("Gather", self.value.take(indices, axis), self.last, np.asarray(indices), axis=axis)

    def add_concat(self):
        if (axis := self._axis()) is not None:
            other = np.ones((*self.value.shape[:axis], 2, *self.value.shape[axis + 1:]), np.float32)
            more = [self.last, other] if self.random.random() < 0.5 else [self.last, self.last]
            arrays = [self.value if isinstance(one, str) else one for one in more]
            self._add("Concat", np.concatenate(arrays, axis), *more, axis=axis)

    def add_arithmetic(self):
        op, function = self.random.choice([("Add", np.add), ("Mul", np.multiply), ("Sub", np.subtract)])
        shape = tuple(size if self.random.random() < 0.5 else 1 for size in self.value.shape)[self.random.randint(0, self.value.ndim):]
        other = np.asarray(self.rng.standard_normal(shape), np.float32)
        inputs = [(other, other), (self.value, self.last)]
        self.random.shuffle(inputs)
        self._add(op, function(*(value for value, _ in inputs)), *(given for _, given in inputs))

    def add_activation(self):
        op, function = self.random.choice([("Tanh", np.tanh), ("Relu", lambda x: np.maximum(x, 0)), ("Sigmoid", lambda x: 1 / (1 + np.exp(-x)))])
        self._add(op, function(self.value), self.last)

    def add_product(self):
        if self.value.ndim and self.value.shape[-1]:
            matrix = self.rng.standard_normal((self.value.shape[-1], self.random.choice([1, 3, 4]))).astype(np.float32)
            self._add("MatMul", self.value @ matrix, self.last, matrix)

    def add_unsqueeze(self):
        if self.value.ndim < 6:
            axis = self.random.randint(-self.value.ndim - 1, self.value.ndim)
            self._add("Unsqueeze", np.expand_dims(self.value, axis), self.last, np.array([axis]))

    def add_squeeze(self):
        ones = [axis for axis, size in enumerate(self.value.shape) if size == 1]
        if ones and self.value.ndim > 2:
            axes = self.random.sample(ones, self.random.randint(1, min(len(ones), self.value.ndim - 2)))
            self._add("Squeeze", self.value.squeeze(tuple(axes)), self.last, np.array(axes))

    def add_reshape(self):
        """To a constant shape, or to one that is computed of the value's own."""
        if self.value.ndim < 3 or not self.value.size:
            return
        shape = (self.value.shape[0], -1, self.value.shape[-1])
        before, value = self.last, self.value.reshape(shape)
        if self.random.random() < 0.5:
            self._add("Reshape", value, before, np.array([0, -1, shape[2]]), allowzero=0)
            return
        rank = self.value.ndim
        self._add("Shape", np.array(self.value.shape), before)
        computed = self.last
        self._add("Gather", None, computed, np.array([0]), axis=0)
        first = self.last
        self._add("Gather", None, computed, np.array([rank - 1]), axis=0)
        self._add("Concat", None, first, np.array([-1]), self.last, axis=0)
        self._add("Reshape", value, before, self.last, allowzero=1)

    def add_flatten(self):
        axis = self.random.randint(0, self.value.ndim)
        self._add("Flatten", self.value.reshape(int(np.prod(self.value.shape[:axis])), int(np.prod(self.value.shape[axis:]))), self.last, axis=axis)

    def add_split(self):
        if (axis := self._axis()) is not None and self.value.shape[axis] > 1:
            size = self.value.shape[axis]
            cut = self.random.randrange(1, size)
            self._add("Split", np.split(self.value, [cut], axis)[0], self.last, np.array([cut, size - cut]), outputs=2, axis=axis)


def failure(seed):
    """What is wrong with the chain of a seed; None if it is right, or was not run."""
    chain = Chain(seed)
    if not chain.is_run:
        return None
    try:
        session = InferenceSession(chain.model())
        result, = session.run(None, {"x": chain.x})
    except Exception as error:
        return f"{[node.op_type for node in chain.nodes]}: {type(error).__name__}: {error}"
    scale = max(1, float(np.abs(chain.value).max(initial=0)))
    if result.shape == chain.value.shape and np.allclose(result, chain.value, rtol=1e-3, atol=1e-4 * scale):
        return None
    return f"{[node.op_type for node in chain.nodes]}: {result.shape} for {chain.value.shape}"


def failures(first, count):
    """What is wrong, by seed."""
    as_on_a_gpu = mock.patch.object(programs, "linear", lambda *given: linear.linear(*given[:-1], False))
    with as_on_a_gpu, np.errstate(all="ignore"):
        return {seed: wrong for seed in range(first, first + count) if (wrong := failure(seed))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--count", type=int, default=1000, metavar="N")
    chosen = parser.parse_args()
    found = failures(chosen.first, chosen.count)
    for seed, wrong in found.items():
        print(seed, wrong)
    print(f"{chosen.count} draws, {len(found)} wrong")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
