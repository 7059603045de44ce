"""Estimates how long a step of a kernel takes, by a simple model of the compiled code. It ranks plans and measures nothing.

A subgroup alone on a core issues its instructions in order, one in a cycle (or in as many as its lanes need), and waits for
pending results. Several subgroups take as long as the slowest of: one alone, all their instructions, all bytes that they load.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from vkdml_lab.gpu.assembly import BESIDE, BRANCH, CONSTANT, LOAD, QUICK, SHARED, Instruction
from vkdml_lab.gpu.compiler import Pipeline
from vkdml_lab.gpu.gpus import Gpu
from vkdml_lab.gpu.loops import Loop, of_products
from vkdml_lab.gpu.steps import LoopStep, Share
from vkdml_lab.internals import GpuRates, ceil_div, round_up

_LATENCY = {CONSTANT: 200, SHARED: 40, QUICK: 40}  # cycles until a load's result is there; from memory: GpuRates.latency
_ISSUED_BESIDE = (BESIDE, BRANCH, CONSTANT)
_SIMULATED = 3  # simulated iterations of a loop; the others repeat the last one
_WHOLE_LOAD = 16  # bytes
_UNIT_CACHE_RATE = 64  # bytes that a core reads from the second-level cache in a cycle
_COUNTED_LANES = 32
_ALL = Share(1.0, 1.0)

ASSUMED = f"""Model: cycles of a step for a lone subgroup, in order, an instruction a cycle (or what its width needs: 64 lanes
on 32 take two), {_LATENCY[SHARED]} for each exposed load from shared memory, {_LATENCY[CONSTANT]} of scalars. Loads of memory,
stores until another workgroup sees them, and dispatches behind another take what the planner takes them to.
Where several subgroups share a core, the largest of that, of their instructions, and of their bytes from shared memory and the
second-level cache, of what only some of a workgroup's invocations do as much as those do; weights of a step that no cache holds
come from memory, once for all tiles that run at once. Rates are those of src/vkdml/planning/. Nothing here is measured."""


Totals = defaultdict[str, float]


def latencies(rates: GpuRates) -> dict[str, int]:
    """Return the latency of a load in cycles, by the kind of load."""
    return {LOAD: round(rates.latency * rates.clock), **_LATENCY}


def _difference(later: Totals, earlier: Totals) -> Totals:
    return defaultdict(float, {name: total - earlier.get(name, 0.0) for name, total in later.items()})


@dataclass
class SimulatedSubgroup:
    """Simulates a subgroup that is alone on a core and skips no instruction. shares: which part of a workgroup runs an
    instruction, by its role. totals: sums of cycles, bytes and waits, weighted by these shares, and of multiply-adds and loads.
    """

    lanes: int  # a vector unit's
    latency: Mapping[str, int]  # cycles until a load's result is there, by its kind
    width: int  # the subgroup's
    shares: Mapping[str, Share]
    now: float = 0.0
    under_way: list[tuple[float, Instruction]] = field(default_factory=list)
    totals: Totals = field(default_factory=lambda: defaultdict(float))

    def run(self, loop: Loop, trips: tuple[int, ...]) -> None:
        for item in loop.body:
            if isinstance(item, Instruction):
                self._execute(item)
            elif item.has_products and trips:
                self._repeat(item, trips[0], trips[1:])
            else:
                self._repeat(item.at_once, 1, trips)

    def _repeat(self, loop: Loop, times: int, trips: tuple[int, ...]) -> None:
        for _ in range(min(times, _SIMULATED)):
            start, before = self.now, self.totals.copy()
            self.run(loop, trips)
        left = times - _SIMULATED
        if left > 0:
            cycles = left * (self.now - start)
            self.now += cycles
            self.under_way = [(ready + cycles, load) for ready, load in self.under_way]
            for name, added in _difference(self.totals, before).items():
                self.totals[name] += left * added

    def _execute(self, instruction: Instruction) -> None:
        share = self.shares.get(instruction.role, _ALL)
        for tag, most in instruction.waits.items():
            self._wait(tag, most, share.subgroups)
        lanes = instruction.lanes or self.width
        cycles = max(1, ceil_div(lanes, self.lanes)) * instruction.repeats
        self.now += 1 if instruction.kind in _ISSUED_BESIDE else cycles
        if instruction.kind not in _ISSUED_BESIDE:
            self.totals["vector cycles"] += cycles * share.subgroups
        self.totals["multiply-adds"] += instruction.multiply_adds * instruction.repeats * lanes
        if instruction.kind in self.latency:
            self._load(instruction, lanes, share)

    def _load(self, instruction: Instruction, lanes: int, share: Share) -> None:
        of_all = share.subgroups if instruction.uniform else lanes * share.lanes
        self.totals[f"{instruction.kind} bytes"] += instruction.size * of_all
        if instruction.tag:
            self.under_way.append((self.now + self.latency[instruction.kind], instruction))
        if is_vector_load(instruction):
            # several loads may together load for all lanes
            self.totals["state loads" if instruction.coherent else "weight loads"] += lanes / self.width
        elif instruction.kind == SHARED and instruction.size:
            self.totals["shared loads"] += 1

    def _wait(self, tag: str, most: int, of_subgroups: float) -> None:
        """Wait until at most `most` loads of this tag are pending; the oldest end first. of_subgroups: the share that waits."""
        of_tag = [item for item in self.under_way if item[1].tag == tag]
        exposed = ""
        for item in of_tag[:max(0, len(of_tag) - most)]:
            self.under_way.remove(item)
            if item[0] > self.now:
                self.now, exposed = item[0], item[1].kind
        if exposed:
            self.totals[f"{exposed} waits"] += of_subgroups


def is_vector_load(instruction: Instruction) -> bool:
    """Whether an instruction loads 16 bytes or more from memory for each lane: weights, state or projected gates."""
    return instruction.kind == LOAD and instruction.size >= _WHOLE_LOAD and not instruction.uniform


@dataclass(frozen=True)
class Iteration:
    """The second iteration of a loop, which unlike the first may use values that an earlier iteration loaded in advance."""

    cycles: float
    totals: Totals


def iteration(loop: Loop, trips: tuple[int, ...], gpu: Gpu, width: int, shares: Mapping[str, Share] = {}) -> Iteration:
    machine = SimulatedSubgroup(gpu.rates.simd_lanes, latencies(gpu.rates), width, shares)
    machine.run(loop, trips)
    start, before = machine.now, machine.totals.copy()
    machine.run(loop, trips)
    return Iteration(machine.now - start, _difference(machine.totals, before))


@dataclass(frozen=True)
class Estimate:
    """A step's estimated time. limits: cycles that each resource alone would take, on the busiest core. step: one subgroup's
    cycles. resident: how many workgroups a core holds at once. subgroups: how many share a vector unit. rounds: number of
    batches in which the workgroups run, one after another.
    """

    seconds: float
    limits: dict[str, float]
    step: Iteration
    resident: int
    subgroups: int
    rounds: int


def estimate(gpu: Gpu, pipeline: Pipeline, step: LoopStep, workgroups: int, workgroup: int, dispatch: float) -> Estimate | None:
    """Return a step's Estimate; None if the assembly is unknown. workgroups: number. workgroup: size. dispatch: seconds."""
    whole = pipeline.code
    if whole is None:
        return None
    outermost = of_products(whole) if step.is_loop else whole
    width, rates = pipeline.width, gpu.rates
    of_step = iteration(outermost, step.trips, gpu, width, step.shares(workgroup, width))
    subgroups = ceil_div(workgroup, width)
    resident = resident_workgroups(gpu, pipeline, subgroups)
    on_core = ceil_div(workgroups, rates.units)
    together = min(on_core, resident)
    of_simd = ceil_div(together * subgroups, rates.simds)
    loaded = of_step.totals["load bytes"] * subgroups
    limits = {
        "latency": of_step.cycles + step.exchanges * rates.seen * rates.clock,
        "instructions": of_step.totals["vector cycles"] * of_simd,
        "shared memory": of_step.totals["shared bytes"] * subgroups * together / rates.shared_rate,
        "core's loads": loaded * together / _UNIT_CACHE_RATE,
        "all cores' loads": loaded * min(workgroups, together * rates.units) / rates.cache_rate * rates.clock,
    }
    rounds = ceil_div(on_core, together)
    limits["memory"] = step.loaded / rates.rate_of(step.weights) * rates.clock / rounds  # or the cache before it
    seconds = rounds * max(limits.values()) / rates.clock + step.dispatches * dispatch
    return Estimate(seconds, limits, of_step, resident, of_simd, rounds)


def resident_workgroups(gpu: Gpu, pipeline: Pipeline, subgroups: int) -> int:
    """Return how many workgroups a core holds at once: at least 1, as drivers refuse larger ones. subgroups: of a workgroup."""
    slots = _subgroup_slots(gpu, pipeline)
    shared = pipeline.figures.get("shared", 0)
    return max(1, min(slots // subgroups, gpu.rates.unit_shared_bytes // shared if shared else slots))


def _subgroup_slots(gpu: Gpu, pipeline: Pipeline) -> int:
    """Return how many subgroups that run this pipeline a core can hold at once, given its registers."""
    rates = gpu.rates
    if gpu.allocation:
        taken = round_up(pipeline.figures["registers"] * pipeline.width, gpu.allocation * _COUNTED_LANES)
        return rates.simds * min(rates.subgroups, rates.registers // rates.simds // taken)
    slots = pipeline.figures.get("subgroups", rates.simds * rates.subgroups)
    if pipeline.of_simd:
        slots *= rates.simds
        if rates.simd_lanes == _COUNTED_LANES:  # then AMD's driver counts subgroups of this size
            slots = slots * _COUNTED_LANES // pipeline.width
    return min(rates.simds * rates.subgroups, slots)
