"""Tests gpu/sharing.py on short assembly in which workgroups share the state h, correctly or not."""

from dataclasses import dataclass

import pytest

from vkdml_lab.gpu.compiler import Pipeline
from vkdml_lab.gpu.gpus import GPUS
from vkdml_lab.gpu.loops import of_products
from vkdml_lab.gpu.sharing import (
    MEMORY,
    STORES,
    WORDS,
    atomics_of_elements,
    loads_before_waiting,
    scratch_accesses,
    shared,
)

# Steps: a loop that polls h, products, a store of h
AMD = ("""Assembly
BB0:
	s_nop 0
BB1:
	s_cbranch_scc1 BB5
{before}BB2:
{word}	s_cbranch_vccz BB2
BB3:
{products}{store}	s_branch BB1
BB5:
	s_endpgm
""", "	v_fmac_f32_e32 v10, v4, v12\n")
NVIDIA = ("""NAK assembly
block.u 0 L1 [] -> {{
      nop
}} -> [1]
block 1 L2 [0, 4] -> {{
{before}      bra pT L9
}} -> [2, 5]
block 2 L3 [1, 2] -> {{
{word}      bra pT L3
}} -> [2, 3]
block 3 L4 [2] -> {{
{products}{store}      bra pT L2
}} -> [1]
block 5 L9 [1] -> {{
      exit
}} -> []
""", "      r10 = ffma r4 r12 r10\n")
INTEL = ("""GEN Assembly
        nop
L1:
        break (16)   jip:L7
{before}L2:
{word}        while (16)   L2
{products}{store}        while (16)   L1
L7:
        mov (1)   r1   r2
""", "        mad (16)   r30   r30:f   r9:f   r20:f\n")
ADRENO = ("""IR3 Assembly
nop
l1:
br !p0.x, #l7
{before}l2:
{word}br p0.y, #l4
jump #l2
l4:
{products}{store}jump #l1
l7:
end
""", "mad.f32 r5.x, r6.x, r5.x, r0.z\n")


@dataclass(frozen=True)
class Lines:
    """A GPU's assembly. shown: a kernel to fill in, and its multiply-add. word: right and wrong loads of h. store: stores."""

    shown: tuple[str, str]
    word: tuple[str, str]
    store: tuple[str, str]


def intel(message, lanes=16):
    return f"        send ({lanes})   r1   r2   null   0x0   0x0219E000   {{$1}}  // wr:1+0, rd:1; {message}\n"


GCN = Lines(AMD, ("\tbuffer_load_dwordx4 v[0:3], v8, s[0:3], 0 offen glc\n", "\tbuffer_load_dwordx4 v[0:3], v8, s[0:3], 0 offen\n"),
            ("\tbuffer_store_dword v1, v2, s[20:23], 0 offen glc\n", "\tbuffer_store_dword v1, v2, s[20:23], 0 offen\n"))
RDNA2 = Lines(AMD, ("\tbuffer_load_dwordx4 v[0:3], v8, s[0:3], 0 offen glc dlc\n", GCN.word[0]), GCN.store)
RDNA3 = Lines(AMD, ("\tbuffer_load_b128 v[0:3], v8, s[0:3], 0 offen glc\n", "\tbuffer_load_b128 v[0:3], v8, s[0:3], 0 offen\n"),
              ("\tbuffer_store_b32 v1, v2, s[24:27], 0 offen\n", ""))
RDNA4 = Lines(AMD, ("\tbuffer_load_b128 v[0:3], v8, s[0:3], null offen scope:SCOPE_DEV\n", "\tbuffer_load_b128 v[0:3], v8, s[0:3], null offen\n"),
              ("\tbuffer_store_b32 v1, v2, s[28:31], null offen scope:SCOPE_DEV\n", "\tbuffer_store_b32 v1, v2, s[28:31], null offen\n"))
NAK = Lines(NVIDIA, ("      r4..8 = ld.global.a64.strong.gpu.b128 [r4..6+rZ], pT\n", "      r4..8 = ld.global.a64.weak.b128 [r4..6+rZ], pT\n"),
            ("      st.global.a64.strong.gpu.b32 [r4..6+rZ] r3\n", "      st.global.a64.strong.cta.b32 [r4..6+rZ] r3\n"))
XE_LP = Lines(INTEL, (intel("untyped_read:xyzw simd8 (8) bti(5)"), ""), (intel("untyped_write:x simd8 (8) bti(5)"), ""))
XE = Lines(INTEL, (intel("load.ugm.d32x4.a32.uc.ca.bti[4]"), intel("load.ugm.d32x4.a32.uc.uc.bti[4]")),
           (intel("store.ugm.d32.a32.uc.wb.bti[4]"), intel("store.ugm.d32.a32.bti[4]")))
IR3 = Lines(ADRENO, ("ldib.b.untyped.1d.u32.4.imm.base0 r0.y, r8.w, 8\n", "isam.v.base0 (u32)(xyzw)r0.y, r8.w, s#0, t#2\n"),
            ("stib.b.untyped.1d.u32.1.imm.base0 r8.y, r5.z, 8\n", ""))
WRITTEN = {"vega64": GCN, "mi200": GCN, "rx6900xt": RDNA2, "rx7900xtx": RDNA3, "rx9070": RDNA4, "rtx3090": NAK, "tgl": XE_LP,
           "arc-a770": XE, "arc-b580": XE, "adreno618": IR3, "adreno740": IR3}


def code(text):
    return Pipeline("kernel", 1.0, assembly=text).code


def counted(gpu, phases=1, **changed):
    """Return how many loads and stores of h in a GPU's assembly reach other cores, for a phase. changed: lines to replace."""
    lines = WRITTEN[gpu]
    right = {"word": lines.word[0], "store": lines.store[0], "products": 4 * lines.shown[1], "before": ""}
    return shared(code(lines.shown[0].format(**right | changed)), MEMORY[gpu], phases)


@pytest.mark.parametrize("gpu", WRITTEN)
def test_what_is_right(gpu):
    assert counted(gpu) == {STORES: 1, WORDS: 1}
    assert counted(gpu, phases=2) == {STORES: 0.5, WORDS: 0.5}, "each phase has its own"


@pytest.mark.parametrize("gpu", WRITTEN)
def test_what_other_cores_do_not_see(gpu):
    lines = WRITTEN[gpu]
    assert counted(gpu, word=lines.word[1])[WORDS] == 0
    assert counted(gpu, word=lines.word[0] + lines.word[1])[WORDS] == (not lines.word[1]), "all of a loop's loads"
    assert counted(gpu, store=lines.store[1])[STORES] == 0


@pytest.mark.parametrize("gpu", WRITTEN)
def test_what_is_loaded_before_the_loop(gpu):
    assert counted(gpu, word="", before=WRITTEN[gpu].word[0])[WORDS] == 0


@pytest.mark.parametrize("gpu", WRITTEN)
def test_loads_before_a_step_waits(gpu):
    """Loads of the gates count if they come before a step's first poll. A compiler may wrongly put them after it."""
    lines = WRITTEN[gpu]
    load = lines.word[0]

    def ahead(before, after):
        text = lines.shown[0].format(before=before, word=load, products=4 * lines.shown[1] + after, store=lines.store[0])
        return loads_before_waiting(of_products(code(text)), 16, 16)

    assert ahead(load, "") == ahead(2 * load, load) / 2 == 1
    assert ahead("", load) == 0


def test_every_gpu_has_its_memory():
    assert MEMORY.keys() == GPUS.keys()
    assert {id(MEMORY[gpu]) for gpu in WRITTEN} == {id(memory) for memory in MEMORY.values()}


ATOMICS = {
    "AMD": "Assembly\n\tbuffer_atomic_and_b32 v1, v2, s[0:3], 0 offen\n\tbuffer_atomic_or_b32 v1, v2, s[0:3], 0 offen\n",
    "AMD before": "Assembly\n\tbuffer_atomic_and v1, v2, s[0:3], 0 offen\n\tbuffer_atomic_or v1, v2, s[0:3], 0 offen\n",
    "NVIDIA": "NAK assembly\nblock 0 L1 [] -> {\n null = atom.and.u32.global.a64.strong.gpu [r4] r3\n"
              " null = atom.or.u32.global.a64.strong.gpu [r4] r3\n} -> []\n",
    "Intel": "GEN Assembly\n" + intel("atomic_and.ugm.d32.a32.uc.wb.bti[2]") + intel("atomic_or.ugm.d32.a32.uc.wb.bti[2]"),
    "Intel before": "GEN Assembly\n" + intel("untyped_atomic_and simd8 (8) bti(2)") + intel("untyped_atomic_or simd8 (8) bti(2)"),
    "Adreno": "IR3 Assembly\natomic.b.and.untyped.1d.u32.1.imm.base0 r4.x, r21.z, 6\n"
              "atomic.b.or.untyped.1d.u32.1.imm.base0 r4.x, r21.z, 6\n",
}


@pytest.mark.parametrize("compiler", ATOMICS)
def test_atomics_of_elements(compiler):
    text = ATOMICS[compiler]
    head, _, body = text.partition("\n")
    assert atomics_of_elements(code(text), False) == 2
    assert atomics_of_elements(code(f"{head}\n{body}{body}"), False) == 2, "two elements"
    assert atomics_of_elements(code(text.replace("and", "or")), False) == 2, "other atomics count, too"
    assert atomics_of_elements(code(text.replace("and", "add")), True) == 0, "a kernel that waits has its own"
    assert atomics_of_elements(code(f"{head}\n"), False) == 0


@pytest.mark.parametrize("text", [
    "NAK assembly\nblock 0 L1 [] -> {\n r3 = atom.or.u32.shared.strong.cta [0x1e40] r3\n} -> []\n",
    "GEN Assembly\n" + intel("atomic_or.slm.d32.a32.uc.wb"), "GEN Assembly\n" + intel("untyped_atomic_or simd8 (8) bti(254)"),
    "IR3 Assembly\natomic.or.untyped.1d.u32.1.l r10.z, l[r10.y], r10.x\n", "Assembly\n\tds_or_b32 v1, v2\n"])
def test_atomics_of_shared_memory(text):
    """Atomics on shared memory do not count as atomics that store elements."""
    assert atomics_of_elements(code(text), False) == 0


@pytest.mark.parametrize("text", [
    "Assembly\n\tscratch_store_b32 off, v1, s0\n", "NAK assembly\nblock 0 L1 [] -> {\n      r1 = ld.local.b32 [r2]\n} -> []\n",
    "IR3 Assembly\nstp.f32 p[r1.x], r2.x, 1\n"])
def test_scratch(text):
    assert scratch_accesses(code(text)) == 1
