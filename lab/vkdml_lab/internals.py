"""Imports all private names of vkdml that this package uses outside of suite/ and fuzz/, so that one list has them."""

from __future__ import annotations

import gc
from contextlib import AbstractContextManager
from unittest.mock import patch

# Arguments and output of commands
from vkdml.cli.common import DEVICE, count

# Devices, kernels, recorded commands; trials that run plans on a problem's tensors; the tuner and the folder of its choices
from vkdml.engine.commands import Commands
from vkdml.engine.trust import self_test
from vkdml.engine.trust.choices import folder as folder_of_choices
from vkdml.engine.trust.self_test import PLAIN_PROBLEMS, types_of
from vkdml.engine.trust.trial import GridSync, Run, Trial, forward_problem, grid_sync_test, plans_of_test, random_memory
from vkdml.engine.trust.tuner import ON, Tuner, likely
from vkdml.engine.vulkan import driver, files, queries, structures, system
from vkdml.engine.vulkan import gpu as devices
from vkdml.engine.vulkan import spirv as kernels
from vkdml.engine.vulkan.gpu import KP_VERSION, Gpu, Kernel, Submission, open_device, select_device
from vkdml.engine.vulkan.spirv import load as load_kernel
from vkdml.engine.vulkan.spirv import of_spirv

# Planning: a problem has candidates (tilings) on a device; one becomes a plan, which is a list of dispatches
from vkdml.faces import functional, sessions
from vkdml.faces.directml.binding import Compiled

# Operators: the tables of cells, activations and element types, and checked problems
from vkdml.operators.activations import BY_DESC as ACTIVATIONS
from vkdml.operators.cells import ALL as ALL_CELLS
from vkdml.operators.cells import BY_DESC as CELLS
from vkdml.operators.cells import GRU, LSTM, RNN, Cell
from vkdml.operators.checks import Tensor, ceil_div, round_up
from vkdml.operators.correctness import differences, with_sequence
from vkdml.operators.element_types import ALL as ELEMENT_TYPES
from vkdml.operators.element_types import FLOAT32, FLOAT64, ElementType
from vkdml.operators.header import descs
from vkdml.operators.plain_problem import MovedProblem, PlainProblem
from vkdml.operators.problem import Problem, from_desc
from vkdml.planning import families
from vkdml.planning.device_info import DeviceInfo
from vkdml.planning.dispatches import Dispatch
from vkdml.planning.gpus import GPUS, GpuRates
from vkdml.planning.loop_dispatches import time_loop
from vkdml.planning.options import PERSISTENT, SCHEDULES, SEQUENCE, STEPPED, Options, Schedule
from vkdml.planning.plain import plan as plan_plain
from vkdml.planning.plan import Plan, best, best_of_each_schedule, described, plan, plan_of, tilings
from vkdml.planning.profiles import PRIVATE_ARRAYS, PROFILES, DeviceProfile, Rates, compute_units, gpu_rates, profile
from vkdml.planning.tiling import STATE, Target, Tiling


def as_in_a_new_process() -> None:
    """Forget all open devices and sessions, as if the process had just started."""
    functional.shared_session = sessions.Session()
    sessions._devices.clear()
    devices._open.clear()
    gc.collect()


def plans_of_first_call(problem: Problem, info: DeviceInfo) -> dict[str, list[Plan]]:
    """Return the plans whose kernels a problem's first call on a GPU compiles, by purpose, such as "tuning"."""
    target = Target(problem, info)
    timed = likely(target)
    tested = {str(sync.facts): sync for tiling in timed if tiling.loop.schedule == PERSISTENT for sync in [GridSync.of(tiling)]}
    return {"its plan": [plan(problem, info)],
            "grid-sync test": [one for sync in tested.values() for one in plans_of_test(info, sync)],
            "tuning": [plan_of(target, tiling) for tiling in timed]}


def without_barriers() -> AbstractContextManager[object]:
    """Let vkdml record no barriers in this context. Validation must report that they are missing."""
    return patch.object(devices.Submission, "barrier")


def with_timeout(seconds: float) -> AbstractContextManager[object]:
    """Let devices that are opened in this context count as lost once a submission has run for this many seconds."""
    return patch.object(driver, "TIMEOUT", seconds)


def without_float64_check() -> AbstractContextManager[object]:
    """Let devices compute float64 in this context without the self-test, which they might fail."""
    return patch.object(self_test, "check_float64")


def with_kernel(name: str, spirv: bytes) -> AbstractContextManager[object]:
    """Replace the kernel `name` by the SPIR-V `spirv` in this context."""
    load = kernels.load
    return patch.object(kernels, "load", lambda asked: of_spirv(name, spirv) if asked == name else load(asked))


def tensors_through_the_host(is_wanted: bool) -> AbstractContextManager[object]:
    """Let converted PyTorch modules that first run in this context copy tensors through the host, if `is_wanted`."""
    return patch.dict("vkdml.faces.torch.transfers.APIS", {}, clear=is_wanted)
