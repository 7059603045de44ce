"""The facts about a device that plans depend on, and the layout of several parts in one buffer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..operators.checks import round_up

ALIGNMENT = 256  # bytes: DirectML's alignment of resources, and the largest that Vulkan lets a device require


def laid_out(sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Lay parts out in one buffer. sizes: bytes of each part, by name. Returns the parts' offsets and the buffer's size."""
    places, end = {}, 0
    for name, size in sizes.items():
        places[name] = end
        end += round_up(size, ALIGNMENT)
    return places, end


@dataclass(frozen=True)
class DeviceInfo:
    """A Vulkan device and its limits, sizes in bytes. `profiles` knows more about drivers.

    index: its place in the loader's list. cores: processor cores that this process may use. vendor, device_id: PCI's numbers,
    mostly. driver_id: VkDriverId. compute_units: of a GPU, as its driver counts them. min_subgroup_size, max_subgroup_size: the
    range in which its compiler chooses. memory: the size of the heap that buffers come from. max_allocation: most bytes of one
    allocation. These are 0 if the driver does not report them: driver_id, compute_units, min_subgroup_size, max_subgroup_size,
    max_workgroup_subgroups, memory, max_allocation. unified_memory: whether the host's memory is the device's.
    storage_buffer_alignment: of a tensor's offset in a buffer, at most 256. subgroup_size_control: whether a dispatch may
    require a subgroup size. storage_16bit: whether shaders may access single 16-bit elements of buffers. pipeline_cache_uuid:
    identifies the driver's build, in hexadecimal; empty if unknown. queue_family, host_memory_type: the indices of the queues,
    and of the memory visible to the host, that are used. upload_memory_type: of memory that the host only writes.
    direct_memory_type: of device memory that the host sees. uuid: the device's. pci_address: as lspci writes it, 0000:01:00.0;
    empty if the driver does not report it. shares_memory: whether other APIs can import its memory.
    """

    index: int
    name: str
    type: str
    driver: str
    driver_version: str
    api_version: str
    subgroup_size: int
    subgroup_shuffle: bool
    max_workgroup_invocations: int
    max_workgroup_count: int
    max_shared_memory: int
    max_storage_buffer_range: int
    max_storage_buffers: int
    cores: int = 1
    vendor: int = 0
    device_id: int = 0
    driver_id: int = 0
    compute_units: int = 0
    min_subgroup_size: int = 0
    max_subgroup_size: int = 0
    max_workgroup_subgroups: int = 0
    unified_memory: bool = False
    memory: int = 0
    max_allocation: int = 0
    storage_buffer_alignment: int = 256
    subgroup_size_control: bool = False
    storage_16bit: bool = False
    pipeline_cache_uuid: str = ""
    queue_family: int = 0
    host_memory_type: int = -1
    direct_memory_type: int = -1
    upload_memory_type: int = -1
    uuid: str = ""
    pci_address: str = ""
    shares_memory: bool = False

    @property
    def with_driver(self) -> str:
        return f"{self.name} ({self.driver} {self.driver_version})"

    def answers_to(self, wanted: int | str) -> int:
        """Rate how well a word names this device: 2 for its index, UUID or PCI address, 1 for a part of its name, else 0.

        Case is ignored. The forms of other tools count too: GPU-... before the UUID, 00000000:01:00.0 and 01:00.0.
        """
        if not isinstance(wanted, str):
            return 2 * (wanted == self.index)
        word = wanted.lower()
        if word.removeprefix("gpu-") == self.uuid or word in (
                str(self.index), self.pci_address, f"0000{self.pci_address}", self.pci_address.removeprefix("0000:")):
            return 2
        return int(word in self.name.lower() and not word.isdigit())  # a wrong index would match digits in names

    def has_subgroups_of(self, size: int, workgroup: int) -> bool:
        """Whether a dispatch with workgroups of this many invocations may require subgroups of this size."""
        return (self.subgroup_size_control and self.min_subgroup_size <= size <= self.max_subgroup_size
                and size & size - 1 == 0 and workgroup <= size * self.max_workgroup_subgroups)

    @property
    def is_cpu(self) -> bool:
        return self.type == "cpu"
