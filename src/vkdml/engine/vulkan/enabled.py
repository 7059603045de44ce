"""What a device is opened with, beyond what every device has, and what of SPIR-V that permits: a table."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

from ...errors import DriverError
from ...planning.device_info import DeviceInfo
from . import structures
from .spirv import CompiledKernel

# What Vulkan 1.1 takes of every device: Matrix, Shader; and GroupNonUniform and its kinds, which a device may lack without that
# a feature says so (planning asks for DeviceInfo.subgroup_shuffle)
_ALWAYS = {0, 1, *range(61, 69)}
_NAMES = {9: "Float16", 10: "Float64", 11: "Int64", 22: "Int16", 39: "Int8", 4433: "StorageBuffer16BitAccess",
          4448: "StorageBuffer8BitAccess", 5345: "VulkanMemoryModel", 6019: "DotProduct", 6022: "CooperativeMatrixKHR"}


@dataclass(frozen=True)
class _Feature:
    """fact: the field of DeviceInfo that says whether a device has it. extension: to be enabled with it. capabilities: of
    SPIR-V, by their numbers.
    """

    fact: str
    structure: type[structures.Chained]
    name: str
    extension: str = ""
    capabilities: frozenset[int] = field(default_factory=frozenset)


_FEATURES = (
    _Feature("storage_16bit", structures.Storage16BitFeatures, "storageBuffer16BitAccess", capabilities=frozenset([4433])),
    _Feature("subgroup_size_control", structures.SubgroupSizeControlFeatures, "subgroupSizeControl",
             "VK_EXT_subgroup_size_control"),
)


class Enabled:
    """The features that a device is opened with: those that vkdml uses and the device has.

    extensions: their names. address: of the first of Vulkan's structures, which are linked, while this lives; 0: there is none.
    """

    def __init__(self, info: DeviceInfo) -> None:
        self._info = info
        features = [feature for feature in _FEATURES if getattr(info, feature.fact)]
        self.extensions = [feature.extension for feature in features if feature.extension]
        self._capabilities = _ALWAYS.union(*(feature.capabilities for feature in features))
        self._chain: list[Any] = []
        self.address = 0
        for feature in features:
            self._chain.append(feature.structure(sType=feature.structure.TYPE, pNext=self.address or None, **{feature.name: 1}))
            self.address = ctypes.addressof(self._chain[-1])

    def check(self, kernel: CompiledKernel, subgroup_size: int, workgroup: int) -> None:
        """Raises DriverError where a kernel needs what is not enabled. subgroup_size: that it relies on; 0: any."""
        missing = sorted(kernel.interface.capabilities - self._capabilities)
        if missing:
            needs = {number: f" (feature {feature.name})" for feature in _FEATURES for number in feature.capabilities}
            names = ", ".join(f"{_NAMES.get(number, number)}{needs.get(number, '')}" for number in missing)
            raise DriverError(f"{kernel.name} needs SPIR-V's capability {names}, which is not enabled on {self._info.name}")
        if subgroup_size and not self._info.has_subgroups_of(subgroup_size, workgroup):
            found = (f"{self._info.min_subgroup_size} to {self._info.max_subgroup_size}, at most "
                     f"{self._info.max_workgroup_subgroups} a workgroup" if self._info.subgroup_size_control
                     else "no feature subgroupSizeControl")
            raise DriverError(f"{kernel.name} needs workgroups of {workgroup} with subgroups of {subgroup_size}, and "
                              f"{self._info.name} has {found}")
