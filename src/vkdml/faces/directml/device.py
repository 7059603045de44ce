"""DirectML's device, which makes all other objects.

The life cycle is DirectML's: create, compile, initialize, bind, record, execute. Weights and biases are bound to an
execution, which packs them when they have changed. Described as OWNED_BY_DML, which DirectML does not support for recurrent
operators, they are bound to the initializer, which packs them once.

Source: DirectML's API reference, the interfaces IDMLDevice, IDMLOperator, IDMLCompiledOperator, IDMLOperatorInitializer,
IDMLBindingTable and IDMLCommandRecorder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...engine.compiled import Share
from ...engine.trust.self_test import Outcome, expect_right, outcomes
from ...engine.vulkan.buffers import Buffer
from ...engine.vulkan.gpu import open_device, select_again, select_device
from ...engine.vulkan.queries import enumerate_devices
from ...engine.vulkan.system import Lock
from ...errors import InvalidArgumentError, check_type, shown
from ...operators import cells, graph_checks
from ...operators import problem as problems
from ...operators import table as operator_checks
from ...operators.checks import unwrap_operator
from ...operators.header.descs import DML_EXECUTION_FLAGS
from ...operators.header.device_descs import DML_BINDING_TABLE_DESC, DML_FEATURE, DML_GRAPH_DESC
from ...planning.device_info import DeviceInfo
from ...planning.options import Options
from .binding import BindingTable, Compiled, Dispatchable, OperatorInitializer, counted
from .compiled_operator import CompiledGraph, CompiledOperator, Named, Operator
from .recorder import CommandRecorder


def _opened_again(index: int, name: str, verify: float) -> Device:
    return Device(select_again(index, name).index, verify=verify)


def _checked_limit(name: str, limit: Any) -> int:
    if type(limit) is not int or limit < 0:
        raise InvalidArgumentError("Device", name, shown(limit), "a whole number of bytes")
    return int(limit)


class Device(Named):
    """A Vulkan device that runs DirectML's recurrent operators and those around them (IDMLDevice).

    device: an index, UUID, PCI address or a part of a name (in any case) from Device.enumerate(). By default what the
    environment variable VKDML_DEVICE says, which is one of these, or else the first GPU, or else the first CPU driver. It is
    opened once in a process, and in a child process that os.fork made of that one it cannot be used. Once the driver has lost
    it (DeviceLostError), this object and all that was made on it raise that error, and a new Device opens it anew. Leaving a
    `with` block of one drops what the process keeps on it (`cache_limit`); others that use the device make it again.

    verify: which share of the calls on it to check against the float64 reference, from 0 to 1: evenly spread, the first one
    among them. A wrong result raises VerificationError. An execution of a recorder is a call: it checks each operator that was
    compiled on the same device. By default what the environment variable VKDML_VERIFY says, or else 0.

    Raises DriverError when there is none, or none that matches; InvalidArgumentError for another share.
    """

    def __init__(self, device: int | str | None = None, *, verify: float | None = None) -> None:
        self.share = Share(verify)
        self.gpu = open_device(select_device(device))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.gpu is other.gpu and self.verify == other.verify

    def __hash__(self) -> int:
        return hash((self.gpu, self.verify))

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *raised: object) -> None:
        if not self.gpu.driver.lost:
            with self.gpu.lock:
                self.gpu.store.clear()

    @property
    def _facts(self) -> str:
        return f"on {self.info.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the device of this index and name, or else of this name; limits that were set stay here."""
        return _opened_again, (self.info.index, self.info.name, self.verify), {"_name": self._name}

    @staticmethod
    def enumerate() -> list[DeviceInfo]:
        """All Vulkan devices, in the order of their indices."""
        return enumerate_devices()

    @property
    def info(self) -> DeviceInfo:
        """The device's name, driver and limits."""
        return self.gpu.info

    def get_device_removed_reason(self) -> str | None:
        """Why the device is lost and cannot be used any more; None: it can be (IDMLDevice::GetDeviceRemovedReason)."""
        return self.gpu.driver.lost

    def check_feature_support(self, feature: DML_FEATURE, query: Any) -> Any:
        """Answer a DML_FEATURE_QUERY_* structure with a DML_FEATURE_DATA_* one (IDMLDevice::CheckFeatureSupport).

        FEATURE_LEVELS: the highest of those that are asked for, up to 5_0, the last one of which all that it says of recurrent
        operators, and of the activations that are here, is here. TENSOR_DATA_TYPE_SUPPORT: whether any operator here takes
        tensors of a type.

        Raises InvalidArgumentError for another feature or structure, and where no level that is asked for is supported.
        """
        return operator_checks.check_support(feature, query)

    @property
    def verify(self) -> float:
        """The share of calls that are checked."""
        return self.share.share

    @property
    def cache_limit(self) -> int:
        """Bytes of what the process keeps on this device at most: compiled pipelines, scratch buffers and packed weights.

        What was not used for the longest is dropped, and made again when it is needed. At first 1 GiB. May be set.
        """
        return self.gpu.store.limit

    @cache_limit.setter
    def cache_limit(self, limit: int) -> None:
        checked = _checked_limit("cache_limit", limit)
        with self.gpu.lock:
            self.gpu.store.limit = checked

    @property
    def memory_limit(self) -> int:
        """Bytes of all buffers that the process has on this device at most, with the host's copies of them.

        Before a call goes above it, those are dropped that are kept but not in use; then it gets plans that need less, which
        changes no result; or else an InvalidArgumentError refuses it before anything is allocated. At first what the
        environment variable VKDML_MEMORY_BYTES says, or else 80% of info.memory. May be set.
        """
        return self.gpu.memory.limit

    @memory_limit.setter
    def memory_limit(self, limit: int) -> None:
        self.gpu.memory.limit = _checked_limit("memory_limit", limit)

    @property
    def lock(self) -> Lock:
        """A reentrant context manager, held during every execution.

        Hold it around writes, an execution and reads that belong together.
        """
        return self.gpu.lock

    def selftest(self) -> list[Outcome]:
        """Run each kernel that the device may be given, for each cell in each type, and check it by the float64 reference.

        It compiles all of them, which takes a CPU driver 20 seconds where nothing was kept from before.
        Raises VerificationError, which names the device, its driver, and what is wrong with which kernels.
        """
        return expect_right(self.gpu, outcomes(self.gpu))

    def create_operator(self, desc: Any, *, clip: float | None = None) -> Operator:
        """Check an operator descriptor (IDMLDevice::CreateOperator): a DML_OPERATOR_DESC or the structure alone.

        clip: ONNX's attribute of that name, for a recurrent operator.

        Raises InvalidArgumentError, before anything is allocated.
        """
        inner = unwrap_operator(desc)
        if clip is None:
            return Operator(operator_checks.from_desc(inner))
        if type(inner) not in cells.BY_DESC:
            raise InvalidArgumentError(type(inner).__name__, "clip", clip, "None: only a recurrent operator has it")
        return Operator(problems.from_desc(inner, clip))

    def compile_operator(self, operator: Operator, flags: DML_EXECUTION_FLAGS = DML_EXECUTION_FLAGS.NONE,
                         options: Options = Options()) -> CompiledOperator:
        """Plan an operator for this device (IDMLDevice::CompileOperator).

        flags: hints that change nothing here: sums are never in less than float32. options: what to force in the plan.

        Raises InvalidArgumentError for what the device cannot hold and for options that it cannot have, before anything is
        allocated; DriverError for float64 where the driver's arithmetic is not accurate enough; VerificationError where the
        driver is not a known one, or VKDML_SELFTEST is "on", and its kernels for such an operator compute wrongly.
        """
        check_type("compile_operator", "operator", operator, Operator)
        check_type("compile_operator", "options", options, Options)
        if not isinstance(flags, int) or flags & ~sum(DML_EXECUTION_FLAGS):
            raise InvalidArgumentError("compile_operator", "flags", shown(flags), "DML_EXECUTION_FLAGS")
        return CompiledOperator(self.gpu, operator.problem, options, bool(self.verify))

    def compile_graph(self, desc: DML_GRAPH_DESC, flags: DML_EXECUTION_FLAGS = DML_EXECUTION_FLAGS.NONE,
                      options: Options = Options()) -> CompiledGraph:
        """Compile operators that pass tensors to each other (IDMLDevice1::CompileGraph). flags, options: as of
        compile_operator, for all.

        Inputs with weights may be OWNED_BY_DML, for all operators that they go to. Raises InvalidArgumentError naming the
        node or the edge, before anything is allocated, and what compile_operator raises.
        """
        nodes = graph_checks.nodes_of(desc)
        for i, node in enumerate(nodes):
            check_type(graph_checks.NAME, f"Nodes[{i}].Operator", node.Operator, Operator)
        graph = graph_checks.check_graph(desc, [node.Operator.problem for node in nodes])
        compiled = [self.compile_operator(node.Operator, flags, options) for node in nodes]
        for operator, node in zip(compiled, nodes):
            operator.set_name(node.Operator.name if node.Name is None else node.Name)
        return CompiledGraph(graph, compiled)

    @counted
    def create_operator_initializer(self, compiled: Compiled | Sequence[Compiled]) -> OperatorInitializer:
        """An initializer of one operator, or of a list of them (IDMLDevice::CreateOperatorInitializer).

        Of one operator its binding table takes inputs as that of an execution does; of a list, a DML_BUFFER_ARRAY_BINDING for
        each.
        """
        return OperatorInitializer(compiled)

    def create_binding_table(self, dispatchable: Dispatchable | DML_BINDING_TABLE_DESC) -> BindingTable:
        """A table with nothing bound, for a compiled operator or an initializer (IDMLDevice::CreateBindingTable)."""
        return BindingTable(dispatchable)

    def create_command_recorder(self) -> CommandRecorder:
        """A recorder with nothing recorded (IDMLDevice::CreateCommandRecorder)."""
        return CommandRecorder(self.gpu, self.share)

    def create_buffer(self, size_in_bytes: int) -> Buffer:
        """Device memory of a multiple of 4 bytes, at most info.max_storage_buffer_range.

        The host's copy starts as zeros; what the device has is undefined until it is uploaded or written there.

        Raises InvalidArgumentError for another size, or above memory_limit; DriverError when the driver fails.
        """
        limit = self.info.max_storage_buffer_range
        if not isinstance(size_in_bytes, int | np.integer) or not 0 < size_in_bytes <= limit or size_in_bytes % 4:
            raise InvalidArgumentError("create_buffer", "size_in_bytes", shown(size_in_bytes),
                                       f"a multiple of 4, from 4 to {limit}")
        self.gpu.memory.make_room("create_buffer", {"size_in_bytes": self.gpu.bytes_of(int(size_in_bytes), True)})
        return self.gpu.made(lambda: Buffer(self.gpu, int(size_in_bytes)))

    def upload(self, array: np.ndarray) -> Buffer:
        """A new buffer with an array's elements, in C order, of any dtype of numbers. Its size is rounded up to 4 bytes.

        Raises what create_buffer raises.
        """
        check_type("upload", "array", array, np.ndarray)
        buffer = self.create_buffer(-(-array.nbytes // 4) * 4)
        buffer.upload(array)
        return buffer
