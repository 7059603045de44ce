"""The facts about a device that plans are made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceInfo:
    """A Vulkan device and its limits, sizes in bytes. What is known of its driver beyond them is in `profiles`.

    index: its place in the loader's list. cores: of the processor that this process may run on.
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

    @property
    def is_cpu(self) -> bool:
        return self.type == "cpu"
