"""Reads four compilers' assembly (AMD's ACO, NVIDIA's NAK, Intel's, Adreno's IR3) into instructions of a few common kinds."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

# Loads from memory, from shared memory, of scalars for a whole subgroup, and of units beside the vector units
LOAD, SHARED, CONSTANT, QUICK = "load", "shared", "constant", "quick"
STORE, SHARED_STORE, SCRATCH, BARRIER = "store", "shared store", "scratch", "barrier"
BRANCH, FLOAT, OTHER, BESIDE = "branch", "float", "other", "beside"
# Roles of instructions that only some invocations run: adding up partial sums, and finishing an element
SUMMING, FINISHING = "summing", "finishing"


@dataclass
class Instruction:
    """An instruction. kind: a constant above; FLOAT is an addition or product alone, and BESIDE (scalar instructions, waits)
    delays no vector instruction of another subgroup.

    lanes: number of lanes that it runs for; 0: all of the subgroup. multiply_adds: for each lane. size: bytes that each lane
    loads. uniform: all lanes load the same. coherent: it bypasses the cache of its core. tag: a load's name, by which waits
    refer to it. waits: by tag, how many loads may remain pending. target: label that a branch jumps to. is_last: it ends the
    program or always jumps. repeats: how often it is issued. in_vain: it runs only after a poll that found nothing. role:
    SUMMING or FINISHING, if it is part of such work, which other subgroups skip. text: its line of the assembly.
    """

    kind: str
    lanes: int = 0
    multiply_adds: int = 0
    size: int = 0
    uniform: bool = False
    coherent: bool = False
    tag: str = ""
    waits: dict[str, int] = field(default_factory=dict)
    target: str = ""
    is_last: bool = False
    repeats: int = 1
    in_vain: bool = False
    role: str = ""
    text: str = ""


@dataclass
class Block:
    """Instructions in a row, of which only the last may be a branch. followers: labels of the blocks that may run next."""

    label: str
    instructions: list[Instruction] = field(default_factory=list)
    followers: list[str] = field(default_factory=list)


# AMD

_BYTES = {"b8": 1, "u8": 1, "ubyte": 1, "b16": 2, "u16": 2, "ushort": 2, "b32": 4, "dword": 4, "u32": 4, "b64": 8, "dwordx2": 8,
          "b96": 12, "dwordx3": 12, "b128": 16, "dwordx4": 16, "b256": 32, "dwordx8": 32, "b512": 64, "dwordx16": 64}
_AMD_FUSED = re.compile(r"\bv_(?:dual_)?(?:fmac|fma|fmaak|fmamk|mac|madak|madmk|mad|fma_mix)_f32")
_AMD_TWO_FUSED = re.compile(r"\bv_(?:pk_fma_f(?:16|32)|dot2\w*)")
_AMD_KINDS = [
    (re.compile(r"scratch_"), SCRATCH),
    (re.compile(r"(buffer|global)_load"), LOAD),
    (re.compile(r"(buffer|global)_store"), STORE),
    (re.compile(r"ds_(load|read)"), SHARED),
    (re.compile(r"ds_(store|write)"), SHARED_STORE),
    (re.compile(r"s_(buffer_)?load"), CONSTANT),
    (re.compile(r"s_barrier(_signal)?$"), BARRIER),
    (re.compile(r"s_c?branch"), BRANCH),
    (re.compile(r"s_"), BESIDE),
    (re.compile(r"v_(dual_)?(mul|add|sub)_f32"), FLOAT),
]
# Names of the counters in assembly: up to RDNA 3, and from RDNA 4 on
_AMD_COUNTERS = {"vmcnt": (LOAD,), "lgkmcnt": (SHARED, CONSTANT), "loadcnt": (LOAD,), "dscnt": (SHARED,), "kmcnt": (CONSTANT,)}


def _amd_waits(text: str) -> dict[str, int]:
    if found := re.match(r"s_wait_loadcnt_dscnt\s+(\w+)", text):  # one number has both
        both = int(found[1], 0)
        return {LOAD: both >> 8 & 63, SHARED: both & 63}
    named = re.findall(r"(vmcnt|lgkmcnt)\((\d+)\)", text) or re.findall(r"s_wait_(loadcnt|dscnt|kmcnt)\s+(\w+)", text)
    return {tag: int(most, 0) for counter, most in named for tag in _AMD_COUNTERS[counter]}


def _amd_size(name: str) -> int:
    places = 2 if re.search(r"_2addr_|_(read|write)2", name) else 1
    return places * _BYTES.get(name.rpartition("_")[2], 4)


def _amd(line: str) -> Instruction | None:
    text = line.split(";")[0].strip()
    if not text:
        return None
    name = text.split()[0]
    fused = len(_AMD_FUSED.findall(text)) + 2 * len(_AMD_TWO_FUSED.findall(text))
    kind = next((kind for pattern, kind in _AMD_KINDS if pattern.match(name)), OTHER)
    instruction = Instruction(OTHER if fused else kind, 1 if name.startswith("s_") else 0, fused)
    if re.match(r"(buffer|global)_atomic", name):  # without glc, no old value is returned
        instruction.kind = LOAD if re.search(r"\bglc\b|\bsc0\b|ATOMIC_RETURN", text) else STORE
    if instruction.kind in (LOAD, SHARED, CONSTANT):
        instruction.tag, instruction.size = instruction.kind, _amd_size(name)
        instruction.uniform = instruction.kind == CONSTANT or " off, s[" in text
        instruction.coherent = bool(re.search(r"\bglc\b|\bsc[01]\b|scope:SCOPE_(DEV|SYS)|atomic", text))
    instruction.waits = _amd_waits(text)
    if instruction.kind == BRANCH:
        instruction.target = text.split()[-1]
    instruction.is_last = name in ("s_branch", "s_endpgm")
    return instruction


# NVIDIA

_NVIDIA_KINDS = [
    (re.compile(r"null\s+= atom"), STORE),
    (re.compile(r"= (ld\.shared|lds|atoms|atom\S*\.shared)"), SHARED),
    (re.compile(r"= (ld\.global|ldg|atom)"), LOAD),
    (re.compile(r"= (ldc|s2ur|s2r)"), QUICK),
    (re.compile(r"(ld|st)\.local|\b(ldl|stl)\b"), SCRATCH),
    (re.compile(r"\bst\.shared|\bsts\b"), SHARED_STORE),
    (re.compile(r"\bst\.global|\bstg\b|\bred\b"), STORE),
    (re.compile(r"\bbar\."), BARRIER),
    (re.compile(r"\b(bra|bssy|bsync|exit)\b"), BRANCH),
    (re.compile(r"= (fmul|fadd)"), FLOAT),
]


def _nvidia(line: str) -> Instruction | None:
    text = line.strip()
    if not text or text.startswith(("block", "}")):
        return None
    code, _, notes = text.partition("//")
    fused = len(re.findall(r"= ffma", code)) + 2 * len(re.findall(r"= hfma2", code))
    kind = next((kind for pattern, kind in _NVIDIA_KINDS if pattern.search(code)), OTHER)
    instruction = Instruction(kind, multiply_adds=fused)
    if kind in (LOAD, SHARED):
        widths = re.findall(r"\.([bu]\d+)\b", code)
        instruction.size = _BYTES.get(widths[-1], 4) if widths else 4
        instruction.uniform = "[rZ+" in code
        instruction.coherent = ".strong" in code
    # Six flags: each result sets one, and any instruction may wait for any
    if kind in (LOAD, SHARED, QUICK) and (sets := re.search(r"wr:(\d)", notes)):
        instruction.tag = sets[1]
    if mask := re.search(r"wt=([01]{6})", notes):
        instruction.waits = {str(bit): 0 for bit, is_set in enumerate(reversed(mask[1])) if is_set == "1"}
    return instruction


# Intel

_INTEL_INSTRUCTION = re.compile(r"(?:\(\S+\)\s+)?([a-z][\w.]*)\s+\((\d+)\)")
_INTEL_MESSAGES = [
    (re.compile(r"load\.ugm|atomic\w*\.ugm|untyped_atomic|(untyped|oword|byte|dword)\w*_read"), LOAD),
    (re.compile(r"load\.slm|atomic\w*\.slm"), SHARED),
    (re.compile(r"store\.slm"), SHARED_STORE),
    (re.compile(r"store\.ugm|(untyped|oword|byte|dword)\w*_write"), STORE),
    (re.compile(r"barrier_msg"), BARRIER),
]
_INTEL_CHANNELS = re.compile(r"_read:([xyzw]+)")
_SHARED_SURFACE, _SCRATCH_SURFACE = "bti(254)", "bti(253)"


def _intel_message(message: str) -> tuple[str, int]:
    """Return the kind of a message to memory, and its bytes for each lane. message: its description in the assembly."""
    kind = next((kind for pattern, kind in _INTEL_MESSAGES if pattern.search(message)), OTHER)
    if _SCRATCH_SURFACE in message or "scratch" in message:
        return SCRATCH, 0
    if _SHARED_SURFACE in message:
        kind = {LOAD: SHARED, STORE: SHARED_STORE}.get(kind, kind)
    if found := re.search(r"\.d(\d+)(?:u\d+)?(?:x(\d+))?", message):
        return kind, int(found[1]) // 8 * int(found[2] or 1)
    channels = _INTEL_CHANNELS.search(message)
    return kind, 4 * len(channels[1]) if channels else 4


def _intel(line: str) -> Instruction | None:
    found = _INTEL_INSTRUCTION.match(line.strip())
    if found is None:
        # Jumps name their target, but not always the number of lanes
        return None
    name, lanes = found[1], int(found[2])
    code, _, notes = line.partition("//")
    instruction = Instruction(OTHER, lanes)
    if name.startswith("send"):
        instruction.kind, instruction.size = _intel_message(notes)
        # Before DG2, these bypass all caches of a core
        instruction.uniform, instruction.coherent = lanes == 1, bool(re.search(r"\.uc|atomic|untyped_read", notes))
        if instruction.kind in (LOAD, SHARED) and (sets := re.search(r"(?<![.\w])\$(\d+)(?!\.)\b", code[code.rfind("{"):])):
            instruction.tag = sets[1]
    elif name in ("mad", "mac"):
        instruction.multiply_adds = 1
    elif name in ("mul", "add") and re.search(r"r\d+(?:\.\d+)?(?:<[\d;,]+>)?:f", code):
        instruction.kind = FLOAT
    elif name in ("while", "if", "else", "endif", "break", "cont", "halt", "jmpi"):
        instruction.kind = BRANCH
        if name in ("while", "if", "else"):  # break only masks lanes, until all are masked
            instruction.target = re.findall(r"\bL\d+", code)[0]
    elif name.startswith("sync"):
        instruction.kind = BESIDE
    instruction.waits = dict.fromkeys(re.findall(r"\$(\d+)\.dst", code), 0)
    return instruction


# Adreno

_ADRENO_INSTRUCTION = re.compile(r"((?:\(\w+\)\s*)*)([a-z][\w.]*)(.*)")
_ADRENO_KINDS = [
    (re.compile(r"(ldp|stp)\."), SCRATCH),
    (re.compile(r"ldib|isam|ldg"), LOAD),
    (re.compile(r"ldl"), SHARED),
    (re.compile(r"ldc|ldcu"), CONSTANT),
    (re.compile(r"(rcp|rsq|exp2|log2|sqrt|sin|cos)$"), QUICK),
    (re.compile(r"stl"), SHARED_STORE),
    (re.compile(r"stib|stg|atomic\.b"), STORE),
    (re.compile(r"atomic"), SHARED),
    (re.compile(r"bar\."), BARRIER),
    (re.compile(r"br|jump|getone|shps|bany|ball|end$"), BRANCH),
    (re.compile(r"nop|predt|predf|prede"), BESIDE),
    (re.compile(r"(add|mul)\.f"), FLOAT),
]


def _adreno(line: str) -> Instruction | None:
    found = _ADRENO_INSTRUCTION.match(line.strip())
    if found is None:
        return None
    flags, name, operands = found.groups()
    instruction = Instruction(next((kind for pattern, kind in _ADRENO_KINDS if pattern.match(name)), OTHER))
    if again := re.search(r"\(rpt(\d)\)", flags):
        instruction.repeats = 1 + int(again[1])
    instruction.multiply_adds = int(name.startswith("mad.f"))
    if instruction.kind in (LOAD, SHARED, QUICK, CONSTANT):
        instruction.tag = instruction.kind
        instruction.coherent = name.startswith("ldib")  # isam may read from a core's texture cache
        words = re.search(r"\(([xyzw]+)\)|untyped\.1d\.u\d+\.(\d)\.|, (\d)$", name + operands)
        if words:
            instruction.size = 4 * (len(words[1] or "") or int(words[2] or words[3]))
    if "(sy)" in flags:
        instruction.waits |= {LOAD: 0}
    if "(ss)" in flags:
        instruction.waits |= {SHARED: 0, QUICK: 0, CONSTANT: 0}
    if target := re.search(r"#(l\d+)", operands):
        instruction.target = target[1]
    instruction.is_last = name in ("jump", "end")
    return instruction


# The beginning of each compiler's assembly, and the reader of its lines
_COMPILERS: list[tuple[str, Callable[[str], Instruction | None]]] = [
    ("Assembly", _amd), ("NAK assembly", _nvidia), ("GEN Assembly", _intel), ("IR3 Assembly", _adreno)]
_LABEL = re.compile(r"\s*(BB\d+|[Ll]\d+|LABEL\d+):")
_NVIDIA_BLOCK = re.compile(r"block\S* (\d+) ")
_NVIDIA_FOLLOWERS = re.compile(r"\} -> \[(.*)\]")
_AGAIN = re.compile(r"\s*\(then repeated (\d+) times\)")


def parse(text: str) -> list[Block] | None:
    """Parse assembly into blocks, in its order; the first runs first. Returns None if no known compiler made the text."""
    head, _, body = text.partition("\n")
    read = dict(_COMPILERS).get(head)
    if read is None:
        return None
    blocks = [Block("")]
    for line in body.splitlines():
        if label := _LABEL.match(line):
            _open(blocks, label[1])
        elif label := _NVIDIA_BLOCK.match(line):  # NVIDIA's blocks name their successors
            if len(blocks) == 1:
                blocks[0].followers = [label[1]]
            blocks.append(Block(label[1]))
        elif followers := _NVIDIA_FOLLOWERS.match(line):
            blocks[-1].followers = re.findall(r"\d+", followers[1])
        elif again := _AGAIN.match(line):
            blocks[-1].instructions += [replace(blocks[-1].instructions[-1]) for _ in range(int(again[1]))]
        elif instruction := read(line):
            instruction.text = line.strip()
            blocks[-1].instructions.append(instruction)
            if instruction.target:
                blocks[-1].followers.append(instruction.target)
                _open(blocks, f"after branch {len(blocks)}")
    return blocks


def _open(blocks: list[Block], label: str) -> None:
    """Append an empty block. It follows the last block, unless the last instruction there ends the program or always jumps."""
    before = blocks[-1].instructions
    if not (before and before[-1].is_last):
        blocks[-1].followers.append(label)
    blocks.append(Block(label))
