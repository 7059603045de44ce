"""A checker of Vulkan's memory model for one execution: happens-before and data races, by the relations of its appendix.

An execution has the operations of each invocation in program order. Loads and stores are those of a coherent block: each is
made available and visible to the device, so that what happens before orders them. EXECUTIONS are the protocols of shaders/gpu,
written out by hand, with the races that they must have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np

Invocation = tuple[str, int]  # its workgroup, and its number there
B, S = frozenset({"buffers"}), frozenset({"shared memory"})  # storage classes
_NONE: frozenset[str] = frozenset()
STORE, LOAD, ADD, READ, FENCE, BARRIER = "store", "load", "atomic add", "atomic load", "fence", "barrier"


@dataclass(frozen=True)
class Operation:
    """An operation. place: what it accesses, or which barrier it is. orders: the storage classes of its semantics. sees: of an
    atomic load, the invocations whose atomics it follows.
    """

    kind: str
    place: str = ""
    orders: frozenset[str] = _NONE
    releases: bool = False
    acquires: bool = False
    sees: tuple[Invocation, ...] = ()

    @property
    def has(self) -> frozenset[str]:
        """The storage classes that it accesses or orders."""
        return self.orders or B


def fence(orders: frozenset[str] = B) -> Operation:
    return Operation(FENCE, orders=orders, releases=True, acquires=True)


def barrier(name: str, orders: frozenset[str] = S) -> Operation:
    return Operation(BARRIER, name, orders, True, True)


def races(execution: Mapping[Invocation, Sequence[Operation]]) -> list[tuple[Invocation, Invocation, str]]:
    """The pairs of accesses that race, and where."""
    owners = [owner for owner, steps in execution.items() for _ in steps]
    steps = [step for steps in execution.values() for step in steps]
    every = range(len(steps))
    order = np.array([[owners[a] == owners[b] and a < b for b in every] for a in every])  # program order
    after, synchronizes = order | np.eye(len(steps), dtype=bool), np.zeros_like(order)
    for x, y in product(every, every):
        one, other = steps[x], steps[y]
        if one.kind == ADD and other.kind == READ and one.place == other.place and owners[x] in other.sees:
            # Of fences before the one and behind the other, in their own invocations; a barrier's scope is the workgroup
            synchronizes |= np.outer(order[:, x] & _are(steps, (FENCE,), B), order[y] & _are(steps, (FENCE,), B))
        if one.kind == other.kind == BARRIER and one.place == other.place and x != y and owners[x][0] == owners[y][0]:
            synchronizes |= np.outer(after[:, x] & _are(steps, (FENCE, BARRIER)), after[y] & _are(steps, (FENCE, BARRIER)))
    before = order.copy()
    for classes in (B, S, B | S):
        releases, acquires, has = (np.array([classes <= found(step) for step in steps]) for found in (
            lambda step: step.orders if step.releases else _NONE, lambda step: step.orders if step.acquires else _NONE,
            lambda step: step.has))
        found = synchronizes & np.outer(releases, acquires) | order & (np.outer(has, releases) | np.outer(acquires, has))
        for middle in every:  # and what follows from both
            found |= np.outer(found[:, middle], found[middle])
        before |= found
    return [(owners[a], owners[b], steps[a].place) for a, b in combinations(every, 2)
            if steps[a].place == steps[b].place and {steps[a].kind, steps[b].kind} in ({STORE}, {STORE, LOAD})
            and not before[a, b] and not before[b, a]]


def _are(steps: Sequence[Operation], kinds: tuple[str, ...], orders: frozenset[str] = _NONE) -> np.ndarray:
    return np.array([step.kind in kinds and orders <= step.orders for step in steps])


# Protocols

_PARTS = ("p", "q")
_FIRST = tuple((part, 0) for part in _PARTS)


def meeting(arrive: Sequence[Operation], before: Sequence[Operation], behind: Sequence[Operation], leave: Sequence[Operation]
            ) -> dict[Invocation, list[Operation]]:
    """Two parts of two invocations: each stores a word, they meet, and load both words of the other part. before, behind: what
    the first invocation does beside its atomics.
    """
    atomics = [*before, Operation(ADD, "counter"), Operation(READ, "counter", sees=_FIRST), *behind]
    return {(part, number): [Operation(STORE, f"{part}{number}"), *_named(arrive, "arrive"), *(atomics if number == 0 else []),
                             *_named(leave, "leave"), Operation(LOAD, f"{other}0"), Operation(LOAD, f"{other}1")]
            for part, other in zip(_PARTS, reversed(_PARTS)) for number in (0, 1)}


def _named(steps: Sequence[Operation], name: str) -> list[Operation]:
    return [replace(step, place=name) if step.kind == BARRIER else step for step in steps]


def message(release: Sequence[Operation], acquire: Sequence[Operation]) -> dict[Invocation, list[Operation]]:
    """A word handed over by an atomic."""
    return {("p", 0): [Operation(STORE, "x"), *release, Operation(ADD, "flag")],
            ("q", 0): [Operation(READ, "flag", sees=(("p", 0),)), *acquire, Operation(LOAD, "x")]}


def flow(store: str, load: str) -> dict[Invocation, list[Operation]]:
    """A word that is its own flag, and nothing else."""
    return {("p", 0): [Operation(store, "h")], ("q", 0): [Operation(load, "h", sees=(("p", 0),))]}


_ARRIVE, _LEAVE = [fence(), barrier("")], [barrier(""), fence()]
# Each with the number of its races
EXECUTIONS: dict[str, tuple[Mapping[Invocation, Sequence[Operation]], int]] = {
    "a message, with fences": (message([fence()], [fence()]), 0),
    "a message without a release": (message([], [fence()]), 1),
    "a message without an acquire": (message([fence()], []), 1),
    "a message, its fences of shared memory": (message([fence(S)], [fence(S)]), 1),
    "the barrier of parts (gpu/CELL_barrier.comp)": (meeting(_ARRIVE, [fence()], [fence()], _LEAVE), 0),
    "without fences beside its atomics, as it once was": (meeting(_ARRIVE, [], [], _LEAVE), 6),
    "so, and barrier() of buffers too": (meeting([fence(), barrier("", B | S)], [], [], [barrier("", B | S), fence()]), 6),
    "with barrier() of buffers instead of the others' fences": (meeting(
        [barrier("", B | S)], [fence()], [fence()], [barrier("", B | S)]), 0),
    "without barrier() before the arrival": (meeting([fence()], [fence()], [fence()], _LEAVE), 4),
    "without fences of the others": (meeting([barrier("")], [fence()], [fence()], [barrier("")]), 6),
    "flow by plain loads and stores, which is declared": (flow(STORE, LOAD), 1),
    "flow, each word an atomic": (flow(ADD, READ), 0),
}
