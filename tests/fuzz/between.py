"""Random nodes between two recurrent ones, on the device wherever a GPU would have them, against float64:

    python -m tests.fuzz.between [--first SEED] [--count N]

Moves, also of batch-first layers and of computed shapes, sums, products and activations, whose first input may be a scalar. Names
may be like vkdml's own, no UTF-8, or have control characters; attributes are left out, or long; runs may be verified, or of models
that onnxruntime does not optimize. Prints each seed that fails, with its nodes; the exit status is 1 if one does.
"""

import argparse
import random
import sys
from functools import cache
from unittest import mock

import numpy as np
import onnxruntime
from onnx import TensorProto, defs, helper, numpy_helper

import vkdml
from tests.fuzz.mutations import as_bytes
from vkdml import reference
from vkdml.faces.onnx import linear, programs
from vkdml.onnx import InferenceSession

I, H, MOST = 3, 4, 4000  # elements between the nodes
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
EDGE = [(5, 2), (3, 3), (4, 1), (1, 2), (1, 1), (0, 2), (3, 0), (700, 1)]
ALIKE = "{number}\0{}"  # up to a NUL: then onnxruntime runs all
STYLES = ["{}"] * 3 + ["{other} (copy {number})", "\x1b[2J{}\n", "ÿÿ{number}", r"\xff\xfe\xfd\xfc{number}", ALIKE,
                       "[vkdml error {number}] {}"]  # of names; mutations.as_bytes has one become like another
LARGE = 2**31 - 1, 2**63 - 1, -2**31, -2**63


def _weights(rng, op, inputs, directions=1):
    gates = GATES[op]
    shapes = (directions, gates * H, inputs), (directions, gates * H, H), (directions, 2 * gates * H)
    return [(rng.standard_normal(shape) * 0.4).astype(np.float32) for shape in shapes]


class Chain:
    """Nodes from x on, with what the last one's output is, in float64."""

    def __init__(self, seed):
        self.random, self.rng = random.Random(seed), np.random.default_rng(seed)
        self.nodes, self.arrays, self.last = [], {}, "x"
        self.opset, self.names, self.styles = self.random.choice([11, 18]), {"x", "last"}, self.random.sample(STYLES, 2)
        self.settings = self.random.random() < 0.2, self.random.random() < 0.3  # is verified; is not optimized
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
                zeros = {"allowzero": 1} if self.opset > 13 else {}
                self._add("Reshape", self.value.reshape(shape), self.last, np.array(shape), **zeros)
                self.is_run = bool(zeros or self.value.size)
            self.is_run &= ALIKE not in self.styles or bool(self.x.size and self.value.size)  # onnxruntime crashes without steps
            self._recur("GRU", 1)
            self.nodes[-1].output[0] = self.last = "last"

    def model(self):
        graph = helper.make_graph(
            self.nodes, "between", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["T", "B", I])],
            [helper.make_tensor_value_info(self.last, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(array, name) for name, array in self.arrays.items()])
        return as_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=6))

    def _name(self, plain):
        name = self.random.choice(self.styles).format(plain, other=self.random.choice(sorted(self.names)), number=self.random.randrange(6))
        name = plain if name in self.names else name
        self.names.add(name)
        return name

    def _add(self, op, value, *inputs, outputs=1, place=0, parameters=None, **attributes):
        """parameters: attributes that are inputs since opset 13. place: of the output that the next node takes."""
        inputs = [*inputs, *(parameters or {}).values()] if self.opset > 12 else inputs
        attributes |= {name: array.tolist() for name, array in (parameters or {}).items()} if self.opset < 13 else {}
        known, names = defs.get_schema(op, self.opset).attributes, []
        left_out = [name for name, given in attributes.items() if self.random.random() < 0.5 and known[name].default_value.name
                    and helper.get_attribute_value(known[name].default_value) == (given.encode() if isinstance(given, str) else given)]
        for given in inputs:
            if isinstance(given, str):
                names.append(given)
            else:
                names.append(self._name(f"c{len(self.arrays)}"))
                self.arrays[names[-1]] = given
        made = [self._name(f"v{len(self.nodes)}_{number}") for number in range(outputs)]
        self.nodes.append(helper.make_node(op, names, made, self._name(f"n{len(self.nodes)}"),
                                           **{name: given for name, given in attributes.items() if name not in left_out}))
        self.last, self.value = made[place], value

    def _recur(self, op, directions):
        arrays = _weights(self.rng, op, self.value.shape[2], directions)
        settings = {"direction": "bidirectional" if directions == 2 else self.random.choice(["forward", "reverse"])}
        if op == "GRU" and self.random.random() < 0.5:
            settings["linear_before_reset"] = 1
        if op == "RNN" and max(self.value.shape) < 100 and self.random.random() < 0.5:  # in more steps h may overflow
            settings |= {"activations": ["LeakyRelu"] * directions, "activation_alpha": [0.3] * self.random.choice([2, 1025])}
        layout = self.opset > 13 and ALIKE not in self.styles and self.random.random() < 0.3
        if layout:
            settings["layout"] = 1
        if 0 in self.value.shape[:2]:
            steps, rows = self.value.shape[1::-1] if layout else self.value.shape[:2]
            value = np.zeros((rows, steps, directions, H) if layout else (steps, directions, rows, H))
        else:
            value = getattr(reference, op.lower())(self.value, *map(np.float64, arrays), **settings)[0]
        self._add(op, value, self.last, *arrays, outputs=1, hidden_size=H, **settings)

    def _axis(self):
        long = [axis for axis, size in enumerate(self.value.shape) if size > 100]
        return self.random.choice(long or range(self.value.ndim)) if self.value.ndim else None

    def add_transpose(self):
        perm = self.random.sample(range(self.value.ndim), self.value.ndim)
        self._add("Transpose", self.value.transpose(perm), self.last, perm=perm)

    def add_slice(self):
        if (axis := self._axis()) is None or not self.value.shape[axis]:
            return
        size, step = self.value.shape[axis], self.random.choice([1, 1, 2, 3, -1, -1])
        begin = self.random.randrange(size)
        end = self.random.randint(begin + 1, size + 3) if step > 0 else -size - 1
        if self.random.random() < 0.5:
            begin, end = (self.random.choice([-size - 1, -size, -1, 0, size, *LARGE]) for _ in "be")
        part = self.value.take(taken(size, begin, end, step), axis)
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

    def add_dropout(self):
        """Nothing is dropped: left out, or said by a constant."""
        said = [np.array(0.5, np.float32), np.array(False)] if self.opset > 12 and self.random.random() < 0.7 else []
        self._add("Dropout", self.value, self.last, *said)

    def add_unsqueeze(self):
        if self.value.ndim < 6:
            axis = self.random.randint(-self.value.ndim - 1, self.value.ndim)
            self._add("Unsqueeze", np.expand_dims(self.value, axis), self.last, parameters={"axes": np.array([axis])})

    def add_squeeze(self):
        ones = [axis for axis, size in enumerate(self.value.shape) if size == 1]
        if ones and self.value.ndim > 2:
            axes = self.random.sample(ones, self.random.randint(1, min(len(ones), self.value.ndim - 2)))
            self._add("Squeeze", self.value.squeeze(tuple(axes)), self.last, parameters={"axes": np.array(axes)})

    def add_reshape(self):
        """To a constant shape, or to one that is computed of the value's own."""
        if self.value.ndim < 3 or not self.value.size:
            return
        shape = (self.value.shape[0], -1, self.value.shape[-1])
        before, value = self.last, self.value.reshape(shape)
        if self.random.random() < 0.5:
            self._add("Reshape", value, before, np.array([0, -1, shape[2]]), **{"allowzero": 0} if self.opset > 13 else {})
            return
        rank = self.value.ndim
        self._add("Shape", np.array(self.value.shape), before)
        computed = self.last
        self._add("Gather", None, computed, np.array([0]), axis=0)
        first = self.last
        self._add("Gather", None, computed, np.array([rank - 1]), axis=0)
        self._add("Concat", None, first, np.array([-1]), self.last, axis=0)
        self._add("Reshape", value, before, self.last, **{"allowzero": 1} if self.opset > 13 else {})

    def add_flatten(self):
        axis = self.random.randint(0, self.value.ndim)
        self._add("Flatten", self.value.reshape(int(np.prod(self.value.shape[:axis])), int(np.prod(self.value.shape[axis:]))), self.last, axis=axis)

    def add_split(self):
        if (axis := self._axis()) is not None and self.value.shape[axis] > 1:
            size = self.value.shape[axis]
            count = self.random.choice([2, max(2, size * 6 // 7)])
            place, cuts = self.random.randrange(count), sorted(self.random.sample(range(1, size), count - 1))
            lengths = {"split": np.diff([0, *cuts, size])}
            if size % count == 0 and self.random.random() < 0.5:
                cuts, lengths = range(size // count, size, size // count), {}
            more = {"num_outputs": count} if not lengths and self.opset > 17 else {}
            self._add("Split", np.split(self.value, cuts, axis)[place], self.last, parameters=lengths, outputs=count, place=place,
                      axis=axis, **more)


def taken(size, begin, end, step):
    """The places that a Slice takes, as onnxruntime clamps their ends."""
    is_back = step < 0
    end = (-1 if is_back else size) if end in LARGE[:2] else end + size if end < 0 else end
    begin = min(max(begin + size if begin < 0 else begin, 0), size - is_back)
    return list(range(begin, min(max(end, -is_back), size), step))


@cache
def device(is_verified):
    return vkdml.Device(verify=1) if is_verified else vkdml.Device()


def failure(seed):
    """What is wrong with the chain of a seed; None if it is right, or was not run."""
    chain = Chain(seed)
    if not chain.is_run:
        return None
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        if chain.settings[1]:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = InferenceSession(chain.model(), options, device=device(chain.settings[0]))
        result, = session.run(None, {"x": chain.x})
    except Exception as error:
        if "[ShapeInferenceError]" in str(error):  # onnxruntime refuses the model: ONNX reads a Slice backward otherwise than it
            return None
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
