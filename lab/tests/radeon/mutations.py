"""Plants mistakes in the kernels' machine code, one at a time, and prints how the emulated GPU shows each: by other bits in the
results, by a finding (a fault that the emulator reports), or not at all.

vkdml radeon python -m lab.tests.radeon.mutations [--most N] [--ways NAME ...]
"""

from __future__ import annotations

import argparse
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vkdml import Device, Options
from vkdml.errors import VkdmlError
from vkdml_lab.internals import FLOAT32, GRU
from vkdml_lab.radeon import process
from vkdml_lab.radeon.instructions import COMPARING, NAMES, NUMBERS, VECTOR
from vkdml_lab.radeon.structures import FLAGS, Instruction
from vkdml_lab.radeon.structures import VECTOR as IS_VECTOR
from vkdml_lab.suite.support import Case, drawn_case, make_desc, run_on_device

# Sizes with several storing waves in a workgroup, and workgroups that wait for each other
WAYS = {"sequence": Options(schedule="sequence", workgroup=256), "stepped": Options(schedule="stepped", workgroup=256),
        "persistent": Options(schedule="persistent", workgroup=256, rows=2)}
# Reasons why a mistake may not show. The first five are certain for what ran, as clocks and stamps find what another order
# would break. The others were found by looking at cases
WHY = {
    "glc": "its core's cache was invalidated since another core's last store there",
    "buffer_gl0_inv": "no line that is read behind it was stored to by another core",
    "s_barrier": "no two waves access a word with this barrier alone between them",
    "vm_vsrc": "no access before it is of a word that another wave accesses behind the barrier",
    "s_waitcnt_vscnt": "no store of the wave is under way there, of a word that another workgroup reads",
    "vmcnt": "no load is under way there", "lgkmcnt": "no load is under way there",
    "swapped": "both hold the same, or nothing depends on them: a bound, or a division of small numbers",
    "other register": "its neighbour holds the same, or nothing depends on it: a bound, a product with padding, or such a division",
}
_WAITS = {"vmcnt": (0,), "lgkmcnt": (1, 3), "s_waitcnt_vscnt": (2,)}  # indices of their counters
SEEDS = ((1, 1), (2, 2), (3, 1), (4, 2))  # seed, and how late loads and stores end
_COMMUTES = {"add", "mul", "and", "or", "xor", "max", "min", "fma", "fmac", "fmaak", "eq", "ne", "lg", "neq", "add3", "or3", "mad"}


def _does_nothing(instruction: Instruction) -> None:
    instruction.op = NUMBERS["nothing"]


def _waits_for_no(*counters: int) -> Callable[[Instruction], None]:
    def mutate(instruction: Instruction) -> None:
        for counter in counters:
            instruction.immediate[counter] = 63
    return mutate


def _is_cached(instruction: Instruction) -> None:
    instruction.flags &= ~FLAGS["GLC"]


def _swapped(instruction: Instruction) -> None:
    first, second = bytes(instruction.source[0]), bytes(instruction.source[1])
    instruction.source[0] = type(instruction.source[0]).from_buffer_copy(second)
    instruction.source[1] = type(instruction.source[1]).from_buffer_copy(first)


def _from_elsewhere(instruction: Instruction) -> None:
    instruction.source[0].reg ^= 1


def kinds_of(i: Instruction) -> Iterator[tuple[str, Callable[[Instruction], None]]]:
    """Yield the mistakes that can be planted in an instruction: each mistake's name, and a function that plants it."""
    name = NAMES[i.op]
    if name in ("s_barrier", "buffer_gl0_inv"):
        yield name, _does_nothing
    if name == "s_waitcnt_depctr" and not i.immediate[0] >> 2 & 7:
        yield "vm_vsrc", _does_nothing
    for kind, counters in _WAITS.items():
        if name == "s_waitcnt" and any(i.immediate[counter] < 63 for counter in counters):
            yield kind, _waits_for_no(*counters)
    if name in ("buffer_load", "global_load") and i.flags & FLAGS["GLC"]:
        yield "glc", _is_cached
    if name in VECTOR or name in COMPARING:
        if not _COMMUTES & set(name.split("_")) and i.source[1].kind and bytes(i.source[0]) != bytes(i.source[1]):
            yield "swapped", _swapped
        if i.source[0].kind == IS_VECTOR:
            yield "other register", _from_elsewhere


@dataclass
class Runner:
    """Runs a case, any number of times, on a device with given options."""

    device: Device
    case: Case
    options: Options

    def run(self) -> tuple[dict[str, bytes], set[str]]:
        """Run the case. Returns the bytes of each output (or the name of an error), and the kinds of findings."""
        try:
            results = {field: array.tobytes() for field, array in run_on_device(self.device, self.case, self.options).items()}
        except (VkdmlError, AssertionError) as error:
            results = {type(error).__name__: b""}
        return results, process.found()

    def seen(self, right: dict[str, bytes]) -> str:
        """Return how a planted mistake shows: "finding KIND", "numbers" or "not seen". right: the results without a mistake."""
        for seed, late in SEEDS:
            process.change(seed=seed, late=late)
            results, found = self.run()
            if found:
                return f"finding {min(found)}"
            if results != right:
                return "numbers"
        return "not seen"


def main() -> int:
    """Print a line for each schedule and kind of mistake. Raises AssertionError if unchanged kernels have findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=16, help="of each kind and way")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    arguments = parser.parse_args()
    device, draw, total = Device(), random.Random(0), Counter[str]()
    case = drawn_case(make_desc(GRU, 5, 16, 5, 128, 1, FLOAT32.data_type))
    process.change(budget=200_000)
    for way in arguments.ways:
        runner, known = Runner(device, case, WAYS[way]), {program.va for program in process.programs()}
        right, found = runner.run()
        assert not found, found
        assert runner.seen(right) == "not seen"
        places, idle = defaultdict(list), Counter[str]()
        for program in process.programs():
            for n in range(0 if program.va in known else program.count):
                for kind, mutate in kinds_of(program.instructions[n]):
                    if program.instructions[n].runs:
                        places[kind].append((program, n, mutate))
                    else:
                        idle[kind] += 1
        for kind, all_places in sorted(places.items()):
            shown, missed = Counter[str](), []
            for program, n, mutate in draw.sample(all_places, min(arguments.most, len(all_places))):
                instruction = program.instructions[n]
                kept = bytes(instruction)
                mutate(instruction)
                how = runner.seen(right)
                program.instructions[n] = Instruction.from_buffer_copy(kept)
                shown[how] += 1
                if how == "not seen":
                    missed.append(f"program {program.number} at {instruction.pc:#x}, run {instruction.runs} times")
            total.update(shown)
            print(f"{way:9} {kind:16} {len(all_places):4} places, {idle[kind]} more do not run: {dict(shown)} {'; '.join(missed)}"
                  f"{f' (redundant: {WHY[kind]})' if missed else ''}", flush=True)
    print(f"all: {sum(total.values())} mistakes, {dict(total)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
