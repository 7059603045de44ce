"""Finds the loops in assembly. A polling loop waits for other workgroups: it loads words of h until all have been stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from vkdml_lab.gpu.assembly import FINISHING, LOAD, SHARED_STORE, SUMMING, Block, Instruction

_ENOUGH = 4  # multiply-adds of a loop with products: they have that many for each load, and activations hardly more
_FLAG = 4  # most bytes of a flag


@dataclass
class Loop:
    """A loop. body: its instructions and inner loops, in order. The whole program is also a Loop, which runs once."""

    body: list[Instruction | Loop] = field(default_factory=list)

    @property
    def inner(self) -> list[Loop]:
        return [item for item in self.body if isinstance(item, Loop)]

    @property
    def instructions(self) -> list[Instruction]:
        """All instructions, including those of inner loops."""
        return [one for item in self.body for one in (item.instructions if isinstance(item, Loop) else [item])]

    @property
    def multiply_adds(self) -> int:
        return sum(one.multiply_adds * one.repeats for one in self.instructions)

    @property
    def has_products(self) -> bool:
        return self.multiply_adds >= _ENOUGH

    @property
    def at_once(self) -> Loop:
        """A copy of the loop as it runs if the first poll succeeds: without the instructions that only follow a failed poll."""
        return Loop([item for item in self.body if isinstance(item, Loop) or not item.in_vain])


def loops(blocks: list[Block]) -> Loop:
    """Return the program as a Loop, with inner loops in place of their blocks. Sets instructions' `in_vain` and `role`."""
    numbers = {block.label: number for number, block in enumerate(blocks)}
    after = [[numbers[label] for label in block.followers if label in numbers] for block in blocks]
    before: list[list[int]] = [[] for _ in blocks]
    for number, followers in enumerate(after):
        for follower in followers:
            before[follower].append(number)
    every = set(range(len(blocks)))
    bodies: dict[int, set[int]] = {}  # key: the first block of the loop
    for last, first in _backward(after):
        bodies.setdefault(first, {first}).update(_reached(before, last, every - {first}))
    for first, body in bodies.items():
        for number in _in_vain(blocks, after, first, body):
            for one in blocks[number].instructions:
                one.in_vain = True
    for first, body in bodies.items():
        inner = {number for other, of_other in bodies.items() if other != first and of_other < body for number in of_other}
        for number in _passed_over(blocks, after, first, body) - inner:
            run = blocks[number].instructions
            adds = any(one.kind == SHARED_STORE for one in run) and not any(one.multiply_adds for one in run)
            for one in run:
                one.role = SUMMING if adds else FINISHING
    return _nest(blocks, every, bodies)


def _backward(after: list[list[int]]) -> Iterator[tuple[int, int]]:
    """Yield (block, target) for each branch back to a block on its path in a depth-first search. after: blocks' followers."""
    on_the_way: dict[int, Iterator[int]] = {0: iter(after[0])}
    seen = {0}
    while on_the_way:
        number = next(reversed(on_the_way))
        follower = next(on_the_way[number], None)
        if follower is None:
            del on_the_way[number]
        elif follower in on_the_way:
            yield number, follower
        elif follower not in seen:
            seen.add(follower)
            on_the_way[follower] = iter(after[follower])


def _in_vain(blocks: list[Block], after: list[list[int]], first: int, numbers: set[int]) -> set[int]:
    """Return the blocks of a polling loop that run only after a failed poll (none for other loops). They load the flag gave_up,
    but neither load h nor store it. after: each block's followers. first: the loop's first block. numbers: all its blocks.
    """
    def loads(number: int, flags: bool) -> bool:
        return any(one.kind == LOAD and one.coherent and (one.size <= _FLAG) == flags for one in blocks[number].instructions)

    looks = {number for number in numbers if loads(number, flags=False)}
    kept = looks | {number for number in numbers if any(one.kind == SHARED_STORE for one in blocks[number].instructions)}
    flags = {number for number in numbers if loads(number, flags=True)}
    if not looks or any(one.multiply_adds for number in numbers for one in blocks[number].instructions):
        return set()
    leaving = {number for number in numbers if not numbers.issuperset(after[number])}
    found = (numbers - _reached(after, first, numbers - {entry}) for entry in numbers - {first})
    return max((one for one in found if one & flags and not one & kept and not one >= leaving), key=len, default=set())


def _passed_over(blocks: list[Block], after: list[list[int]], first: int, numbers: set[int]) -> set[int]:
    """Return the blocks of a loop that an iteration may skip; none if it has few multiply-adds. numbers: all of its blocks."""
    if sum(one.multiply_adds * one.repeats for number in numbers for one in blocks[number].instructions) < _ENOUGH:
        return set()
    last = {number for number in numbers if first in after[number]}
    return {number for number in numbers - {first} if last & _reached(after, first, numbers - {number})}


def _reached(links: list[list[int]], first: int, numbers: set[int]) -> set[int]:
    """Return the blocks that can be reached from block `first` without leaving `numbers`. links: each block's next ones."""
    found, left = set[int](), [first]
    while left:
        number = left.pop()
        if number in numbers and number not in found:
            found.add(number)
            left += links[number]
    return found


def _nest(blocks: list[Block], numbers: set[int], bodies: dict[int, set[int]]) -> Loop:
    """Return a Loop of the blocks `numbers`, with nested inner loops. bodies: the blocks of each loop, by its first block."""
    loop, done = Loop(), set[int]()
    for number in sorted(numbers):
        if number in done:
            continue
        if number in bodies:
            body = bodies[number] & numbers
            inner = {first: others for first, others in bodies.items() if first != number}
            loop.body.append(_nest(blocks, body, inner))
            done |= body
        else:
            loop.body += blocks[number].instructions
    return loop


def of_products(whole: Loop) -> Loop:
    """Return the loop with the most multiply-adds, not counting loops inside of others, or the program if no loop has any."""
    return max((loop for loop in whole.inner if loop.has_products), key=lambda loop: loop.multiply_adds, default=whole)
