"""Runs random recordings of commands over shared buffers, and compares each byte, on host and device, with a model.

A heap is a buffer whose parts serve several operators as inputs, weights, outputs, and temporary or persistent resources. A
slot is a part of 256 bytes for a tensor. A program is a list of actions: the name of a method of Run, and its arguments.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

import vkdml as v
from vkdml_lab.suite.heap_operators import DISPATCHED, GRU, Reference
from vkdml_lab.suite.host_and_device import HOST, Memory
from vkdml_lab.suite.support import random_numbers

HEAPS, RECORDERS, SLOT, SLOTS = 2, 3, 256, 8
TENSORS = SLOT * SLOTS  # bytes for tensors; resources are behind them
GAPS = 512  # most bytes of a resource that are padding

# Weight of each action in drawing, and the upper bound of each of its numbers. `host` is rare, as exposed heaps are packed each
# time
PLACES = HEAPS * SLOTS
DRAWN = {
    "dispatch": (9, RECORDERS, 8, [PLACES] * 8, 6, 4), "execute": (10, RECORDERS, 2), "initialize": (3, RECORDERS, [PLACES] * 8, 4),
    "record_upload": (3, RECORDERS, HEAPS), "record_readback": (2, RECORDERS, HEAPS), "write": (3, HEAPS, SLOTS + 1, 4, 100),
    "upload": (3, HEAPS, SLOTS + 1, 4, 100), "poke": (2, HEAPS, SLOTS + 1, 4, 100), "download": (1, HEAPS), "host": (1, 5 * HEAPS),
    "renew": (1, RECORDERS),
}


def program(rng):
    """Draw a program of 5 to 40 actions. Dispatches take slots from two lists, often with one slot changed, so they overlap."""
    often = np.array([row[0] for row in DRAWN.values()])
    layouts = rng.integers(0, PLACES, (2, 8))

    def number(end):
        if isinstance(end, int):
            return int(rng.integers(end))
        places = layouts[rng.integers(2)].copy()
        places[rng.integers(8)] = rng.integers(PLACES)
        return tuple(map(int, places if rng.integers(2) else layouts[0]))

    return [(str(name), *map(number, DRAWN[name][1:])) for name in rng.choice(list(DRAWN), rng.integers(5, 41), p=often / often.sum())]


def shortened(actions, fails):
    """Leave out actions, or runs of actions, while `fails(actions)` stays true. Returns the shorter program."""
    size = len(actions)
    while size := size // 2:
        at = 0
        while at < len(actions):
            without = actions[:at] + actions[at + size:]
            actions, at = (without, at) if fails(without) else (actions, at + size)
    return actions


@dataclass(frozen=True)
class Part:
    heap: int
    begin: int
    size: int

    @property
    def bytes(self):
        return slice(self.begin, self.begin + self.size)

    def overlaps(self, other):
        return self.heap == other.heap and self.begin < other.begin + other.size and other.begin < self.begin + self.size


@dataclass
class Step:
    """A recorded command. whose: operator, "upload" or "readback". temporary, resource: its temporary and persistent memory."""

    whose: str
    heap: int = 0
    inputs: list[Part] = field(default_factory=list)
    outputs: list[Part] = field(default_factory=list)
    temporary: Part | None = None
    resource: Part | None = None
    is_initializer: bool = False

    @property
    def writes(self):
        resource = self.resource if self.whose != "owned" or self.is_initializer else None
        return [*self.outputs, *(part for part in (self.temporary, resource) if part)]


class DisagreementError(AssertionError):
    """Raised if a byte on the host or the device, or the success of a command, contradicts the model."""


class Run:
    """Runs a program on new heaps. counts: where it counts comparisons by side, executions, and known outputs by operator."""

    def __init__(self, device, reference, counts, seed=0):
        self.device, self.reference, self.counts = device, reference, counts
        self.rng = np.random.default_rng(seed)
        self.operators = {name: make(device) for name, make in reference.kinds.items()}
        self.tables = {name: device.create_binding_table(operator) for name, operator in self.operators.items()}
        properties = [operator.get_binding_properties() for operator in self.operators.values()]
        largest = max(max(each.TemporaryResourceSize, each.PersistentResourceSize) for each in properties)
        self.size = TENSORS + SLOT + max(largest, 3 * SLOT)  # for two overlapping resources, or three slots
        self.buffers = [device.create_buffer(self.size) for _ in range(HEAPS)]
        self.arrays = {}
        self.memory = []
        for buffer in self.buffers:
            content = self.random(self.size)
            buffer.upload(content)
            self.memory.append(Memory(content, device.gpu.host_memory))
        self.recorders = [device.create_command_recorder() for _ in range(RECORDERS)]
        self.steps = [[] for _ in range(RECORDERS)]
        # Packed weights by an operator's persistent resource; None: they may be lost
        self.initialized = {}

    def random(self, size):
        return (self.rng.standard_normal(size // 4) / 2).astype(np.float32).view(np.uint8)

    def run(self, program):
        for action in program:
            getattr(self, action[0])(*action[1:])
            for heap in range(HEAPS):
                self.compare("host", heap, self.buffers[heap].read((self.size,), np.uint8))
        for heap in range(HEAPS):
            self.download(heap)

    def compare(self, side, heap, found):
        memory = self.memory[heap]
        known, expected = (memory.host_known, memory.host) if side == "host" else (memory.device_known, memory.device)
        self.counts[side] += 1
        wrong = np.flatnonzero(known & (found != expected))
        if wrong.size:
            raise DisagreementError(f"{side}, heap {heap}: {wrong.size} bytes from {wrong[0]} (slot {wrong[0] // SLOT}) on")

    # The host's actions

    def write(self, heap, slot, slots, number):
        part, content = self.chosen(heap, slot, slots, number)
        self.buffers[heap].write(content, part.begin)
        self.host_writes(part, content)

    def upload(self, heap, slot, slots, number):
        part, content = self.chosen(heap, slot, slots, number)
        try:
            self.buffers[heap].upload(content, part.begin)
        except v.InvalidArgumentError:
            self.host_writes(part, content)
            self.expect_exposed(heap)
            return
        self.host_writes(part, content)
        self.uploads(heap)

    def poke(self, heap, slot, slots, number):
        part, content = self.chosen(heap, slot, slots, number)
        if heap in self.arrays:
            self.arrays[heap].view(np.uint8)[part.bytes] = content
            self.memory[heap].poke(part.bytes, content)
            if self.memory[heap].is_shared:
                self.change(part)

    def chosen(self, heap, slot, slots, number):
        """Choose `slots` slots from `slot` on, or a piece of that slot if `number` is odd. Returns a Part and random bytes."""
        begin, size = (slot * SLOT + 4 * (number % 13), 4 + number % 40 // 4 * 4) if number % 2 else (slot * SLOT, (slots or 1) * SLOT)
        return Part(heap, begin, size), self.random(size)

    def host_writes(self, part, content):
        self.memory[part.heap].write(part.bytes, content)
        self.change(part, self.memory[part.heap].is_shared)

    def change(self, part, is_sure=True):
        """Note that a part changes. Packed weights in it are lost or, if `is_sure` is false, may be lost."""
        for resource in [resource for resource in self.initialized if resource and resource.overlaps(part)]:
            if is_sure:
                del self.initialized[resource]
            else:
                self.initialized[resource] = None

    def uploads(self, heap):
        memory = self.memory[heap]
        if not memory.is_shared:
            for resource in [resource for resource in self.initialized if resource and resource.heap == heap]:
                count = (memory.newer[resource.bytes] == HOST).sum()
                if count > GAPS:
                    del self.initialized[resource]
                elif count:
                    self.initialized[resource] = None
        memory.upload()

    def download(self, heap):
        found = self.buffers[heap].download((self.size,), np.uint8)
        self.compare("device", heap, found)
        self.memory[heap].readback()

    def host(self, number):
        if number < HEAPS:
            self.arrays[number] = self.buffers[number].host()
            self.memory[number].expose()
            for resource in [resource for resource in self.initialized if resource and resource.heap == number]:
                self.initialized[resource] = None

    def expect_exposed(self, *heaps):
        """Check that an upload was rightly refused: the program holds a writable array, from host(), of one of these heaps."""
        assert any(self.memory[heap].is_exposed and not self.memory[heap].is_shared for heap in heaps)
        for heap in heaps:
            self.memory[heap].forget_host()

    # Recording actions

    def renew(self, recorder):
        self.recorders[recorder], self.steps[recorder] = self.device.create_command_recorder(), []

    def record_upload(self, recorder, heap):
        self.recorders[recorder].record_upload(self.buffers[heap])
        self.steps[recorder].append(Step("upload", heap))

    def record_readback(self, recorder, heap):
        self.recorders[recorder].record_readback(self.buffers[heap])
        self.steps[recorder].append(Step("readback", heap))

    def dispatch(self, recorder, kind, places, temporary, persistent):
        whose = DISPATCHED[kind]
        operator, table = self.operators[whose], self.tables[whose]
        sizes = {name: operator.problem.tensor(name).size_in_bytes for name in (*operator.input_fields, *operator.output_fields)
                 if operator.problem.has(name) and name not in operator.problem.initialized}
        parts = {name: Part(place // SLOTS, place % SLOTS * SLOT, size) for place, (name, size) in zip(places, sizes.items())}
        properties = operator.get_binding_properties()
        step = Step(whose, inputs=[parts[name] for name in operator.input_fields if name in parts],
                    outputs=[parts[name] for name in operator.output_fields if name in parts],
                    temporary=self.temporary(temporary, properties.TemporaryResourceSize),
                    resource=self.resource(persistent, properties.PersistentResourceSize))
        if self.collides(step):
            return
        table.bind_inputs([self.binding(parts.get(name)) for name in operator.input_fields])
        table.bind_outputs([self.binding(parts.get(name)) for name in operator.output_fields])
        table.bind_temporary_resource(self.binding(step.temporary))
        table.bind_persistent_resource(self.binding(step.resource))
        try:
            self.recorders[recorder].record_dispatch(operator, table)
        except v.InvalidArgumentError:
            assert whose == "owned"
            before = self.steps[recorder]
            is_here = any(other.is_initializer and other.resource == step.resource for other in before)
            is_sure = is_here or self.initialized.get(step.resource) is not None
            assert not is_sure or any(self.is_in_the_way(other, step.resource) for other in before)
            return
        self.steps[recorder].append(step)

    def is_in_the_way(self, step, resource):
        if step.whose == "upload":
            return step.heap == resource.heap and self.memory[step.heap].is_exposed
        return resource is not None and any(part.overlaps(resource) for part in step.writes) and not (
            step.is_initializer and step.resource == resource)

    def temporary(self, number, size):
        """Return memory for a temporary resource, which other tensors or resources may share, or None if `number` is 4 or 5."""
        begins = (TENSORS - 3 * SLOT, TENSORS)
        return Part(number % 2, begins[number // 2], size) if number < 4 and size else None

    def resource(self, number, size):
        """Return memory in a heap for a persistent resource, or None if `number` is 2 or 3: then vkdml provides memory."""
        return Part(0, TENSORS + number * SLOT, size) if number < 2 and size else None

    def collides(self, step):
        """Return whether a command writes to bytes of its other tensors. An elementwise operator's output may be its input."""
        writes = [*step.writes, *([step.resource] if step.resource and step.resource not in step.writes else [])]
        others = [*step.inputs, *writes]
        is_elementwise = step.whose in ("negate", "add")
        return any(sum(part.overlaps(other) and not (is_elementwise and part in step.outputs and part == other) for other in others)
                   > (0 if is_elementwise and part in step.outputs else 1) for part in writes)

    def binding(self, part):
        return part and v.DML_BUFFER_BINDING(self.buffers[part.heap], part.begin, part.size)

    def initialize(self, recorder, places, persistent):
        operator = self.operators["owned"]
        initializer = self.device.create_operator_initializer(operator)
        fields = operator.problem.initialized
        parts = {name: Part(place // SLOTS, place % SLOTS * SLOT, operator.problem.tensor(name).size_in_bytes)
                 for place, name in zip(places, fields)}
        step = Step("owned", inputs=list(parts.values()), is_initializer=True,
                    resource=self.resource(persistent, operator.get_binding_properties().PersistentResourceSize))
        table = self.device.create_binding_table(initializer)
        table.bind_inputs([self.binding(parts.get(name)) for name in operator.input_fields])
        table.bind_outputs([self.binding(step.resource)])
        try:
            self.recorders[recorder].record_dispatch(initializer, table)
        except v.InvalidArgumentError:  # refused if one initializer's resource lies within another's
            assert any(other.is_initializer and other.resource and other.resource != step.resource
                       and other.resource.overlaps(step.resource) for other in self.steps[recorder])
            return
        self.steps[recorder].append(step)

    # Executing actions

    def execute(self, recorder, looks):
        steps = self.steps[recorder]
        try:
            self.recorders[recorder].execute()
        except v.InvalidArgumentError as error:
            self.refused(steps, str(error))
        else:
            self.counts["executions"] += 1
            for step in steps:
                if step.whose == "upload":
                    self.uploads(step.heap)
                elif step.whose == "readback":
                    self.memory[step.heap].readback()
                elif step.is_initializer:
                    self.initializes(step)
                else:
                    self.dispatches(step)
        if looks:
            for heap in sorted({part.heap for step in steps for part in step.outputs}):
                self.download(heap)

    def refused(self, steps, error):
        if "an array of host()" in error:
            self.expect_exposed(*(step.heap for step in steps if step.whose == "upload"))
            return
        assert "not initialized" in error, error
        needed = [step.resource for step in steps if step.whose == "owned" and not step.is_initializer]
        assert any(self.initialized.get(resource) is None for resource in needed), error
        for step in steps:
            if step.whose == "upload":
                self.memory[step.heap].forget_host()

    def content(self, part):
        memory = self.memory[part.heap]
        return memory.device[part.bytes].tobytes() if memory.device_known[part.bytes].all() else None

    def initializes(self, step):
        packed = [self.content(part) for part in step.inputs]
        if step.resource:
            self.change(step.resource)
            self.memory[step.resource.heap].work(step.resource.bytes)
        self.initialized[step.resource] = packed

    def dispatches(self, step):
        inputs = [self.content(part) for part in step.inputs]
        if step.whose == "owned":
            if step.resource not in self.initialized:
                raise DisagreementError(f"what was initialized in {step.resource} is lost, and yet it was executed")
            inputs += self.initialized[step.resource] or [None]
        elif step.resource:
            self.change(step.resource, is_sure=False)
            self.memory[step.resource.heap].work(step.resource.bytes)
        results = self.reference(step.whose, inputs) if None not in inputs else [None] * len(step.outputs)
        if step.temporary:
            self.change(step.temporary, is_sure=False)
            self.memory[step.temporary.heap].work(step.temporary.bytes)
        for part, result in zip(step.outputs, results):
            self.change(part)
            self.memory[part.heap].compute(part.bytes, None if result is None else np.frombuffer(result, np.uint8))
        self.counts[step.whose] += None not in inputs


def search(device, draws, seed=0, desc=GRU, before=lambda actions: None):
    """Run random programs. Returns the counts of Run. At the first failure, raises an AssertionError with a shortened program.
    desc: descriptor of the recurrent operators. before: called with each program before it runs.
    """
    counts, reference = Counter(), Reference(device, desc)

    def error_of(actions):
        before(actions)
        try:
            Run(device, reference, counts).run(actions)
        except Exception as error:
            return error
        return None

    for draw in range(draws):
        actions = program(random_numbers(seed, draw))
        if error_of(actions):
            short = shortened(actions, error_of)
            raise AssertionError(f"draw {draw} of seed {seed}: {short}") from error_of(short)
    return counts
