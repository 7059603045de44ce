"""Chooses a few seeds of each test of random problems for `make test`: those that find the most planted mistakes.

    python -m lab.tests.choosing            # prints how many mistakes such choices find; takes minutes
    python -m lab.tests.choosing --write    # chooses, and writes lab/vkdml_lab/suite/sharpest.json

A planted mistake is a wrong variant of the float64 reference (test_mutations.py). No device is needed.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from statistics import fmean
from unittest.mock import patch

import numpy as np
from tabulate import tabulate

from lab.tests.test_mutations import (
    EQUATIONS,
    FUNCTIONS,
    LISTS,
    attributes_of,
    by_reference,
    mutated,
    run_with,
    seeds_of,
    shows_wrong_lists,
    wrong_functions,
)
from vkdml import InvalidArgumentError, Options
from vkdml.operators import plain_problem, reference
from vkdml.planning.plan import plan
from vkdml_lab.suite import sharpest, test_elementwise, test_onnxruntime, test_reference
from vkdml_lab.suite.devices import DEVICES
from vkdml_lab.suite.support import DTYPES, TOLERANCES, random_case

HALVES = 20  # random halves of the mistakes that are hidden from the choice and judge it


@cache
def equations() -> list[tuple[str, str, Callable]]:
    """Return a row for each wrong equation of test_mutations.py: its name, its cell, and reference.run with the mistake."""
    return [(f"{cell}: {mistake}", cell, mutated(reference, function, changes).run)
            for mistake, cells, function, changes in EQUATIONS for cell in cells.split()]


@cache
def functions() -> list[tuple[str, str, Callable]]:
    """Return a row for each wrong activation of test_mutations.py: its name, the activation, and the wrong function."""
    return [(f"{name}: {mistake}", name, function) for name, mistake, function in [*FUNCTIONS, *wrong_functions()]]


def caught(checked, arrays, element) -> set[Hashable]:
    """Return the names of the planted mistakes that push results beyond their tolerances. checked: the problem."""
    rtol, atol = TOLERANCES[element.name]

    def outputs(run):
        with np.errstate(over="ignore"):
            return [result.astype(DTYPES[element.name]).astype(float) for field, result in run(checked, arrays).items() if checked.has(field)]

    right = outputs(reference.run)
    used = {entry.activation.operator_type.name.removeprefix("ACTIVATION_") for entry in checked.activations}
    runs = {name: run for name, cell, run in equations() if cell == checked.cell.name}
    runs |= {name: run_with(activation, function) for name, activation, function in functions() if activation in used}
    return {name for name, run in runs.items()
            if not all(np.allclose(*pair, rtol, atol, equal_nan=True) for pair in zip(outputs(run), right))}


@cache
def of_problem(seed: int) -> frozenset[Hashable]:
    case = random_case(seed)
    return frozenset(caught(case.problem, case.arrays, case.element))


@cache
def of_node(seed: int) -> frozenset[Hashable]:
    node, inputs = test_onnxruntime.random_node(seed)
    taken, run = [], reference.run
    with patch.object(reference, "run", lambda *given: taken.append(given) or run(*given)):
        by_reference(node, inputs, attributes_of(node))
    ((checked, arrays),) = taken
    return frozenset(caught(checked, arrays, checked.element) | {f"lists {name}" for name, changes in LISTS.items() if shows_wrong_lists(changes, seed)})


@cache
def of_activation(seed: int) -> frozenset[Hashable]:
    found, of_problem = set(), plain_problem.elementwise
    for name, activation, function in functions():
        def run(device, desc, arrays, in_place, element, activation=activation, function=function):
            problem = of_problem(desc, element)
            fused = problem.function
            if fused.activation.operator_type.name == f"ACTIVATION_{activation}":
                fused = replace(fused, activation=replace(fused.activation, function=function))
            x = problem.tensor("InputTensor").view(arrays["InputTensor"].astype(np.float64))
            with np.errstate(all="ignore"):
                return fused(x).astype(DTYPES[element.name])

        with patch.object(test_elementwise, "run", run):
            try:
                test_elementwise.test_random_activation(None, seed)
            except AssertionError:
                found.add(name)
    return frozenset(found)


@cache
def of_options(seed: int) -> frozenset[Hashable]:
    """Return the option values and kernels that a seed tests, with all pairs; if a value is refused, only that value."""
    case, forced = random_case(seed), test_reference.random_options(seed)
    try:
        planned = plan(case.problem, DEVICES["Mesa 26"], Options(**forced))
    except InvalidArgumentError as error:
        name = error.field.removeprefix("options.")
        return frozenset({f"refused: {name}={forced[name]}"})
    cell = case.problem.cell.kernel
    found = {f"taken: {name}={value}" for name, value in forced.items()} | {
        dispatch.kernel.replace(cell, "CELL") for dispatch in planned.execute}
    return frozenset(found | set(combinations(sorted(found), 2)))


def of_types(seed: int) -> frozenset[Hashable]:
    """Return a set of one pair, the cell and type of a seed's problem. The chosen seeds must cover all such pairs."""
    case = random_case(seed)
    return frozenset({(case.problem.cell.name, case.element.name)})


@dataclass(frozen=True)
class Family:
    """A test of random problems, one for each seed. caught(seed): the planted mistakes that the problem finds. has(seed): what
    else the chosen seeds must cover. most: the largest number of seeds to choose. slow: seeds that are never chosen, as CPU
    drivers compile their kernels for many seconds.
    """

    test: Callable
    caught: Callable[[int], frozenset[Hashable]]
    has: Callable[[int], frozenset[Hashable]] = lambda seed: frozenset()
    most: int = 1000
    slow: frozenset[int] = frozenset()

    def choose(self, unknown: frozenset[Hashable] = frozenset()) -> list[int]:
        """Choose seeds. Each one covers the most of what those before it left. unknown: planted mistakes to ignore."""
        seeds = sorted({*seeds_of(self.test)} - self.slow)
        shown = {seed: (self.caught(seed) - unknown) | self.has(seed) for seed in seeds}
        needed = frozenset().union(*shown.values())
        chosen: list[int] = []
        while needed and len(chosen) < self.most:
            chosen.append(max(seeds, key=lambda seed: (len(needed & shown[seed]), -seed)))
            needed -= shown[chosen[-1]]
        return chosen

    def seen(self, seeds: Iterable[int]) -> frozenset[Hashable]:
        return frozenset().union(*map(self.caught, seeds))

    def row(self) -> list[object]:
        """Return the test's row of the table: its name; the numbers of its problems, chosen problems, planted mistakes, and
        mistakes that chosen problems find. Last, two shares of the mistakes that were hidden from a choice: those that this
        choice finds, and those that as many first problems find.
        """
        seeds, chosen = sorted(seeds_of(self.test)), self.choose()
        mistakes, ours, first = sorted(self.seen(seeds), key=str), [], []
        for draw in range(HALVES):
            unknown = frozenset(random.Random(draw).sample(mistakes, len(mistakes) // 2))
            by_half = self.choose(unknown)
            ours.append(len(self.seen(by_half) & unknown) / len(unknown))
            first.append(len(self.seen(seeds[:len(by_half)]) & unknown) / len(unknown))
        return [self.test.__name__, len(seeds), len(chosen), len(mistakes), len(self.seen(chosen)), fmean(ours), fmean(first)]


FAMILIES = [
    Family(test_reference.test_random_problem, of_problem, has=of_types),
    Family(test_reference.test_random_problem_as_on_a_gpu, of_problem, most=8),
    Family(test_reference.test_random_options, of_options, most=8, slow=frozenset({53, 121})),
    Family(test_onnxruntime.test_random_node, of_node),
    Family(test_elementwise.test_random_activation, of_activation),
]
HEADS = ["test", "problems", "chosen", "mistakes", "seen", "seen of unknown ones", "by the first as many"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.tests.choosing", description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the seeds into the table that `make test` reads")
    if parser.parse_args().write:
        rows = ",\n".join(f' "{family.test.__name__}": {family.choose()}' for family in FAMILIES)
        sharpest.PATH.write_text(f'{{"made by": "python -m lab.tests.choosing --write", "seeds": {{\n{rows}\n}}}}\n')
    else:
        print(tabulate([family.row() for family in FAMILIES], HEADS, floatfmt=".1%"))


if __name__ == "__main__":
    main()
