"""Runs all of vkdml with a GPU's driver but without the GPU: a layer, a stack and a stream; then each cell, element type and
schedule, with lengths and both directions.

    python -m vkdml_lab.gpu.exercise [control]     in a process that lab/vkdml_lab/gpu/drivers.py has set up

Submissions do nothing, so results are ignored. These runs test the host's code for GPUs, and validation may watch them.
`control` runs only a layer, without barriers, which validation must report.
"""

from __future__ import annotations

import sys
from itertools import product

from vkdml import Device, DriverError, InvalidArgumentError, Options
from vkdml_lab.gpu.calls import CALLS
from vkdml_lab.gpu.measure import FORCED, STEPPED
from vkdml_lab.internals import (
    ELEMENT_TYPES,
    FLOAT32,
    FLOAT64,
    GRU,
    RNN,
    Cell,
    ElementType,
    without_barriers,
    without_float64_check,
)
from vkdml_lab.suite.support import CELLS, drawn_case, make_desc, run_on_device

_SMALL, _LARGE = (5, 3, 6, 20), (4, 9, 40, 300)  # T, B, I, H; the large one's weights do not fit on a core


def run_problem(device: Device, cell: Cell, element: ElementType, sizes: tuple[int, int, int, int], options: Options,
                **flags: bool) -> None:
    run_on_device(device, drawn_case(make_desc(cell, *sizes, 2, element.data_type, **flags), element=element), options)


def expect_refusal(device: Device) -> None:
    """Exit with an error unless vkdml refuses float64, whose self-test must fail where nothing is computed."""
    try:
        run_problem(device, RNN, FLOAT64, _SMALL, Options())
    except DriverError:
        return
    raise SystemExit("float64's self-test passed where nothing is computed")


def everything(device: Device) -> tuple[int, int]:
    """Run each cell, element type, schedule and flag, in two sizes. Returns how many ran, and how many vkdml refused."""
    ran = refused = 0
    for cell, element, options in product(CELLS, ELEMENT_TYPES, FORCED.values()):
        for values in product((False, True), repeat=len(cell.flags)):
            for sizes in (_SMALL, _LARGE):
                try:
                    run_problem(device, cell, element, sizes, options, **dict(zip(cell.flags, values)))
                    ran += 1
                except InvalidArgumentError:
                    refused += 1
    return ran, refused


def main() -> int:
    device = Device()
    if sys.argv[1:] == ["control"]:
        with without_barriers():
            run_problem(device, GRU, FLOAT32, _SMALL, FORCED[STEPPED])
        return 0
    expect_refusal(device)
    for name in ("layer", "stack", "stream"):
        call = CALLS[name]()
        call()
        call()
    with without_float64_check():  # runs its kernels nevertheless
        ran, refused = everything(device)
    print(f"{device.info.name}: {ran} problems ran, {refused} are refused", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
