"""From LLVM's text of an instruction to the structure that C runs. Names, operands and modifiers that are not known are refused."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable

from vkdml_lab.radeon import instructions as table
from vkdml_lab.radeon.structures import CONSTANT, EXEC, FLAGS, M0, MODIFIERS, NONE, NULL, SCALAR, SCC, VCC, VECTOR, Instruction, Operand

_NAMED = {"vcc": (VCC, 2), "vcc_lo": (VCC, 1), "vcc_hi": (VCC + 1, 1), "exec": (EXEC, 2), "exec_lo": (EXEC, 1), "exec_hi": (EXEC + 1, 1),
          "m0": (M0, 1), "null": (NULL, 1), "src_scc": (SCC, 1), "scc": (SCC, 1)}
_REGISTER = re.compile(r"([vs])(?:(\d+)|\[(\d+):(\d+)\])(\.[lh])?")
# Of memory: the bytes of an element, and the words
_SIZES = {"b8": (1, 1), "u8": (1, 1), "i8": (1, 1), "b16": (2, 1), "u16": (2, 1), "i16": (2, 1),
          **{f"b{32 * words}": (4, words) for words in (1, 2, 3, 4, 8, 16)}}
_MEMORY = re.compile(r"(buffer|global|ds)_(load|store|atomic)_(2addr_)?(stride64_)?(d16_)?(hi_)?(\w+)")

# RDNA 2 says the same with other names ("RDNA2 Instruction Set Architecture Reference Guide")
_OLDER_NAMES = [(re.compile(old), new) for old, new in (
    (r"_dword(?:x(\d+))?$", lambda found: f"_b{32 * int(found[1] or 1)}"),
    (r"^ds_(read|write)(2?)(st64)?_", lambda found: f"ds_{'load' if found[1] == 'read' else 'store'}_"
     f"{'2addr_' if found[2] else ''}{'stride64_' if found[3] else ''}"),
    (r"_load_ushort", "_load_u16"), (r"_load_ubyte", "_load_u8"), (r"_load_short", "_load_i16"), (r"_load_sbyte", "_load_i8"),
    (r"_load_short_d16", "_load_d16_b16"), (r"_store_short", "_store_b16"), (r"_store_byte", "_store_b8"),
    (r"^s_(and|or)n2_", r"s_\1_not1_"), (r"^s_ff1_", "s_ctz_"), (r"^s_flbit_i32_b32", "s_clz_i32_u32"),
    (r"^s_(and|or)n1_", r"s_\1_not0_"), (r"^(\w+_atomic_|ds_)(or|and|swap|xor)$", r"\1\2_b32"),
    (r"^(\w+_atomic_)(add|sub)$", r"\1\2_u32"), (r"^(\w+_atomic_)u(min|max)$", r"\1\2_u32"), (r"^v_cvt_pkrtz_", "v_cvt_pk_rtz_"))]
# Parts of registers that its instructions select ("SDWA")
_SELECTIONS = {"DWORD": (), "WORD_0": ("WORD",), "WORD_1": ("HIGH", "WORD"), "BYTE_0": ("BYTE",), "BYTE_1": ("ODD", "BYTE"),
               "BYTE_2": ("HIGH", "BYTE"), "BYTE_3": ("HIGH", "ODD", "BYTE")}


class Refused(ValueError):
    """An instruction that the emulator does not know."""


def program(lines: Iterable[tuple[int, str, int | None]]) -> list[Instruction]:
    """The instructions of lines: each one's address, text, and the address that a branch goes to. Those that run together as one
    ("VOPD") are two, the first with a flag.
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
    name, _, rest = re.sub(r"/\*.*?\*/", "", text).strip().partition(" ")
    parts = [part.strip() for part in re.split(r", ", rest)] if rest else []
    tail = parts[-1].split(" ") if parts else []
    words = _Modifiers(tail[1:])
    if parts:
        parts[-1] = tail[0]
    full, name = name, re.sub(r"_(e32|e64|sdwa)$", "", name).replace("v_dual_", "v_")
    for old, new in _OLDER_NAMES:
        name = old.sub(new, name)
    made = Instruction(pc=pc)
    try:
        if name in table.IGNORED:
            made.op = table.NUMBERS["nothing"]
        elif name.startswith("s_waitcnt"):
            _wait(made, name, rest)
        elif found := re.fullmatch(r"s_(?:buffer_)?load_(b\d+)", name):
            made.op, (made.size, count) = table.NUMBERS["scalar_load"], _SIZES[found[1]]
            _put(made, parts[:2])
            made.to.words = count
            offset = operand(parts[2])
            if offset.kind == CONSTANT:
                made.immediate[0] = int(parts[2], 0)
            else:
                made.source[1] = offset
            made.immediate[0] += words.number("offset")
            words.allow("glc", "dlc")
        elif name in table.NUMBERS:
            _compute(made, name, full, parts, words)
            words.done()
        else:
            _memory(made, name, parts, words)
            words.done()
    except (KeyError, IndexError, ValueError) as error:
        raise Refused(f"{text} ({error})") from None
    return made


class _Modifiers:
    """What stands behind the operands, such as `offset:16 glc`; all of it must be asked for."""

    def __init__(self, words: list[str]) -> None:
        self.words = dict((word.split(":", 1) + [""])[:2] for word in words if word)

    def number(self, name: str) -> int:
        return int(self.words.pop(name, "0"), 0)

    def numbers(self, name: str, default: list[int]) -> list[int]:
        return [int(one) for one in self.words.pop(name)[1:-1].split(",")] if name in self.words else default

    def text(self, name: str) -> str:
        return self.words.pop(name, "")

    def flag(self, name: str) -> int:
        return FLAGS[name.upper()] if self.words.pop(name, None) is not None else 0

    def allow(self, *names: str) -> None:
        for name in names:
            self.words.pop(name, None)

    def done(self) -> None:
        if self.words:
            raise ValueError(f"modifiers {' '.join(self.words)}")


def operand(text: str, is_half: bool = False) -> Operand:
    """An operand by its text. is_half: a constant with a point is a float16."""
    modifiers = 0
    for pattern, flag in ((r"neg\((.*)\)", "NEG"), (r"-([vs|\[].*|vcc.*|exec.*|m0)", "NEG"), (r"\|(.*)\|", "ABS"), (r"abs\((.*)\)", "ABS")):
        if found := re.fullmatch(pattern, text):
            text, modifiers = found[1], modifiers | MODIFIERS[flag]
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


def _put(made: Instruction, parts: list[str], is_half: bool = False) -> None:
    made.to = operand(parts[0])
    for n, part in enumerate(parts[1:]):
        made.source[n] = operand(part, is_half)


def _wait(made: Instruction, name: str, rest: str) -> None:
    counts = {kind: int(count) for kind, count in re.findall(r"(\w+)\((\d+)\)", rest)}
    if name == "s_waitcnt_depctr":  # of its fields vm_vsrc alone matters to what memory does
        made.immediate[0] = int(rest, 0) if not counts else counts.get("depctr_vm_vsrc", 7) << 2
    elif name == "s_waitcnt_vscnt":
        made.immediate[0] = int(rest.split(",")[1], 0)
    elif counts:
        made.immediate[:] = counts.get("vmcnt", 63), counts.get("lgkmcnt", 63)
    else:
        made.immediate[:] = int(rest, 0) >> 10 & 63, int(rest, 0) >> 4 & 63
    made.op = table.NUMBERS[name]


def _compute(made: Instruction, name: str, full: str, parts: list[str], words: _Modifiers) -> None:
    is_vector = name in table.VECTOR
    if is_vector and words.words.get("clamp") is not None and not table.VECTOR[name].startswith("word_of"):
        name += " clamp"  # of whole numbers: a row of its own
        words.allow("clamp")
    made.op = table.NUMBERS[name]
    if name in table.BRANCHES or name in ("s_endpgm", "s_barrier", "buffer_gl0_inv", "buffer_gl1_inv"):
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
    _put(made, parts, name == "v_cvt_f32_f16")
    if name.startswith("v_fma_mix"):
        halves, highs = words.numbers("op_sel_hi", [0, 0, 0]), words.numbers("op_sel", [0, 0, 0])
        for n, part in enumerate(parts[1:]):
            made.source[n] = operand(part, bool(halves[n]))
            made.source[n].modifiers |= halves[n] * MODIFIERS["HALF"] | highs[n] * MODIFIERS["HIGH"]
        made.flags |= words.flag("clamp")
    elif is_vector:
        for n, is_high in enumerate(words.numbers("op_sel", [])):
            (made.source[n] if n < len(parts) - 1 else made.to).modifiers |= is_high * MODIFIERS["HIGH"]
        if full == "v_cvt_f32_f16_e32" and made.source[0].kind == VECTOR and made.source[0].reg >= 128:
            made.source[0].reg -= 128  # how an older LLVM shows the high half
            made.source[0].modifiers |= MODIFIERS["HIGH"]
        if name == "v_cvt_f32_f16" and made.source[0].modifiers & (MODIFIERS["NEG"] | MODIFIERS["ABS"]):
            raise ValueError("the sign of a half")
        if table.VECTOR[name].startswith("word_of"):
            made.flags |= FLAGS["IS_FLOAT"] | words.flag("clamp") | {"": 0, "2": FLAGS["TIMES2"], "4": FLAGS["TIMES4"]}[words.text("mul")]
            made.flags |= FLAGS["HALVED"] if words.text("div") else 0
    if full.endswith("_sdwa"):
        to, unused = words.text("dst_sel"), words.text("dst_unused")
        if to not in ("", "DWORD") and (to, unused) != ("WORD_1", "UNUSED_PAD"):
            raise ValueError(f"dst_sel {to}")
        made.flags |= FLAGS["TO_HIGH"] if to == "WORD_1" else 0
        for n in range(2):
            for flag in _SELECTIONS[words.text(f"src{n}_sel") or "DWORD"]:
                made.source[n].modifiers |= MODIFIERS[flag]


def _memory(made: Instruction, name: str, parts: list[str], words: _Modifiers) -> None:
    if name.startswith("ds_") and name[3:] in table.ATOMICS:
        name = f"ds_atomic_{name[3:]}"
    found = _MEMORY.fullmatch(name)
    if not found:
        raise ValueError("its name")
    space, way, two, stride, d16, high, kind = found.groups()
    made.op = table.NUMBERS[f"{space}_{way}"]
    made.size, count = (4, 1) if way == "atomic" else _SIZES[kind]
    made.flags = words.flag("glc") | (FLAGS["D16_HIGH" if high else "D16"] if d16 else 0) | (FLAGS["SIGNED"] if kind[0] == "i" else 0)
    words.allow("dlc", "slc")
    if space == "ds":
        scale = (64 if stride else 1) * 4 * count if two else 1
        made.flags |= FLAGS["TWO"] if two else 0
        made.immediate[:] = words.number("offset0" if two else "offset") * scale, words.number("offset1") * scale
        data, where = (parts[:1], parts[1:2]) if way == "load" else (parts[1:], parts[:1])
    elif space == "buffer":
        made.flags |= words.flag("offen")
        made.immediate[0] = words.number("offset")
        data, where = parts[:1], parts[1:]
    else:
        made.immediate[0] = words.number("offset")
        data, where = (parts[1:2], [parts[0], parts[2]]) if way == "store" else (parts[:1], parts[1:])
    made.to = operand(data[0])
    made.to.words = 2 * count if two and way == "load" else count
    if len(data) == 2:
        made.to2 = operand(data[1])
    if way == "atomic":
        made.immediate[1] = table.ATOMICS[kind]
    for n, part in enumerate(where):
        made.source[n] = operand(part)
