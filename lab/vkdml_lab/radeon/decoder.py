"""Structures that C runs, made of LLVM's text of instructions. What is not known is refused."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable

from vkdml_lab.radeon import instructions as table
from vkdml_lab.radeon.structures import (
    CONSTANT,
    EXEC,
    FLAGS,
    M0,
    MODIFIERS,
    NONE,
    NULL,
    SCALAR,
    SCC,
    VCC,
    VECTOR,
    Instruction,
    Operand,
)

_NAMED = {"vcc": (VCC, 2), "vcc_lo": (VCC, 1), "vcc_hi": (VCC + 1, 1), "exec": (EXEC, 2), "exec_lo": (EXEC, 1),
          "exec_hi": (EXEC + 1, 1), "m0": (M0, 1), "null": (NULL, 1), "src_scc": (SCC, 1), "scc": (SCC, 1)}
_REGISTER = re.compile(r"([vs])(?:(\d+)|\[(\d+):(\d+)\])(\.[lh])?")
_SIGNS = [(re.compile(pattern), MODIFIERS[name]) for pattern, name in (
    (r"neg\((.*)\)", "NEG"), (r"-([vs|\[].*|vcc.*|exec.*|m0)", "NEG"), (r"\|(.*)\|", "ABS"), (r"abs\((.*)\)", "ABS"))]
# Of memory: the bytes of an element, and the words
_SIZES = {"b8": (1, 1), "u8": (1, 1), "i8": (1, 1), "b16": (2, 1), "u16": (2, 1), "i16": (2, 1),
          **{f"b{32 * words}": (4, words) for words in (1, 2, 3, 4, 8, 16)}}
_MEMORY = re.compile(r"(buffer|global|scratch|ds)_(load|store|atomic)_(2addr_)?(stride64_)?(d16_)?(hi_)?(\w+)")
# RDNA 2 says the same with other names ("RDNA2 Instruction Set Architecture Reference Guide")
_OLDER_NAMES = [(re.compile(old), new) for old, new in (
    (r"_dword(?:x(\d+))?$", lambda found: f"_b{32 * int(found[1] or 1)}"),
    (r"^ds_(read|write)(2?)(st64)?_", lambda found: f"ds_{'load' if found[1] == 'read' else 'store'}_"
     f"{'2addr_' if found[2] else ''}{'stride64_' if found[3] else ''}"),
    (r"_load_short_d16", "_load_d16_b16"), (r"_load_([us])short", r"_load_\g<1>16"), (r"_load_([us])byte", r"_load_\g<1>8"),
    (r"_load_short", "_load_i16"), (r"_load_s(8|16)", r"_load_i\1"), (r"_store_short", "_store_b16"),
    (r"_store_byte", "_store_b8"), (r"^s_(and|or)n([12])_", lambda found: f"s_{found[1]}_not{int(found[2]) - 1}_"),
    (r"^s_ff1_", "s_ctz_"), (r"^s_flbit_i32_b32", "s_clz_i32_u32"), (r"^v_cvt_pkrtz_", "v_cvt_pk_rtz_"),
    (r"^(\w+_atomic_|ds_)(or|and|swap|xor)$", r"\1\2_b32"), (r"^(\w+_atomic_)(add|sub)$", r"\1\2_u32"),
    (r"^(\w+_atomic_)u(min|max)$", r"\1\2_u32"))]
# Parts of registers that its instructions select ("SDWA")
_SELECTIONS = {"DWORD": (), "WORD_0": ("WORD",), "WORD_1": ("HIGH", "WORD"), "BYTE_0": ("BYTE",), "BYTE_1": ("ODD", "BYTE"),
               "BYTE_2": ("HIGH", "BYTE"), "BYTE_3": ("HIGH", "ODD", "BYTE")}
_DESTINATIONS = {"DWORD": 0, "WORD_0": FLAGS["TO_LOW"], "WORD_1": FLAGS["TO_HIGH"]}
_UNUSED = {"UNUSED_PAD": 0, "UNUSED_PRESERVE": FLAGS["KEEPS"]}


class Refused(ValueError):  # noqa: N818
    """An instruction that the emulator does not know."""


def program(lines: Iterable[tuple[int, str, int | None]]) -> list[Instruction]:
    """The instructions of lines: each one's address, text, and the address that a branch goes to. What runs together ("VOPD")
    is two, the first with a flag.
    """
    made: list[Instruction] = []
    places, branches = {}, []
    for pc, text, goes_to in lines:
        places[pc] = len(made)
        *firsts, last = (instruction(half, pc) for half in text.split(" :: "))
        for first in firsts:
            first.flags |= FLAGS["DUAL"]
        made += [*firsts, last]
        if goes_to is not None:
            branches.append((last, goes_to))
    for branch, goes_to in branches:
        branch.target = places[goes_to]
    return made


def instruction(text: str, pc: int = 0) -> Instruction:
    """One instruction of its text, without a branch's target."""
    full, _, rest = re.sub(r"/\*.*?\*/", "", text).strip().partition(" ")
    *parts, tail = rest.split(", ")
    last, *words = tail.strip().split(" ")  # behind the operands, such as `offset:16 glc`
    name = re.sub(r"_(e32|e64|sdwa)$", "", full).replace("v_dual_", "v_")
    for old, new in _OLDER_NAMES:
        name = old.sub(new, name)
    made, modifiers = Instruction(pc=pc), {word.partition(":")[0]: word.partition(":")[2] for word in words if word}
    try:
        if name in table.IGNORED or re.match(r"s_setreg_b32 hwreg\(HW_REG_FLAT_SCR_", text):  # the base of scratch memory
            made.op = table.NUMBERS["nothing"]
        elif name.startswith("s_waitcnt"):
            _wait(made, name, rest)
        else:
            for hint in ("dlc", "slc"):  # of caches that are not here
                modifiers.pop(hint, None)
            decode = _scalar_load if re.match(r"s_(buffer_)?load_", name) else _compute if name in table.NUMBERS else _memory
            decode(made, name, [*parts, last] if last else [], modifiers)
            _select(made, modifiers)
            if modifiers:
                raise ValueError(f"{modifiers}")
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise Refused(f"{text} ({error})") from None
    return made


def operand(text: str, is_half: bool = False) -> Operand:
    """An operand by its text. is_half: a constant with a point is a float16."""
    modifiers = 0
    for pattern, sign in _SIGNS:
        if found := pattern.fullmatch(text):
            text, modifiers = found[1], modifiers | sign
    if text == "off":
        return Operand(NONE)
    if text in _NAMED:
        return Operand(SCALAR, *_NAMED[text], modifiers)
    if found := _REGISTER.fullmatch(text):
        first = int(found[2] or found[3])
        modifiers |= MODIFIERS["HIGH"] if found[5] == ".h" else 0
        return Operand(VECTOR if found[1] == "v" else SCALAR, first, 1 if found[2] else int(found[4]) - first + 1, modifiers)
    if re.fullmatch(r"-?\d+\.\d+(e[+-]?\d+)?", text):
        kind, to = ("<e", "<H") if is_half else ("<f", "<I")
        return Operand(CONSTANT, 0, 1, modifiers, struct.unpack(to, struct.pack(kind, float(text)))[0])
    # A literal fills 64 bits with zeros, a small number with its sign ("Scalar ALU Operands")
    return Operand(CONSTANT, 0, 1 if text.startswith("0x") else 2, modifiers, int(text, 0) & 0xffffffff)


def _flags(modifiers: dict[str, str], *names: str) -> int:
    return sum(FLAGS[name.upper()] for name in names if modifiers.pop(name, None) is not None)


def _bits(modifiers: dict[str, str], name: str) -> list[int]:
    return [int(bit) for bit in re.findall(r"\d", modifiers.pop(name, ""))]


def _select(made: Instruction, modifiers: dict[str, str]) -> None:
    to, unused = _DESTINATIONS[modifiers.pop("dst_sel", "DWORD")], _UNUSED[modifiers.pop("dst_unused", "UNUSED_PAD")]
    made.flags |= to | unused if to else 0
    for n in range(2):
        made.source[n].modifiers |= sum(MODIFIERS[one] for one in _SELECTIONS[modifiers.pop(f"src{n}_sel", "DWORD")])


def _wait(made: Instruction, name: str, rest: str) -> None:
    counts = {kind: int(count) for kind, count in re.findall(r"(\w+)\((\d+)\)", rest)}
    made.op = table.NUMBERS[name]
    if name == "s_waitcnt_depctr":  # of its fields vm_vsrc alone matters to what memory does
        made.immediate[0] = counts.get("depctr_vm_vsrc", 7) << 2 if counts else int(rest, 0)
    elif name == "s_waitcnt_vscnt":
        made.immediate[0] = int(rest.split(",")[1], 0)
    else:
        packed = 0 if counts else int(rest, 0)
        both = [counts.get("vmcnt", 63), counts.get("lgkmcnt", 63)]
        made.immediate[:] = both if counts else [packed >> 10 & 63, packed >> 4 & 63]


def _scalar_load(made: Instruction, name: str, parts: list[str], modifiers: dict[str, str]) -> None:
    made.op, made.to, made.source[0], offset = table.NUMBERS["scalar_load"], *map(operand, parts)
    made.size, made.to.words = _SIZES[name.rpartition("_")[2]]
    if offset.kind == CONSTANT:
        made.immediate[0] = int(parts[2], 0)
    else:
        made.source[1] = offset
    made.immediate[0] += int(modifiers.pop("offset", "0"), 0)
    _flags(modifiers, "glc")


def _compute(made: Instruction, name: str, parts: list[str], modifiers: dict[str, str]) -> None:
    is_float = table.VECTOR.get(name, "").startswith("word_of") or "_mix" in name
    if is_float:
        made.flags |= _flags(modifiers, "clamp") << name.endswith("f16")  # CLAMP_HALF
        made.flags |= {"": 0, "2": FLAGS["TIMES2"], "4": FLAGS["TIMES4"]}[modifiers.pop("mul", "")]
        made.flags |= {"": 0, "2": FLAGS["HALVED"]}[modifiers.pop("div", "")]
    elif "clamp" in modifiers:
        name += f" clamp{modifiers.pop('clamp')}"  # of whole numbers: a row of its own
    made.op = table.NUMBERS[name]
    if "branch" in name or not parts:
        return
    if name.startswith("v_cmpx"):
        made.flags |= FLAGS["SETS_EXEC"]
        parts = ["off", *parts[-2:]]
    elif name.startswith(("s_cmp", "s_bitcmp")):
        parts = ["off", *parts]
    elif name in table.CARRYING or name == "v_mad_u64_u32":
        made.to2 = operand(parts.pop(1))
    elif name == "v_cndmask_b32" and len(parts) == 3:
        parts = [*parts, "vcc"]
    halves = _bits(modifiers, "op_sel_hi") or [int(name == "v_cvt_f32_f16")] * 3
    made.to = operand(parts[0])
    for n, part in enumerate(parts[1:]):
        made.source[n] = operand(part, bool(halves[n]) and ("mix" in name or name == "v_cvt_f32_f16"))
        made.source[n].modifiers |= MODIFIERS["HALF"] * halves[n] if "mix" in name else 0
    for n, is_high in enumerate(_bits(modifiers, "op_sel")):
        (made.source[n] if n < len(parts) - 1 else made.to).modifiers |= is_high * MODIFIERS["HIGH"]
    made.to.modifiers |= MODIFIERS["HIGH"] if name == "v_fma_mixhi_f16" else 0
    if name == "v_cvt_f32_f16" and made.source[0].modifiers & (MODIFIERS["NEG"] | MODIFIERS["ABS"]):
        raise ValueError("the sign of a half")


def _memory(made: Instruction, name: str, parts: list[str], modifiers: dict[str, str]) -> None:
    found = _MEMORY.fullmatch(f"ds_atomic_{name[3:]}" if name.startswith("ds_") and name[3:] in table.ATOMICS else name)
    if not found:
        raise ValueError("its name")
    space, way, two, stride, d16, high, kind = found.groups()
    made.op = table.NUMBERS[f"{space}_{way}"]
    made.size, count = (4, 1) if way == "atomic" else _SIZES[kind]
    made.flags = _flags(modifiers, "glc", "offen") | (FLAGS["D16_HIGH" if high else "D16"] if d16 else 0)
    made.flags |= FLAGS["SIGNED"] * (kind[0] == "i") | FLAGS["TWO"] * bool(two)
    scale = (64 if stride else 1) * 4 * count if two else 1
    made.immediate[:] = [int(modifiers.pop(one, "0"), 0) * scale for one in ("offset0" if two else "offset", "offset1")]
    if space == "ds" and way != "load":
        data, where = parts[1:], parts[:1]
    else:
        address_first = way == "store" and space in ("global", "scratch")
        data, where = (parts[1:2], [parts[0], parts[2]]) if address_first else (parts[:1], parts[1:])
    made.to = operand(data[0])
    made.to.words = 2 * count if two and way == "load" else count
    made.to2 = operand(data[1]) if len(data) == 2 else Operand(NONE)
    if way == "atomic":
        made.immediate[1] = table.ATOMICS[kind]
    for n, part in enumerate(where):
        made.source[n] = operand(part)
