"""DirectML's device, which makes all other objects. An execution packs the weights and biases bound to it if they have changed.

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
from ...engine.vulkan.driver import working
from ...engine.vulkan.gpu import open_device, select_again, select_device
from ...engine.vulkan.memory import COPIED
from ...engine.vulkan.queries import enumerate_devices
from ...engine.vulkan.system import Lock
from ...errors import InvalidArgumentError, check_type, shown
from ...operators import cells, graph_checks
from ...operators import problem as problems
from ...operators import table as operator_checks
from ...operators.checks import is_one_of, unwrap_operator
from ...operators.header.descs import DML_EXECUTION_FLAGS
from ...operators.header.device_descs import DML_BINDING_TABLE_DESC, DML_FEATURE, DML_GRAPH_DESC
from ...planning.device_info import DeviceInfo
from ...planning.options import Options
from .binding import BindingTable, Compiled, Dispatchable, OperatorInitializer, counted
from .compiled_operator import CompiledGraph, CompiledOperator, Named, Operator
from .recorder import CommandRecorder


def _checked_limit(name: str, limit: Any) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int | np.integer) or limit < 0:
        raise InvalidArgumentError("Device", name, shown(limit), "a whole number of bytes")
    return int(limit)


class Device(Named):
    """A Vulkan device that runs DirectML's recurrent operators and those around them (IDMLDevice).

    A process opens each device once. A child process that os.fork makes cannot use it. Once the driver has lost the device
    (DeviceLostError), this object and all that was made on it raise that error; a new Device opens it again. Leaving a `with`
    block of a Device drops the caches on it (`cache_limit`); others that use the device make them again.

    device: an index, UUID, PCI address or a part of a name (in any case) from Device.enumerate(). The default is the value of
    the environment variable VKDML_DEVICE, or else the first GPU, or else the first CPU driver.

    verify: the share of calls on the device to check against the float64 reference, from 0 to 1: evenly spread, the first one
    among them. A wrong result raises VerificationError. An execution of a recorder is a call: it checks each operator that was
    compiled on the same device. The default is the value of the environment variable VKDML_VERIFY, or else 0.

    Raises DriverError if there is no device, or none that matches; InvalidArgumentError for another share.
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
            self.gpu.lock.work(self.gpu.store.clear)

    def _facts(self) -> str:
        return f"on {self.info.name}"

    def __getstate__(self) -> dict[str, Any]:
        """Let another process open the device of this index and name, or else of this name. It does not get the limits."""
        return {"index": self.info.index, "device": self.info.name, "verify": self.verify, "name": self._name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.share, self._name = Share(state["verify"]), state["name"]
        self.gpu = open_device(select_again(state["index"], state["device"]))

    @staticmethod
    def enumerate() -> list[DeviceInfo]:
        """List all Vulkan devices, in the order of their indices."""
        return enumerate_devices()

    @property
    def info(self) -> DeviceInfo:
        """The device's name, driver and limits."""
        return self.gpu.info

    def get_device_removed_reason(self) -> str | None:
        """Say why the device is lost, or return None if it is not (IDMLDevice::GetDeviceRemovedReason)."""
        return self.gpu.driver.lost

    def check_feature_support(self, feature: DML_FEATURE, query: Any) -> Any:
        """Answer a DML_FEATURE_QUERY_* structure with a DML_FEATURE_DATA_* one (IDMLDevice::CheckFeatureSupport).

        FEATURE_LEVELS: the highest of the levels that you ask for, up to 5_0: vkdml has all that this level requires of
        recurrent operators and of its activations. TENSOR_DATA_TYPE_SUPPORT: whether any operator takes tensors of a type.

        Raises InvalidArgumentError for another feature or structure, or if no level that you ask for is supported.
        """
        return operator_checks.check_support(feature, query)

    @property
    def verify(self) -> float:
        """The share of calls that are checked against the reference."""
        return self.share.share

    @property
    def cache_limit(self) -> int:
        """The most bytes of compiled pipelines, scratch buffers and packed weights that the process keeps on this device.

        Above it, those not used for the longest are dropped, and made again when needed. At first 1 GiB. You may set it.
        """
        return self.gpu.store.limit

    @cache_limit.setter
    @working
    def cache_limit(self, limit: int) -> None:
        self.gpu.store.limit = _checked_limit("cache_limit", limit)
        self.gpu.store.drop_oldest()

    @property
    def memory_limit(self) -> int:
        """The most bytes of buffers that the process has on this device, with the host's copies of them.

        A call that would exceed it first drops buffers that are kept but not in use, then takes plans that need less, which
        changes no result, or else raises InvalidArgumentError before anything is allocated. At first the value of the
        environment variable VKDML_MEMORY_BYTES, or else 80% of info.memory. You may set it.
        """
        return self.gpu.memory.limit

    @memory_limit.setter
    @working
    def memory_limit(self, limit: int) -> None:
        self.gpu.memory.limit = _checked_limit("memory_limit", limit)
        self.gpu.memory.free(0)

    @property
    def lock(self) -> Lock:
        """A reentrant context manager, held during every execution. Hold it around writes, an execution and reads that belong
        together.
        """
        return self.gpu.lock

    def selftest(self) -> list[Outcome]:
        """Run each kernel that the device may use, for each cell in each type, and check it against the float64 reference.

        This compiles all of them, in 20 seconds on a CPU driver without a cache. Raises VerificationError, which names the
        device, its driver, the wrong kernels and their errors.
        """
        return expect_right(self.gpu, outcomes(self.gpu))

    def create_operator(self, desc: Any, *, clip: float | None = None) -> Operator:
        """Check an operator descriptor (IDMLDevice::CreateOperator): a DML_OPERATOR_DESC or the structure alone.

        clip: ONNX's attribute of that name, for a recurrent operator. Raises InvalidArgumentError for a wrong descriptor.
        """
        inner = unwrap_operator(desc)
        if clip is None:
            return Operator(operator_checks.from_desc(inner))
        if type(inner) not in cells.BY_DESC:
            raise InvalidArgumentError(type(inner).__name__, "clip", clip, "None: only a recurrent operator has it")
        return Operator(problems.from_desc(inner, clip))

    @working
    def compile_operator(self, operator: Operator, flags: DML_EXECUTION_FLAGS = DML_EXECUTION_FLAGS.NONE,
                         options: Options = Options()) -> CompiledOperator:
        """Plan an operator for this device (IDMLDevice::CompileOperator).

        flags: hints without effect: sums are never in less than float32. options: the parts of the plan that you want to force.

        Raises InvalidArgumentError, before anything is allocated, for an operator too large for the device, or options that the
        device does not support; DriverError for float64 if the driver's arithmetic is not accurate enough; VerificationError if
        the kernels for such an operator fail their test, which unknown drivers, or VKDML_SELFTEST="on", run first.
        """
        check_type("compile_operator", "operator", operator, Operator)
        check_type("compile_operator", "options", options, Options)
        if not is_one_of(flags, [*map(DML_EXECUTION_FLAGS, range(sum(DML_EXECUTION_FLAGS) + 1))]):
            raise InvalidArgumentError("compile_operator", "flags", shown(flags), "DML_EXECUTION_FLAGS")
        return CompiledOperator(self.gpu, operator.problem, options, bool(self.verify))

    def compile_graph(self, desc: DML_GRAPH_DESC, flags: DML_EXECUTION_FLAGS = DML_EXECUTION_FLAGS.NONE,
                      options: Options = Options()) -> CompiledGraph:
        """Compile operators that pass tensors to each other (IDMLDevice1::CompileGraph). flags, options: as for
        compile_operator, for all nodes.

        A graph's inputs may be OWNED_BY_DML where they are weights of all operators that take them. Raises
        InvalidArgumentError naming the node or the edge, before anything is allocated, and what compile_operator raises.
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
        """Create an initializer of one operator, or of a list of them (IDMLDevice::CreateOperatorInitializer).

        For a list, BindingTable.bind_inputs takes a DML_BUFFER_ARRAY_BINDING for each operator.
        """
        return OperatorInitializer(compiled)

    def create_binding_table(self, dispatchable: Dispatchable | DML_BINDING_TABLE_DESC) -> BindingTable:
        """Create an empty table for a compiled operator or an initializer (IDMLDevice::CreateBindingTable)."""
        return BindingTable(dispatchable)

    def create_command_recorder(self) -> CommandRecorder:
        """Create a recorder with nothing recorded (IDMLDevice::CreateCommandRecorder)."""
        return CommandRecorder(self.gpu, self.share)

    @working
    def create_buffer(self, size_in_bytes: int) -> Buffer:
        """Create a buffer in device memory of a multiple of 4 bytes, at most info.max_storage_buffer_range.

        The host's copy starts as zeros; the device's contents are undefined until an upload, or a dispatch that writes them.

        Raises InvalidArgumentError for another size, or above memory_limit; DriverError when the driver fails.
        """
        limit = self.info.max_storage_buffer_range
        if not isinstance(size_in_bytes, int | np.integer) or not 0 < size_in_bytes <= limit or size_in_bytes % 4:
            raise InvalidArgumentError("create_buffer", "size_in_bytes", shown(size_in_bytes),
                                       f"a multiple of 4, from 4 to {limit}")
        self.gpu.memory.make_room("create_buffer", {"size_in_bytes": self.gpu.bytes_of(int(size_in_bytes), COPIED)})
        return self.gpu.made(lambda: Buffer(self.gpu, int(size_in_bytes)))

    def upload(self, array: np.ndarray) -> Buffer:
        """Create a buffer with an array's elements, in C order, of any dtype of numbers. Its size is rounded up to 4 bytes.

        Raises what create_buffer raises.
        """
        check_type("upload", "array", array, np.ndarray)
        buffer = self.create_buffer(-(-array.nbytes // 4) * 4)
        buffer.upload(array)
        return buffer
