"""The facts about a device that plans are made of, and how parts are laid out in one of its buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..operators.whole_numbers import round_up

ALIGNMENT = 256  # DirectML's of resources, and the largest that Vulkan lets a device ask for


def laid_out(sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Offsets at which the named parts of so many bytes begin in one buffer, and that buffer's size."""
    places, end = {}, 0
    for name, size in sizes.items():
        places[name] = end
        end += round_up(size, ALIGNMENT)
    return places, end


@dataclass(frozen=True)
class DeviceInfo:
    """A Vulkan device and its limits, sizes in bytes. What is known of its driver beyond them is in `profiles`.

    index: its place in the loader's list. cores: of the processor that this process may run on. vendor, device_id: mostly
    those of PCI. driver_id: Vulkan's number for the driver, VkDriverId. unified_memory: the host's memory is the device's.
    memory: the size of the heap that buffers come from. Where the driver does not say, these are 0: driver_id; compute_units,
    what a GPU's driver calls so; min_subgroup_size and max_subgroup_size, between which its compiler chooses;
    max_workgroup_subgroups; memory; max_allocation, the most bytes of one allocation. storage_buffer_alignment: of where a
    tensor begins in a buffer; Vulkan allows no more than 256. subgroup_size_control: a dispatch may say which size of
    subgroups it needs. storage_16bit: shaders may read and write 16 bits of a buffer. pipeline_cache_uuid: of the driver's
    build, in hexadecimal, empty where it is not known. queue_family, host_memory_type: the driver's numbers for the queues,
    and for the memory that the host sees, which are taken. uuid: the device's own. pci_address: as lspci has it,
    0000:01:00.0; empty where the driver does not say.
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
    uuid: str = ""
    pci_address: str = ""

    @property
    def with_driver(self) -> str:
        return f"{self.name} ({self.driver} {self.driver_version})"

    def answers_to(self, wanted: int | str) -> int:
        """2 for its index, UUID or PCI address, 1 for a part of its name, in any case, that is no number alone; else 0.

        Also as tools write them: GPU-... before the UUID, 00000000:01:00.0 and 01:00.0.
        """
        if not isinstance(wanted, str):
            return 2 * (wanted == self.index)
        word = wanted.lower()
        if word.removeprefix("gpu-") == self.uuid or word in (
                str(self.index), self.pci_address, f"0000{self.pci_address}", self.pci_address.removeprefix("0000:")):
            return 2
        return int(word in self.name.lower() and not word.isdigit())  # an index that there is not is in many names

    def has_subgroups_of(self, size: int, workgroup: int) -> bool:
        """Whether a dispatch with workgroups of so many invocations may say that it needs subgroups of this size."""
        return (self.subgroup_size_control and self.min_subgroup_size <= size <= self.max_subgroup_size
                and size & size - 1 == 0 and workgroup <= size * self.max_workgroup_subgroups)

    @property
    def is_cpu(self) -> bool:
        return self.type == "cpu"
