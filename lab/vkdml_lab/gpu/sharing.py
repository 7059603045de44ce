"""Checks in assembly how workgroups that wait for each other share the state h, and how 16-bit elements are stored.

A poll (a load of h that waits for it) must be in a loop, and bypass each cache that other cores do not write to. A store of h
must reach a cache that other cores read. Loads of gates must come before a step's first poll, as waiting hides their latency.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from vkdml_lab.gpu.assembly import BARRIER, LOAD, SCRATCH, SHARED, SHARED_STORE, STORE, Instruction
from vkdml_lab.gpu.loops import Loop

_VECTOR = 16  # bytes that a load of h loads


@dataclass(frozen=True)
class Memory:
    """Regular expressions that find correct accesses to h in a GPU's assembly. word: a load. store: a store."""

    word: str
    store: str


_GCN = Memory(r"buffer_load_dwordx4 .*\bglc\b", r"buffer_store_dword .*\bglc\b")
_RDNA2 = Memory(r"buffer_load_dwordx4 .*\bglc dlc\b", r"buffer_store_dword .*\bglc\b")
_RDNA3 = Memory(r"buffer_load_b128 .*\bglc\b", r"buffer_store_b32\b")  # all stores bypass its cache
_RDNA4 = Memory(r"buffer_load_b128 .*\bscope:SCOPE_DEV\b", r"buffer_store_b32 .*\bscope:SCOPE_DEV\b")
_NVIDIA = Memory(r"\bld\.global\.\S*strong\.gpu\.b128\b", r"\bst\.global\.\S*strong\.gpu\b")
_XE_LP = Memory(r"untyped_read:xyzw\b", r"untyped_write:x\b")  # these bypass a core's cache
_XE = Memory(r"load\.ugm\.d32x4\.a32\.uc\.ca\b", r"store\.ugm\.d32\.a32\.uc\.wb\b")
_ADRENO = Memory(r"ldib\.\S*\.u32\.4\.", r"stib\.")  # isam would use the texture cache
MEMORY = {
    "rx6900xt": _RDNA2, "rx7900xtx": _RDNA3, "rx9070": _RDNA4, "vega64": _GCN, "mi200": _GCN,
    "rtx2080": _NVIDIA, "a100": _NVIDIA, "h200": _NVIDIA, "rtx3090": _NVIDIA, "rtx4090": _NVIDIA, "rtx5090": _NVIDIA,
    "arc-a770": _XE, "arc-b580": _XE, "tgl": _XE_LP, "adreno618": _ADRENO, "adreno740": _ADRENO,
}
# Names of the counts
WORDS, STORES, GATES = "polls of h", "stores of h", "loads of the gates before a step's first poll"

_ATOMIC = re.compile(r"(?<![a-z])(atom|untyped_atomic)")
_CLEARING = re.compile(r"atom(?:ic)?(?:_|\.|\.b\.)and(?![a-z])")


def shared(code: Loop, memory: Memory, phases: int) -> dict[str, float]:
    """Return how many polling loops and stores of h are correct, per phase. If any poll is wrong, the number of polls is 0."""
    stores = sum(_is(one, STORE, memory.store) for one in code.instructions)
    polls = [vectors for loop in _every(code) if not loop.has_products and (vectors := _vectors(loop))]
    words = len(polls) if all(_is(one, LOAD, memory.word) for vectors in polls for one in vectors) else 0
    return {STORES: stores / phases, WORDS: words / phases}


def loads_before_waiting(step: Loop, least: int, width: int) -> float:
    """Return how many loads come before a step's first barrier or poll. Only loads that bypass the core's cache and load at
    least `least` bytes a lane count. width: lanes of a subgroup; a load for fewer lanes counts as a fraction.
    """
    ahead = takewhile(lambda one: one is not None, _until_waiting(step))
    return sum((one.lanes or width) / width for one in ahead if one and _is_ahead(one, least))


def _is_ahead(one: Instruction, least: int) -> bool:
    return one.kind == LOAD and one.coherent and not one.uniform and one.size >= least


def _until_waiting(loop: Loop) -> Iterator[Instruction | None]:
    """Yield the instructions in order, also of inner loops, with None in place of each barrier and polling loop."""
    for item in loop.body:
        if isinstance(item, Instruction):
            yield None if item.kind == BARRIER else item
        elif any(one.kind == LOAD and one.coherent for one in _own(item)) and not item.has_products:
            yield None
        else:
            yield from _until_waiting(item)


def atomics_of_elements(code: Loop, waits: bool) -> float:
    """Return how many atomics store a 16-bit element. A kernel that `waits` has others: assume 2, or 0 if none clears bits."""
    texts = [one.text for one in code.instructions if _ATOMIC.search(one.text) and one.kind not in (SHARED, SHARED_STORE)]
    clearing = sum(bool(_CLEARING.search(text)) for text in texts)
    return (2 * clearing if waits else len(texts)) / max(clearing, 1)


def scratch_accesses(code: Loop) -> int:
    """Return the number of loads and stores of spilled registers, for drivers that do not report spills."""
    return sum(one.kind == SCRATCH for one in code.instructions)


def _every(loop: Loop) -> Iterator[Loop]:
    """Yield all loops inside a loop, at any depth."""
    for inner in loop.inner:
        yield inner
        yield from _every(inner)


def _own(loop: Loop) -> list[Instruction]:
    return [item for item in loop.body if isinstance(item, Instruction)]


def _vectors(loop: Loop) -> list[Instruction]:
    return [one for one in _own(loop) if one.kind == LOAD and one.size >= _VECTOR]


def _is(instruction: Instruction, kind: str, pattern: str) -> bool:
    return instruction.kind == kind and bool(re.search(pattern, instruction.text))
