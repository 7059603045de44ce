"""PyDirectML's objects: tensors' descriptions and data, expressions, models built of them, and the device that computes them.

The package's __init__ has the operators. Names, arguments and defaults are those of Python/src/module.cpp and model.h of
microsoft/DirectML. As in PyDirectML, objects take no other attributes than their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, ClassVar

import numpy as np

from ...engine.execution import Execution, Node
from ...engine.weights import constant
from ...errors import DriverError, InvalidArgumentError, check_list, check_type
from ...operators.arguments import as_array
from ...operators.checks import Tensor, check_tensor, integers
from ...operators.element_types import ITEMSIZES
from ...operators.header.descs import DML_BUFFER_TENSOR_DESC, DML_EXECUTION_FLAGS, DML_TENSOR_DATA_TYPE, DML_TENSOR_FLAGS
from ..directml.device import Device as VulkanDevice

Dimensions = list  # the type of sizes and strides; arguments may be any sequence of whole numbers


class TensorPolicy:
    """Chooses the strides of a TensorDesc by its sizes. Source: DirectMLX's TensorPolicy.

    There are two: `default` is packed; `interleaved_channel` has dimension 1 innermost (sizes NCHW, memory NHWC).
    """

    __slots__ = ("strides",)
    default: ClassVar[TensorPolicy]
    interleaved_channel: ClassVar[TensorPolicy]

    def __init__(self, strides: Callable[[Sequence[int]], Sequence[int] | None]) -> None:
        if not callable(strides):
            raise InvalidArgumentError("pydirectml", "TensorPolicy", type(strides).__name__, "a function from sizes to strides")
        self.strides = strides


def _interleaved(sizes: Sequence[int]) -> list[int]:
    innermost_last = [dim for dim in (0, *range(2, len(sizes)), 1) if dim < len(sizes)]
    return [math.prod(sizes[inner] for inner in innermost_last[innermost_last.index(dim) + 1:]) for dim in range(len(sizes))]


TensorPolicy.default = TensorPolicy(lambda sizes: None)
TensorPolicy.interleaved_channel = TensorPolicy(_interleaved)


_OVERLOADS = [names.split() for names in (
    "data_type sizes tensor_policy", "data_type flags sizes tensor_policy", "data_type sizes strides",
    "data_type flags sizes strides total_tensor_size_in_bytes guaranteed_base_offset_alignment")]
_TYPES: dict[str, Any] = {
    "data_type": DML_TENSOR_DATA_TYPE, "flags": DML_TENSOR_FLAGS, "sizes": (Sequence, np.ndarray),
    "strides": (Sequence, np.ndarray, NoneType), "tensor_policy": TensorPolicy,
    "total_tensor_size_in_bytes": (int, np.integer), "guaranteed_base_offset_alignment": (int, np.integer),
}


def _resolve(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Name the arguments by the first of TensorDesc's overloads that they fit."""
    for names in _OVERLOADS:
        given = dict(zip(names, args)) | kwargs
        is_complete = set(names) - {"tensor_policy"} <= set(given) <= set(names) and len(given) == len(args) + len(kwargs)
        if is_complete and all(isinstance(value, _TYPES[name]) for name, value in given.items()):
            return given
    found = [type(value).__name__ for value in args] + [f"{name}: {type(value).__name__}" for name, value in kwargs.items()]
    allowed = " or ".join(f"({', '.join(names)})" for names in _OVERLOADS)
    raise InvalidArgumentError("pydirectml", "TensorDesc", f"({', '.join(found)})", allowed)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class TensorDesc:
    """A tensor's type, flags, sizes (1 to 8 dimensions) and memory layout. Source: PyDirectML's TensorDesc. Its overloads:

        TensorDesc(data_type, sizes, tensor_policy=TensorPolicy.default)
        TensorDesc(data_type, flags, sizes, tensor_policy=TensorPolicy.default)
        TensorDesc(data_type, sizes, strides)
        TensorDesc(data_type, flags, sizes, strides, total_tensor_size_in_bytes, guaranteed_base_offset_alignment)

    data_type may be any but UNKNOWN; operators take FLOAT32 and FLOAT16, and UINT32 for sequence lengths. Strides count
    elements; None is packed. OWNED_BY_DML means that an input is bound when a model is initialized, which DirectML does not
    support for the weights of recurrent operators. It has no effect here, because Device.compute binds all at each call and
    packs weights when they have changed.

    Raises InvalidArgumentError for arguments that fit no overload, and for sizes, strides and a total size that contradict
    each other.
    """

    data_type: DML_TENSOR_DATA_TYPE
    flags: DML_TENSOR_FLAGS
    sizes: list[int]
    strides: list[int] | None
    total_tensor_size_in_bytes: int
    guaranteed_base_offset_alignment: int
    buffer_desc: DML_BUFFER_TENSOR_DESC  # without flags: OWNED_BY_DML is meant for the graph
    tensor: Tensor
    _dtype: np.dtype  # DirectML's names are numpy's, in capitals

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = _resolve(args, kwargs)
        sizes = integers("pydirectml", "TensorDesc.sizes", given["sizes"], 1)
        strides = given["strides"] if "strides" in given else given.get("tensor_policy", TensorPolicy.default).strides(sizes)
        alignment = given.get("guaranteed_base_offset_alignment", 0)
        desc = DML_BUFFER_TENSOR_DESC(
            DataType=given["data_type"], Sizes=sizes, Strides=strides, GuaranteedBaseOffsetAlignment=alignment,
            TotalTensorSizeInBytes=given.get("total_tensor_size_in_bytes"))
        tensor = check_tensor("pydirectml", "TensorDesc", desc, ITEMSIZES, range(1, 9))
        self.__dict__.update(
            data_type=tensor.data_type, flags=given.get("flags", DML_TENSOR_FLAGS.NONE), sizes=list(tensor.sizes),
            strides=None if strides is None else list(tensor.strides), total_tensor_size_in_bytes=tensor.size_in_bytes,
            guaranteed_base_offset_alignment=alignment, buffer_desc=desc, tensor=tensor,
            _dtype=np.dtype(tensor.data_type.name.lower()))

    def __repr__(self) -> str:
        sizes = ",".join(map(str, self.sizes))
        return f"dml.TensorDesc of type {self.data_type.value} and shape [{sizes}] with flags {self.flags.value}"

    def to_memory(self, call: str, data: Any) -> np.ndarray:
        """Copy data into a read-only flat array of the tensor's type, laid out as the tensor's memory. Data end at the last
        element, or at the end of the total size; zeros fill the rest.

        Data for a tensor of floats are converted, with rounding, as PyDirectML does. Data that a tensor of integers cannot hold
        are refused. But float32 data for a tensor of 32-bit integers are taken as their bits: PyDirectML accepts float32 only,
        so that scripts pass integers.view(float32).
        """
        dtype, array = self._dtype, as_array(call, "data", data)
        if dtype.kind in "iu" and dtype.itemsize == 4 and array.dtype == np.float32:
            array = np.ascontiguousarray(array).view(dtype)
        if not np.can_cast(array.dtype, np.float64, "same_kind"):
            raise InvalidArgumentError(call, "data", array.dtype, f"numbers, for a tensor of {self.data_type.name}")
        counts = sorted({size // dtype.itemsize for size in (self.tensor.bytes_of_elements, self.total_tensor_size_in_bytes)})
        if array.size not in counts:
            raise InvalidArgumentError(call, "data", f"{array.size} elements", f"{' or '.join(map(str, counts))}, for {self!r}")
        with np.errstate(invalid="ignore", over="ignore"):
            elements = array.reshape(-1).astype(dtype)
        if dtype.kind in "iu" and not np.array_equal(elements, array.reshape(-1)):
            raise InvalidArgumentError(call, "data", f"{array.dtype} that {dtype} cannot hold", f"whole numbers of {dtype}")
        memory = np.zeros(counts[-1], dtype)
        memory[:array.size] = elements
        return constant(memory)

    def from_memory(self, memory: np.ndarray) -> TensorData:
        """View the tensor's memory, given as bytes, in its type, sizes and strides."""
        return self.tensor.view(memory[:self.tensor.bytes_of_elements].view(self._dtype)).view(TensorData)


class TensorData(np.ndarray):
    """The result of Device.compute: an array of the tensor's type, sizes and strides. TensorData(data) copies data as float32.

    Source: PyDirectML's TensorData, which is always float32.
    """

    __slots__ = ()

    def __new__(cls, data: Any) -> TensorData:
        try:
            with np.errstate(over="ignore"):
                return np.array(data, np.float32, order="C").view(cls)
        except (TypeError, ValueError, OverflowError, MemoryError) as error:
            raise InvalidArgumentError("pydirectml", "TensorData", str(error), "numbers") from None


@dataclass(eq=False, repr=False, slots=True)
class Expression:
    """A tensor in a graph, made by `input_tensor` and the operators. Source: PyDirectML's and DirectMLX's Expression.

    Expression() is empty. Operators return empty ones for outputs that were not asked for.

    builder: the graph that it belongs to. name: of its memory there. desc: its TensorDesc. written: how many bytes of that
    memory have a value.
    """

    builder: Any = None
    name: str = ""
    desc: Any = None
    written: int = 0

    def get_output_desc(self) -> TensorDesc:
        """Return the tensor's TensorDesc. Raises InvalidArgumentError if the expression is empty."""
        return Expression.checked("get_output_desc", "expression", self).desc

    @staticmethod
    def checked(call: str, argument: str, expression: object, builder: GraphBuilder | None = None) -> Expression:
        """Return an expression. Refuses an empty one and, if a builder is given, one of another builder."""
        found = check_type(call, argument, expression, Expression)
        if not found.name:
            raise InvalidArgumentError(call, argument, "an empty Expression", "one that an operator or input_tensor made")
        if builder is not None and found.builder is not builder:
            raise InvalidArgumentError(call, argument, "an Expression of another GraphBuilder", "one of the same GraphBuilder")
        return found


class Binding:
    """Data for an input. Source: PyDirectML's Binding.

    Args:
        expr: what input_tensor returned.
        data: an array of any shape, or a value that np.asarray converts. It holds the elements of the tensor's memory, in
            order, up to the last element or to the end of the total size; zeros fill the rest. They are copied now and
            converted to the tensor's type (PyDirectML always converts to float32).

    Raises InvalidArgumentError for a wrong number of elements, for data that are no numbers, and for numbers that a tensor of
    integers cannot hold.
    """

    __slots__ = ("expression", "memory")

    def __init__(self, expr: Expression, data: Any) -> None:
        self.expression = Expression.checked("Binding", "expr", expr)
        self.memory = self.expression.desc.to_memory(f"Binding of {self.expression.name}", data)


class Device:
    """A Vulkan device with the interface of PyDirectML's Device.

    Args:
        use_gpu: True for vkdml's default device. Without a GPU that is a CPU driver, just as DirectML falls back to WARP. False
            for a CPU driver.
        use_debug_layer: has no effect. VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation in the environment turns Vulkan's
            validation layer on.

    Raises DriverError if there is no such device.
    """

    __slots__ = ("device",)

    def __init__(self, use_gpu: bool = True, use_debug_layer: bool = False) -> None:
        check_type("Device", "use_gpu", use_gpu, int, np.integer, np.bool_)
        drivers = [None] if use_gpu else [info.index for info in VulkanDevice.enumerate() if info.is_cpu]
        if not drivers:
            raise DriverError("no Vulkan driver that runs on the CPU; on Debian and Ubuntu: apt-get install "
                              "mesa-vulkan-drivers; other systems: docs/install.md")
        self.device = VulkanDevice(drivers[0])

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
        if model.builder.device != self.device:
            raise InvalidArgumentError("compute", "model", f"one for {model.builder.device.info.name}",
                                       f"one for {self.device.info.name}")
        values = model.bind(bindings)
        wanted = [Expression.checked("compute", f"outputs[{i}]", output, model.builder)
                  for i, output in enumerate(check_list("compute", "outputs", outputs, Expression))]
        for i, output in enumerate(wanted):
            if output.name not in model.outputs:
                raise InvalidArgumentError("compute", f"outputs[{i}]", output.name, "one of the outputs given to build")
        results = {output.name: ((output.desc.total_tensor_size_in_bytes,), np.uint8) for output in wanted}
        memory = model.execution.run(values, results)
        return [output.desc.from_memory(memory[output.name].copy()) for output in wanted]  # outputs may be listed twice


class GraphBuilder:
    """A graph of expressions, from which models are built. Source: PyDirectML's GraphBuilder, DirectMLX's Graph."""

    __slots__ = ("_nodes", "device", "inputs")

    def __init__(self, device: Device) -> None:
        self.device = check_type("GraphBuilder", "device", device, Device).device
        self.inputs: set[str] = set()
        self._nodes: list[Node] = []

    def build(self, flags: DML_EXECUTION_FLAGS, outputs: Sequence[Expression]) -> Model:
        """Compile the operators that the outputs need. The flags have no effect: sums are always computed in float32.

        Raises InvalidArgumentError for an empty list of outputs, for an input as an output, and for operators that the device
        cannot hold.
        """
        check_type("build", "flags", flags, DML_EXECUTION_FLAGS)
        names = [Expression.checked("build", f"outputs[{i}]", output, self).name
                 for i, output in enumerate(check_list("build", "outputs", outputs, Expression))]
        for i, name in enumerate(names):
            if name in self.inputs:
                raise InvalidArgumentError("build", f"outputs[{i}]", name, "the output of an operator")
        if not names:
            raise InvalidArgumentError("build", "outputs", "none", "at least one Expression")
        needed, nodes = set(names), []
        for node in reversed(self._nodes):
            if not needed.isdisjoint(node.names[field] for field in node.problem.outputs if field in node.names):
                needed.update(node.names.values())
                nodes.append(node)
        return Model(self, nodes[::-1], names)

    def add_operator(self, desc: Any, inputs: Mapping[str, Expression], outputs: Mapping[str, TensorDesc]
                     ) -> dict[str, Expression]:
        """Add an operator. Returns the expressions of its outputs. inputs, outputs: by the structure's fields."""
        made = {field: Expression(self, f"{field} {len(self._nodes)}", output, output.tensor.bytes_of_elements)
                for field, output in outputs.items()}
        names = {field: expression.name for field, expression in {**inputs, **made}.items()}
        self._nodes.append(Node(self.device.create_operator(desc).problem, names))
        return made


class Model:
    """A compiled graph, made by GraphBuilder.build. Source: PyDirectML's Model."""

    __slots__ = ("_read", "builder", "execution", "outputs")

    def __init__(self, builder: GraphBuilder, nodes: Sequence[Node], outputs: Sequence[str]) -> None:
        self.builder = builder
        self.outputs = dict.fromkeys(outputs)
        self.execution = Execution(builder.device.gpu, builder.device.share, nodes, self.outputs)
        self._read = builder.inputs.intersection(name for node in nodes for name in node.names.values())

    def bind(self, bindings: Sequence[Binding | None]) -> dict[str, np.ndarray]:
        """Collect the memory of the inputs, by name. Raises InvalidArgumentError, as Device.compute says."""
        values: dict[str, np.ndarray] = {}
        for i, binding in enumerate(check_list("compute", "bindings", bindings, Binding, NoneType)):
            if binding is None:
                continue
            argument, expression = f"bindings[{i}]", binding.expression
            name = expression.name
            if expression.builder is not self.builder or name not in self.builder.inputs:
                raise InvalidArgumentError("compute", argument, f"{name} of another GraphBuilder or of an operator",
                                           "an input of the model's GraphBuilder")
            if name in values:
                raise InvalidArgumentError("compute", argument, f"a second one for {name}", "one for each input")
            values[name] = binding.memory
        if missing := sorted(self._read - values.keys()):
            raise InvalidArgumentError("compute", "bindings", "none for " + ", ".join(missing), "one for each input")
        return values
