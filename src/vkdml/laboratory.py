"""The inside of the package, as far as tools/ and bench/ use it: what is not public they import from here alone.

So whoever rearranges the package has one list to keep true. It is no interface for users, and changes with any commit. Nothing
in the package imports it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

# Processes that may crash, and reports
from .cli.conformance import on_device as conformance_on
from .cli.processes import Worker, WorkerError, supervise
from .cli.reports import as_json, bullets, cell, document, table, write

# What is planned: a problem on a device has candidates (tilings), one of which becomes a plan, which is dispatches
from .faces import sessions
from .planning.candidates import Planner, best_of_each_way
from .planning.dispatches import Dispatch
from .planning.gpus import GPUS, GpuRates
from .planning.loop_dispatches import time_loop
from .planning.measured import described
from .planning.options import SCHEDULES
from .planning.plain import plan as plan_plain
from .planning.plan import Plan, plan, plan_of
from .planning.profiles import PRIVATE_ARRAYS, PROFILES, compute_units, gpu_rates, profile
from .planning.tiling import Tiling

# What runs: a device, kernels, recorded commands; a plan tried on a problem's tensors; the tuner, and where it keeps choices
from .runtime import commands, device, kernels, operator
from .runtime.choices import folder as folder_of_choices
from .runtime.commands import Commands
from .runtime.device import KP_VERSION, Gpu, Kernel, open_device, select_device
from .runtime.kernels import load as load_kernel
from .runtime.kernels import of_spirv
from .runtime.self_test import ACTIVATION, PLAIN_PROBLEMS, outcomes_of, types_of
from .runtime.trial import Run, Trial
from .runtime.tuner import ON, Tuner

# What is computed: the tables of cells, activations and types, and problems
from .spec.activations import BY_DESC as ACTIVATIONS
from .spec.cells import BY_DESC as CELLS
from .spec.cells import GRU, LSTM, RNN, Cell
from .spec.element_types import ALL as ELEMENT_TYPES
from .spec.element_types import FLOAT32, FLOAT64, ElementType
from .spec.plain import PlainProblem
from .spec.problem import Problem, from_desc
from .spec.whole_numbers import ceil_div


def as_in_a_new_process() -> None:
    """Forget the devices that are open, and all that calls without a device have kept."""
    sessions.shared_sessions = sessions.Sessions(kept=16)
    sessions._devices.clear()
    device._open.clear()
    gc.collect()


@contextmanager
def without_barriers() -> Iterator[None]:
    """Recordings meanwhile leave out all barriers, so that validation has something to find."""
    with patch.object(commands._Builder, "_dependencies", lambda builder, operation: set()):
        yield


@contextmanager
def without_float64_check() -> Iterator[None]:
    """Devices that fail the self-test of float64 compute in it meanwhile."""
    with patch.object(operator, "check_float64"):
        yield


@contextmanager
def with_kernel(name: str, spirv: bytes) -> Iterator[None]:
    """All kernels are this one meanwhile."""
    with patch.object(kernels, "load", lambda _: of_spirv(name, spirv)):
        yield
