"""Decodes instructions from LLVM's disassembly to structures that the emulator's C code executes."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from ctypes import c_int16

from vkdml_lab.radeon import instructions as table
from vkdml_lab.radeon.structures import CONSTANT, FLAGS, MODIFIERS, NAMED, SCALAR, VECTOR, Instruction, Operand

_REGISTER = re.compile(r"([vs])(?:(\d+)|\[(\d+):(\d+)\])(\.[lh])?")
_SIGNS = [(re.compile(pattern), MODIFIERS[name]) for pattern, name in (
    (r"neg\((.*)\)", "NEG"), (r"-([vs|\[].*|vcc.*|exec.*|m0)", "NEG"), (r"\|(.*)\|", "ABS"), (r"abs\((.*)\)", "ABS"))]
# Bytes of an element and words of a load or store, by the end of the instruction's name
_SIZES = {"b8": (1, 1), "u8": (1, 1), "i8": (1, 1), "b16": (2, 1), "u16": (2, 1), "i16": (2, 1),
          **{f"b{32 * words}": (4, words) for words in (1, 2, 3, 4, 8, 16)}}
_MEMORY = re.compile(r"(buffer|global|scratch|ds|s)_(?:buffer_)?(load|store|atomic)_"
                     r"(addtid_)?(2addr_)?(stride64_)?(d16_)?(hi_)?(\w+)")
# RDNA 2's and RDNA 4's names of RDNA 3's instructions (from their "Instruction Set Architecture Reference Guide")
_OTHER_NAMES = [(re.compile(old), new) for old, new in (
    (r"_dword(?:x(\d+))?$", lambda found: f"_b{32 * int(found[1] or 1)}"),
    (r"^ds_(read|write)(2?)(st64)?_", lambda found: f"ds_{'load' if found[1] == 'read' else 'store'}_"
     f"{'2addr_' if found[2] else ''}{'stride64_' if found[3] else ''}"),
    (r"_load_short_d16", "_load_d16_b16"), (r"_load_([us])short", r"_load_\g<1>16"), (r"_load_([us])byte", r"_load_\g<1>8"),
    (r"_load_short", "_load_i16"), (r"_load_s(8|16)", r"_load_i\1"), (r"_store_short", "_store_b16"),
    (r"_store_byte", "_store_b8"), (r"^s_(and|or)n([12])_", lambda found: f"s_{found[1]}_not{int(found[2]) - 1}_"),
    (r"^s_ff1_", "s_ctz_"), (r"^s_flbit_i32_b32", "s_clz_i32_u32"), (r"^v_cvt_pkrtz_", "v_cvt_pk_rtz_"),
    (r"^(\w+_atomic_|ds_)(or|and|swap|xor)$", r"\1\2_b32"), (r"^(\w+_atomic_)(add|sub)$", r"\1\2_u32"),
    (r"^(\w+_atomic_)u(min|max)$", r"\1\2_u32"),
    (r"^s_add_co_ci_", "s_addc_"), (r"^s_sub_co_ci_", "s_subb_"), (r"^s_(add|sub)(k?)_co_", r"s_\1\2_"),
    (r"(min|max)_num_f32", r"\1_f32"), (r"^s_barrier_signal", "s_barrier"), (r"^s_wait_alu", "s_waitcnt_depctr"))]
# Index in Instruction.immediate of each counter that a wait names
_COUNTS = {"vmcnt": 0, "loadcnt": 0, "lgkmcnt": 1, "dscnt": 1, "vscnt": 2, "storecnt": 2, "kmcnt": 3}
# RDNA 4's scopes. Those beyond the compute unit (CU) bypass its cache
_SCOPES = {"": 0, "SCOPE_CU": 0, "SCOPE_DEV": FLAGS["GLC"], "SCOPE_SYS": FLAGS["GLC"]}
# Instructions without effect here: setting the base of scratch memory, and freeing registers at the end
_IGNORED = re.compile(r"s_setreg_b32 hwreg\(HW_REG_FLAT_SCR_|s_sendmsg sendmsg\(MSG_DEALLOC_VGPRS\)")
# Parts of registers ("SDWA") that RDNA 2's instructions may select: first bit and number of bits
_PARTS = {"DWORD": (0, 0), "WORD_0": (0, 16), "WORD_1": (16, 16), **{f"BYTE_{n}": (8 * n, 8) for n in range(4)}}
_UNUSED = {"UNUSED_PAD": 0, "UNUSED_PRESERVE": FLAGS["KEEPS"]}


class Refused(ValueError):  # noqa: N818
    """Raised for an instruction that the emulator does not know."""


def program(lines: Iterable[tuple[int, str]]) -> list[Instruction]:
    """Decode a program from pairs (address, text). A "VOPD" pair becomes two instructions, the first with the flag DUAL."""
    made, places = list[Instruction](), dict[int, int]()
    for pc, text in lines:
        places[pc] = len(made)
        *firsts, last = (instruction(half, pc) for half in text.split(" :: "))
        for first in firsts:
            first.flags |= FLAGS["DUAL"]
        made += [*firsts, last]
        if text.startswith(("s_branch", "s_cbranch")):  # distance in words, signed
            last.target = pc + 4 + 4 * c_int16(int(text.split()[1])).value
    for one in made:
        one.target = places[one.target] if one.target else 0
    return made


def instruction(text: str, pc: int = 0) -> Instruction:
    """Decode the text of one instruction, which is at the address `pc`. The target of a branch is left to `program`."""
    full, _, rest = re.sub(r"/\*.*?\*/", "", text).strip().partition(" ")
    *parts, tail = rest.split(", ")
    last, *words = tail.strip().split(" ")  # modifiers follow the operands, such as `offset:16 glc`
    name = re.sub(r"_(e32|e64|sdwa)$", "", full).replace("v_dual_", "v_")
    for old, new in _OTHER_NAMES:
        name = old.sub(new, name)
    made, modifiers = Instruction(pc=pc), {word.partition(":")[0]: word.partition(":")[2] for word in words if word}
    try:
        if name in table.IGNORED or _IGNORED.match(text):
            made.op = table.NUMBERS["nothing"]
        elif name.startswith("s_wait"):
            _wait(made, name, rest)
        else:
            for known in ("dlc", "slc", "offen"):  # hints for caches that are not emulated; offen repeats what an operand says
                modifiers.pop(known, None)
            decode = _compute if name in table.NUMBERS else _memory
            decode(made, name, [*parts, last] if last else [], modifiers)
            _select(made, modifiers)
            if modifiers:
                raise ValueError(f"{modifiers}")
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise Refused(f"{text} ({error})") from None
    return made


def operand(text: str, is_half: bool = False) -> Operand:
    """Decode an operand, such as "v3" or "-1.0". is_half: encode a constant with a decimal point as float16, not float32."""
    modifiers = 0
    for pattern, sign in _SIGNS:
        if found := pattern.fullmatch(text):
            text, modifiers = found[1], modifiers | sign
    if text == "off":
        return Operand()
    if text in NAMED:
        return Operand(0, SCALAR, *NAMED[text], modifiers)
    if found := _REGISTER.fullmatch(text):
        first = int(found[2] or found[3])
        words, part = 1 if found[2] else int(found[4]) - first + 1, (16 * (found[5] == ".h"), 16) if found[5] else (0, 0)
        return Operand(0, VECTOR if found[1] == "v" else SCALAR, first, words, modifiers, *part)
    if re.fullmatch(r"-?\d+\.\d+(e[+-]?\d+)?", text):
        kind, to = ("<e", "<H") if is_half else ("<f", "<I")
        return Operand(struct.unpack(to, struct.pack(kind, float(text)))[0], CONSTANT, 0, 1, modifiers)
    # A literal is zero-extended to 64 bits, a small constant sign-extended ("Scalar ALU Operands")
    return Operand(int(text, 0) & 0xffffffff, CONSTANT, 0, 1 if text.startswith("0x") else 2, modifiers)


def _flag(modifiers: dict[str, str], name: str) -> int:
    return FLAGS[name.upper()] * (modifiers.pop(name, None) is not None)


def _bits(modifiers: dict[str, str], name: str) -> list[int]:
    return [int(bit) for bit in re.findall(r"\d", modifiers.pop(name, ""))]


def _select(made: Instruction, modifiers: dict[str, str]) -> None:
    unused = _UNUSED[modifiers.pop("dst_unused", "UNUSED_PAD")]
    for name, one in (("dst", made.to), ("src0", made.source[0]), ("src1", made.source[1])):
        if (part := modifiers.pop(f"{name}_sel", "DWORD")) != "DWORD":
            one.shift, one.bits = _PARTS[part]
            made.flags = made.flags & ~FLAGS["KEEPS"] | unused if name == "dst" else made.flags


def _wait(made: Instruction, name: str, rest: str) -> None:
    counts = {kind: int(count) for kind, count in re.findall(r"(\w+)\((\d+)\)", rest) if kind != "expcnt"}
    number = 0 if "(" in rest or not rest else int(rest.rpartition(" ")[2], 0)
    made.op = table.NUMBERS["s_waitcnt_depctr" if name == "s_waitcnt_depctr" else "s_waitcnt"]
    if name == "s_waitcnt_depctr":  # only its field vm_vsrc concerns memory
        made.immediate[0] = counts.get("depctr_vm_vsrc", 7) << 2 if counts else number
        return
    if name == "s_wait_idle":
        counts = dict.fromkeys(_COUNTS, 0)
    elif name != "s_waitcnt":  # RDNA 4's waits have one counter or two
        *first, last = name.split("_")[2:]
        counts = {last: number & 63, **dict.fromkeys(first, number >> 8)}
    made.immediate[:] = [63] * 4
    for kind, count in counts.items():
        made.immediate[_COUNTS[kind]] = count
    if counts.get("lgkmcnt") == 0:  # scalar loads return in any order, so only waiting for all of them (0) helps
        made.immediate[_COUNTS["kmcnt"]] = 0


def _compute(made: Instruction, name: str, parts: list[str], modifiers: dict[str, str]) -> None:
    if table.VECTOR.get(name, "").startswith("word_of"):
        made.flags |= _flag(modifiers, "clamp")
        made.flags |= {"": 0, "2": FLAGS["TIMES2"], "4": FLAGS["TIMES4"]}[modifiers.pop("mul", "")]
        made.flags |= {"": 0, "2": FLAGS["HALVED"]}[modifiers.pop("div", "")]
    elif "clamp" in modifiers:
        name += f" clamp{modifiers.pop('clamp')}"  # a clamped integer instruction has its own row
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
        parts = [*parts, "vcc_lo"]  # in a VOPD pair, it reads vcc; a wave has 32 lanes
    halves = _bits(modifiers, "op_sel_hi") or [int(name == "v_cvt_f32_f16")] * 3
    highs = [*_bits(modifiers, "op_sel"), 0, 0, 0, 0]
    made.to = operand(parts[0])
    for n, part in enumerate(parts[1:]):
        made.source[n] = operand(part, bool(halves[n]))
        made.source[n].modifiers |= MODIFIERS["HALF"] * halves[n]
        made.source[n].shift |= 16 * highs[n]
        if name in table.SCALAR and made.source[n].modifiers:
            raise ValueError("a scalar's sign")
    if re.fullmatch("v_(mov_b16|cvt_f16_f32|fma_mix(lo|hi)_f16)", name):
        made.to.bits, made.flags = 16, made.flags | FLAGS["KEEPS"]
        made.to.shift |= 16 * (highs[len(parts) - 1] or name == "v_fma_mixhi_f16")
        made.to.modifiers |= MODIFIERS["HALF"] * (name != "v_mov_b16")


def _memory(made: Instruction, name: str, parts: list[str], modifiers: dict[str, str]) -> None:
    found = _MEMORY.fullmatch(f"ds_atomic_{name[3:]}" if name.startswith("ds_") and name[3:] in table.ATOMICS else name)
    if not found:
        raise ValueError("its name")
    space, way, by_lane, two, stride, d16, high, kind = found.groups()
    made.op = table.NUMBERS["scalar_load" if space == "s" else f"{space}_{way}"]
    made.size, count = (4, 1) if way == "atomic" else _SIZES[kind]
    scope, hint = _SCOPES[modifiers.pop("scope", "")], modifiers.pop("th", "")
    passes = _flag(modifiers, "glc") | (FLAGS["GLC"] * (hint == "TH_ATOMIC_RETURN") if way == "atomic" else scope)
    made.flags = passes * (space != "s") | FLAGS["KEEPS"] * bool(d16)  # GLC bypasses the core's cache, which has no scalars
    made.flags |= FLAGS["SIGNED"] * (kind[0] == "i") | FLAGS["TWO"] * bool(two) | FLAGS["BY_LANE"] * bool(by_lane)
    scale = (64 if stride else 1) * 4 * count if two else 1
    made.immediate[:2] = [int(modifiers.pop(one, "0"), 0) * scale for one in ("offset0" if two else "offset", "offset1")]
    if by_lane:  # m0 is a part of the address
        parts = ["m0", *parts] if way == "store" else [*parts, "m0"]
    if (way == "store" and space != "buffer") or (way == "atomic" and space == "ds"):  # these have the address first
        parts[:2] = parts[1], parts[0]
    made.to = operand(parts[0])
    made.to.words, made.to.shift = 2 * count if two and way == "load" else count, 16 * bool(high)
    made.to.bits = 16 * bool(d16)
    made.to2 = operand(parts.pop()) if space == "ds" and len(parts) == 3 else Operand()
    if way == "atomic":
        made.immediate[1] = table.ATOMICS[kind]
    for n, part in enumerate(parts[1:]):
        made.source[n] = operand(part)
