"""PyDirectML's graphs: expressions, the models built of them, and the device that computes them.

The package's __init__ has the operators. Names, arguments and defaults are those of Python/src/module.cpp of
microsoft/DirectML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...engine.execution import Execution, Node
from ...errors import DriverError, InvalidArgumentError, check_type
from ...operators.checks import integers
from ...operators.header.descs import DML_EXECUTION_FLAGS
from ..directml.device import Device as VulkanDevice
from .tensors import TensorData, TensorDesc


@dataclass(frozen=True)
class Value:
    """A value in the graph of a builder, by name, with the description that an expression has of it."""

    builder: GraphBuilder
    name: str
    desc: TensorDesc


class Expression:
    """A tensor in a graph. `input_tensor` and the operators make it. Source: PyDirectML's and DirectMLX's Expression.

    Expression() is empty. Operators return empty ones for outputs that were not asked for.
    """

    def __init__(self) -> None:
        self.value: Value | None = None

    def get_output_desc(self) -> TensorDesc:
        """The tensor's description. Raises InvalidArgumentError if the expression is empty."""
        return value_of("get_output_desc", "expression", self).desc


def express(value: Value) -> Expression:
    expression = Expression()
    expression.value = value
    return expression


def value_of(call: str, argument: str, expression: object, builder: GraphBuilder | None = None) -> Value:
    """An expression's value. Refuses an empty expression and, if a builder is given, one of another builder."""
    value = check_type(call, argument, expression, Expression).value
    if value is None:
        raise InvalidArgumentError(call, argument, "an empty Expression", "one that an operator or input_tensor made")
    if builder is not None and value.builder is not builder:
        raise InvalidArgumentError(call, argument, "an Expression of another GraphBuilder", "one of the same GraphBuilder")
    return value


def check_list(call: str, argument: str, values: Any, allowed: type) -> Sequence[Any]:
    """The values, which must be a list or tuple. allowed: the type of its items, for the message; they are not checked."""
    if not isinstance(values, list | tuple):
        raise InvalidArgumentError(call, argument, type(values).__name__, f"a list of {allowed.__name__}")
    return values


class Binding:
    """Data for an input. Source: PyDirectML's Binding.

    expr: what input_tensor returned.
    data: an array of any shape, or what np.asarray makes one of. It holds the elements of the tensor's memory, in its order.
        They are copied now and converted to the tensor's type (PyDirectML always converts to float32).

    Raises InvalidArgumentError for a wrong number of elements, for data that are no numbers, and for numbers that a tensor of
    integers cannot hold.
    """

    def __init__(self, expr: Expression, data: Any) -> None:
        self.value = value_of("Binding", "expr", expr)
        self.memory = self.value.desc.to_memory("Binding", data)


class Device:
    """A Vulkan device with the interface of PyDirectML's Device.

    use_gpu: True for vkdml's default device. Without a GPU that is a CPU driver, just as DirectML falls back to WARP. False for
        a CPU driver.
    use_debug_layer: has no effect. VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation in the environment turns Vulkan's
        validation layer on.

    Raises DriverError if there is no such device.
    """

    def __init__(self, use_gpu: bool = True, use_debug_layer: bool = False) -> None:
        check_type("Device", "use_gpu", use_gpu, int)
        self.device = VulkanDevice(None if use_gpu else _cpu_driver())

    def __repr__(self) -> str:
        return f"dml.Device on {self.device.info.name}"

    def compute(self, model: Model, bindings: Sequence[Binding | None], outputs: Sequence[Expression]) -> list[TensorData]:
        """Initialize and execute a model. Weights that have not changed since the last call stay packed.

        bindings: one for each input that the model needs, in any order. None, and the builder's other inputs, are ignored.
        outputs: any of the outputs that the model was built for.

        Returns the outputs' data, in that order, with the types, sizes and strides of their TensorDescs.

        Raises InvalidArgumentError for a model of another device; for inputs that are missing, bound twice or of another
        builder; for outputs that the model was not built for; for sequence lengths above T. Raises DriverError if the driver
        failed.
        """
        check_type("compute", "model", model, Model)
        if model.device != self.device:
            raise InvalidArgumentError("compute", "model", f"one for {model.device.info.name}",
                                       f"one for {self.device.info.name}")
        return model.run(bindings, outputs)


def _cpu_driver() -> int:
    for info in VulkanDevice.enumerate():
        if info.is_cpu:
            return info.index
    raise DriverError("no Vulkan driver that runs on the CPU; on Debian and Ubuntu: apt-get install mesa-vulkan-drivers; other "
                      "systems: docs/install.md")


class GraphBuilder:
    """A graph of expressions, to build models of. Source: PyDirectML's GraphBuilder, DirectMLX's Graph."""

    def __init__(self, device: Device) -> None:
        self.device = check_type("GraphBuilder", "device", device, Device).device
        self.inputs: set[str] = set()
        self._steps: list[Node] = []

    def build(self, flags: DML_EXECUTION_FLAGS, outputs: Sequence[Expression]) -> Model:
        """Compile the operators that the outputs need. The flags have no effect: sums are always computed in float32.

        Raises InvalidArgumentError for an empty list of outputs, for an input as an output, and for operators that the device
        cannot hold.
        """
        check_type("build", "flags", flags, DML_EXECUTION_FLAGS)
        names = []
        for i, output in enumerate(check_list("build", "outputs", outputs, Expression)):
            names.append(value_of("build", f"outputs[{i}]", output, self).name)
            if names[-1] in self.inputs:
                raise InvalidArgumentError("build", f"outputs[{i}]", names[-1], "the output of an operator")
        if not names:
            raise InvalidArgumentError("build", "outputs", "none", "at least one Expression")
        return Model(self, self._needed(names), names)

    def add_input(self, index: int, desc: TensorDesc) -> Expression:
        (checked,) = integers("input_tensor", "input_index", (index,), 0)
        name = f"input {checked}"
        if name in self.inputs:
            raise InvalidArgumentError("input_tensor", "input_index", f"{index}, which another input has", "a different index")
        self.inputs.add(name)
        return express(Value(self, name, desc))

    def add_operator(self, desc: Any, inputs: Mapping[str, Value], outputs: Mapping[str, TensorDesc]) -> dict[str, Expression]:
        """Add an operator. Returns the expressions of its outputs. inputs, outputs: by descriptor field."""
        values = {field: Value(self, f"{field} {len(self._steps)}", output) for field, output in outputs.items()}
        names = {field: value.name for field, value in {**inputs, **values}.items()}
        self._steps.append(Node(self.device.create_operator(desc).problem, names))
        return {field: express(value) for field, value in values.items()}

    def _needed(self, outputs: Sequence[str]) -> list[Node]:
        """The steps that the outputs depend on, in order."""
        needed = set(outputs)
        steps: list[Node] = []
        for step in reversed(self._steps):
            if not needed.isdisjoint(step.names[field] for field in step.problem.outputs if field in step.names):
                needed.update(step.names.values())
                steps.insert(0, step)
        return steps


class Model:
    """A compiled graph, made by GraphBuilder.build. Source: PyDirectML's Model."""

    def __init__(self, builder: GraphBuilder, steps: Sequence[Node], outputs: Sequence[str]) -> None:
        self.device = builder.device
        self._builder = builder
        self._inputs = builder.inputs.intersection(name for step in steps for name in step.names.values())
        self._outputs = dict.fromkeys(outputs)
        self._execution = Execution(builder.device.gpu, builder.device.share, steps, self._outputs)

    def run(self, bindings: Sequence[Binding | None], outputs: Sequence[Expression]) -> list[TensorData]:
        """See Device.compute."""
        values = self._bind(bindings)
        wanted = []
        for i, output in enumerate(check_list("compute", "outputs", outputs, Expression)):
            wanted.append(value_of("compute", f"outputs[{i}]", output, self._builder))
            if wanted[-1].name not in self._outputs:
                raise InvalidArgumentError("compute", f"outputs[{i}]", wanted[-1].name, "one of the outputs given to build")
        results = {value.name: ((value.desc.total_tensor_size_in_bytes,), np.uint8) for value in wanted}
        memory = self._execution.run(values, results)
        return [value.desc.from_memory(memory[value.name].copy()) for value in wanted]  # one may be wanted twice

    def _bind(self, bindings: Sequence[Binding | None]) -> dict[str, np.ndarray]:
        values: dict[str, np.ndarray] = {}
        for i, binding in enumerate(check_list("compute", "bindings", bindings, Binding)):
            if binding is None:
                continue
            check_type("compute", f"bindings[{i}]", binding, Binding)
            name = binding.value.name
            if binding.value.builder is not self._builder or name not in self._builder.inputs:
                raise InvalidArgumentError("compute", f"bindings[{i}]", f"{name} of another GraphBuilder or of an operator",
                                           "an input of the model's GraphBuilder")
            if name in values:
                raise InvalidArgumentError("compute", f"bindings[{i}]", f"a second one for {name}", "one for each input")
            values[name] = binding.memory
        if missing := sorted(self._inputs.difference(values)):
            raise InvalidArgumentError("compute", "bindings", "none for " + ", ".join(missing), "one for each input")
        return values
