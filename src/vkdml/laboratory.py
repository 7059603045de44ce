"""The internals that vkdml_lab uses. It imports public names from their modules, and all other names from here.

So there is one list to update when the package is rearranged. It is no interface for users: any commit may change it. Nothing
in the package imports it.
"""

from __future__ import annotations

import gc
from contextlib import AbstractContextManager
from unittest.mock import patch

# Arguments and output of commands
from .cli.common import DEVICE, add_common, count, existing_file, print_json, read_npy

# Devices, kernels, recorded commands; plans tried on a problem's tensors; the tuner, and the folder of its choices
from .engine.commands import Commands
from .engine.trust import self_test
from .engine.trust.choices import folder as folder_of_choices
from .engine.trust.self_test import PLAIN_PROBLEMS, types_of
from .engine.trust.trial import Meeting, Run, Trial, plans_of_test, random_memory, workgroups_meet
from .engine.trust.tuner import ON, Tuner, likely
from .engine.vulkan import driver, files, queries, structures, system
from .engine.vulkan import gpu as devices
from .engine.vulkan import spirv as kernels
from .engine.vulkan.gpu import KP_VERSION, Gpu, Kernel, Submission, open_device, select_device
from .engine.vulkan.spirv import load as load_kernel
from .engine.vulkan.spirv import of_spirv
from .engine.weights import Contents, Snapshot

# Planning: a problem on a device has candidates (tilings), one of which becomes a plan, which is a list of dispatches
from .faces import functional, sessions
from .faces.directml.binding import Compiled, Dispatchable

# Operators: the tables of cells, activations and element types, and checked problems
from .operators.activations import BY_DESC as ACTIVATIONS
from .operators.cells import BY_DESC as CELLS
from .operators.cells import GRU, LSTM, RNN, Cell
from .operators.checks import MAX_TENSOR_BYTES, OPERATOR_TYPES, CheckedOperator, Tensor, ceil_div, round_up
from .operators.correctness import differences, with_sequence
from .operators.element_types import ALL as ELEMENT_TYPES
from .operators.element_types import FLOAT32, FLOAT64, ITEMSIZES, ElementType
from .operators.graph_checks import check_graph, nodes_of
from .operators.header import descs, device_descs
from .operators.plain_problem import MovedProblem, PlainProblem
from .operators.problem import Problem, from_desc
from .operators.table import from_desc as from_any_desc
from .planning import families
from .planning.device_info import DeviceInfo
from .planning.dispatches import Dispatch
from .planning.gpus import GPUS, GpuRates
from .planning.loop_dispatches import time_loop
from .planning.options import PERSISTENT, SCHEDULES, SEQUENCE, STEPPED, Options, Schedule
from .planning.plain import plan as plan_plain
from .planning.plan import Plan, best, best_of_each_schedule, described, plan, plan_of, tilings
from .planning.profiles import PRIVATE_ARRAYS, PROFILES, DeviceProfile, Rates, compute_units, gpu_rates, profile
from .planning.tiling import MEETING, STATE, Target, Tiling


def as_in_a_new_process() -> None:
    """Forget all open devices and sessions, as if the process had just started."""
    functional.shared_session = sessions.Session()
    sessions._devices.clear()
    devices._open.clear()
    gc.collect()


def plans_of_first_call(problem: Problem, info: DeviceInfo) -> dict[str, list[Plan]]:
    """List the plans that a first call compiles on an unknown GPU, by their purpose."""
    target = Target(problem, info)
    timed = likely(target)
    sizes = dict.fromkeys(tiling.loop.subgroup_size for tiling in timed if tiling.loop.schedule == PERSISTENT)
    return {"its plan": [plan(problem, info)],
            "meetings": [one for size in sizes for one in plans_of_test(info, Meeting(problem.cell, size))],
            "tuning": [plan_of(target, tiling) for tiling in timed]}


def without_barriers() -> AbstractContextManager[object]:
    """Record no barriers in this context, so that validation has something to find."""
    return patch.object(devices.Submission, "barrier")


def with_timeout(seconds: float) -> AbstractContextManager[object]:
    """Treat devices that are opened in this context as lost when a submission takes this many seconds."""
    return patch.object(driver, "TIMEOUT", seconds)


def without_float64_check() -> AbstractContextManager[object]:
    """Let devices that fail the self-test of float64 compute in it, in this context."""
    return patch.object(self_test, "check_float64")


def with_kernel(name: str, spirv: bytes) -> AbstractContextManager[object]:
    """Replace the kernel of this name in this context. spirv: its code."""
    load = kernels.load
    return patch.object(kernels, "load", lambda asked: of_spirv(name, spirv) if asked == name else load(asked))
