"""PyDirectML's graphs: expressions, the models built of them, and the device that computes them.

`pydirectml` has the operators. Names, arguments and defaults are those of Python/src/module.cpp of microsoft/DirectML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...errors import DriverError, InvalidArgumentError
from ...runtime.network import Network, Node
from ...runtime.operator import Device as VulkanDevice
from ...spec.checks import integers
from ...spec.descs import DML_EXECUTION_FLAGS
from .tensors import TensorData, TensorDesc

T = TypeVar("T")


@dataclass(frozen=True)
class Value:
    """What an expression stands for: a value of its builder's graph, by name, and how it is seen."""

    builder: GraphBuilder
    name: str
    desc: TensorDesc


class Expression:
    """A tensor in a graph, made by `input_tensor` and the operators. Made directly it is empty, which is what an operator
    returns for an output that was not asked for. Source: PyDirectML's and DirectMLX's Expression.
    """

    def __init__(self) -> None:
        self.value: Value | None = None

    def get_output_desc(self) -> TensorDesc:
        """Raises InvalidArgumentError if the expression is empty."""
        return value_of("get_output_desc", "expression", self).desc


def express(value: Value) -> Expression:
    expression = Expression()
    expression.value = value
    return expression


def value_of(call: str, argument: str, expression: object, builder: GraphBuilder | None = None) -> Value:
    """An expression's value. builder: whose it has to be."""
    value = check_type(call, argument, expression, Expression).value
    if value is None:
        raise InvalidArgumentError(call, argument, "an empty Expression", "one that an operator or input_tensor made")
    if builder is not None and value.builder is not builder:
        raise InvalidArgumentError(call, argument, "an Expression of another GraphBuilder", "one of the same GraphBuilder")
    return value


def check_type(call: str, argument: str, value: object, allowed: type[T]) -> T:
    if not isinstance(value, allowed):
        raise InvalidArgumentError(call, argument, type(value).__name__, allowed.__name__)
    return value


def check_list(call: str, argument: str, values: Any, allowed: type) -> Sequence[Any]:
    """A list, or tuple, of what the caller will check to be of the allowed type."""
    if not isinstance(values, list | tuple):
        raise InvalidArgumentError(call, argument, type(values).__name__, f"a list of {allowed.__name__}")
    return values


class Binding:
    """Data for an input. Source: PyDirectML's Binding.

    expr: of input_tensor. data: an array, or what becomes one, of any shape, copied as it is now: as many elements as lie in
    the tensor's memory, in that order. They are converted to the tensor's type (PyDirectML: to float32 always).

    Raises InvalidArgumentError for another number of elements, and what is no number, or not whole where the type is.
    """

    def __init__(self, expr: Expression, data: Any) -> None:
        self.value = value_of("Binding", "expr", expr)
        self.memory = self.value.desc.to_memory("Binding", data)


class Device:
    """A Vulkan device in PyDirectML's words.

    use_gpu: True for vkdml's default device, which is a CPU driver where there is no GPU, as DirectML then takes WARP; False
    for a CPU driver. use_debug_layer: has no effect of its own; VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation in the
    environment is what switches on Vulkan's.

    Raises DriverError when there is no such device. Source: PyDirectML's Device.
    """

    def __init__(self, use_gpu: bool = True, use_debug_layer: bool = False) -> None:
        check_type("Device", "use_gpu", use_gpu, int)
        self._use_gpu = use_gpu
        self.device = VulkanDevice(None if use_gpu else _cpu_driver())

    def __repr__(self) -> str:
        return f"dml.Device on {'GPU' if self._use_gpu else 'CPU'}"

    def compute(self, model: Model, bindings: Sequence[Binding | None], outputs: Sequence[Expression]) -> list[TensorData]:
        """Initialize and execute a model with the data bound now. Weights that have not changed stay packed.

        bindings: one for each input that the model needs, in any order; others of the builder's inputs, and None, are left out.
        outputs: any of those that the model was built for. Returns their data, in that order, in their descs' types, sizes
        and strides.

        Raises InvalidArgumentError for a model of another device, inputs that are missing, bound twice or not the
        builder's, outputs that were not built, and sequence lengths above T. DriverError: the driver failed.
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
    raise DriverError("no Vulkan driver that runs on the CPU; on Debian: apt-get install mesa-vulkan-drivers")


class GraphBuilder:
    """Where expressions come together until they are built. Source: PyDirectML's GraphBuilder, DirectMLX's Graph."""

    def __init__(self, device: Device) -> None:
        self.device = check_type("GraphBuilder", "device", device, Device).device
        self.inputs: set[str] = set()
        self._steps: list[Node] = []

    def build(self, flags: DML_EXECUTION_FLAGS, outputs: Sequence[Expression]) -> Model:
        """Compile what the outputs need. The flags are hints that change nothing here: sums are always float32.

        Raises InvalidArgumentError for no outputs, an input as an output, and what the device cannot hold.
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
            raise InvalidArgumentError("input_tensor", "input_index", f"{index} again", "an index for each input")
        self.inputs.add(name)
        return express(Value(self, name, desc))

    def add_operator(self, desc: Any, inputs: Mapping[str, Value], outputs: Mapping[str, TensorDesc]) -> dict[str, Expression]:
        """The outputs' expressions of a DirectML operator descriptor. inputs, outputs: by the descriptor's fields."""
        values = {field: Value(self, f"{field} {len(self._steps)}", output) for field, output in outputs.items()}
        names = {field: value.name for field, value in {**inputs, **values}.items()}
        self._steps.append(Node(self.device.create_operator(desc), names))
        return {field: express(value) for field, value in values.items()}

    def _needed(self, outputs: Sequence[str]) -> list[Node]:
        """The steps from which the outputs come, in their order."""
        needed = set(outputs)
        steps: list[Node] = []
        for step in reversed(self._steps):
            if not needed.isdisjoint(step.names[field] for field in step.operator.problem.outputs if field in step.names):
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
        self._network = Network(builder.device, steps, self._outputs)

    def run(self, bindings: Sequence[Binding | None], outputs: Sequence[Expression]) -> list[TensorData]:
        """See Device.compute."""
        values = self._bind(bindings)
        wanted = []
        for i, output in enumerate(check_list("compute", "outputs", outputs, Expression)):
            wanted.append(value_of("compute", f"outputs[{i}]", output, self._builder))
            if wanted[-1].name not in self._outputs:
                raise InvalidArgumentError("compute", f"outputs[{i}]", wanted[-1].name, "one of the outputs given to build")
        results = {value.name: ((value.desc.total_tensor_size_in_bytes,), np.uint8) for value in wanted}
        memory = self._network.run(values, results)
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
                raise InvalidArgumentError("compute", f"bindings[{i}]", f"{name} again", "one binding for an input")
            values[name] = binding.memory
        if missing := sorted(self._inputs.difference(values)):
            raise InvalidArgumentError("compute", "bindings", "none for " + ", ".join(missing), "one for each input")
        return values
