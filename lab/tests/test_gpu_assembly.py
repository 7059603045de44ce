"""Tests gpu/assembly.py and gpu/loops.py, which read compilers' assembly, on small kernels as four compilers print them."""

import pytest

from vkdml_lab.gpu import assembly
from vkdml_lab.gpu.loops import loops, of_products

AMD = """Assembly
BB0:
	s_load_b128 s[0:3], s[2:3], 0x10                            ; f4081001
BB1:
	s_cmp_ge_u32 s4, s5                                         ; bf090504
	s_cbranch_scc1 BB5                                          ; bfa20010
BB2:
	buffer_load_b128 v[0:3], v8, s[0:3], 0 offen glc            ; e05c0000
	s_waitcnt vmcnt(0)                                          ; bf8903f7
	v_cmp_ne_u32_e32 vcc, -1, v0                                ; 7c9a00c1
	s_cbranch_vccz BB2                                          ; bfa3fffb
BB3:
	buffer_load_b128 v[4:7], v8, s[0:3], 0 offen                ; e05c0000
	ds_load_b128 v[12:15], v9                                   ; dbfc0000
	s_waitcnt vmcnt(0) lgkmcnt(0)                               ; bf890007
	v_dual_fmac_f32 v10, v4, v12 :: v_dual_fmac_f32 v11, v5, v13 ; c800
	v_fmac_f32_e32 v10, v6, v14                                 ; 5616
	v_fma_f32 v11, v7, v15, v11                                 ; d613
	s_cbranch_scc0 BB3                                          ; bfa10010
BB4:
	v_add_f32_e32 v10, v10, v11                                 ; 0614
	s_branch BB1                                                ; bfa0fff0
BB5:
	buffer_store_b32 v10, v9, s[0:3], 0 offen                   ; e070
	s_endpgm                                                    ; bfb00000
"""

# The polling block stands behind the block that follows it
NVIDIA = """NAK assembly
block.u 0 L1 [] -> {
      r9       = s2r sr[0x21]                                    // delay=2 wr:0
} -> [1]
block 1 L2 [0, 4] -> {
@p0                   bra pT L9                                  // delay=1 wt=000001
} -> [2, 5]
block 2 L3 [1, 2] -> {
      r0..4    = ld.global.a64.strong.gpu.b128 [r4..6+rZ], pT    // delay=2 wr:1
@!p1                  bra pT L3                                  // delay=1 wt=000010
} -> [2, 3]
block 3 L4 [2, 3] -> {
      r4..8    = ld.global.a64.constant.b128 [r1+ur12..14], pT   // delay=1 wr:2
      r12..16  = ld.shared.weak.b128 [r9+rZ], pT                 // delay=1 wr:3
      r10      = ffma r4 r12 r10                                 // delay=4 wt=001100
      r10      = ffma r5 r13 r10                                 // delay=4
      r10      = ffma r6 r14 r10                                 // delay=4
      r10      = ffma r7 r15 r10                                 // delay=4
@p2                   bra pT L4                                  // delay=1
} -> [3, 4]
block 4 L5 [3] -> {
      r10      = fadd r10 r11                                    // delay=4
                      bra pT L2                                  // delay=1
} -> [1]
block 5 L9 [1] -> {
                      st.global.a64.strong.gpu.b32 [r4..6+rZ] r3 // delay=2 rd:0
                      exit                                       // delay=1
} -> []
"""

INTEL = """GEN Assembly
(W)     mov (1)                   r72           r0.6<0>
L1:
(f0.0)  break (16)                            jip:L7              uip:L7
L2:
        send.ugm (16)             r28     r86    null:0  0x00000000  0x0210B580   {$0}  // wr:2+0, rd:8; load.ugm.d32x4.a32.uc.ca.bti[1]
        sync.nop (1)                            null                              {$0.dst}
        while (16)                              L2
L3:
        send.ugm (16)             r9      r86    null:0  0x00000000  0x0210B580   {$1}  // wr:2+0, rd:8; load.ugm.d32x4.a32.bti[3]
(W)     send.slm (1)              r20     r85    null:0  0x00000000  0x02108500   {$2}  // wr:1+0, rd:1; load.slm.d32x4t.a32
        mad (16)                  r30     r30:f         r9:f            r20.0<0>:f     {@1,$1.dst}
        mad (16)                  r30     r30:f         r11:f           r20.1<0>:f     {$2.dst}
        mad (16)                  r30     r30:f         r13:f           r20.2<0>:f
        mad (16)                  r30     r30:f         r15:f           r20.3<0>:f
(f0.0)  while (16)                              L3
        add (16)                  r30:f         r30:f           r31:f
        while (16)                              L1
L7:
        send.ugm (16)             null    r17    r87:2   0x01000080  0x64040504   {$3}  // wr:2+2, rd:0; store.ugm.d32.a32.uc.wb.bti[1]
"""

ADRENO = """IR3 Assembly
; num_ubos:           0
@const(c16.x)	0x0000ffff, 0x4f7ffffe, 0x00000003, 0x00000000
shps #l1
l1:
cmps.u.ge up0.y, r51.z, c12.x
(ss)br p0.y, #l7
l2:
ldib.b.untyped.1d.u32.4.imm.base0 r0.y, r8.w, 8
(sy)cmps.s.ne p0.z, r0.y, -1
br !p0.z, #l3
jump #l2
l3:
isam.v.base0 (u32)(xyzw)r5.x, r4.z+32, s#0, t#2
ldl.u32 r6.x, l[r2.x], 4
(sy)(ss)mad.f32 r5.x, r6.x, r5.x, (last)r0.z
mad.f32 r5.y, r6.y, r5.y, (last)r5.x
(rpt1)mad.f32 r5.z, r6.z, r5.z, (last)r5.y
br p0.y, #l5
jump #l3
l5:
add.f r5.x, r5.x, r5.y
jump #l1
l7:
stib.b.untyped.1d.u32.1.imm.base0 r8.y, r5.z, 8
end
"""

SHOWN = {"AMD": AMD, "NVIDIA": NVIDIA, "Intel": INTEL, "Adreno": ADRENO}


def whole(compiler):
    return loops(assembly.parse(SHOWN[compiler]))


@pytest.mark.parametrize("compiler", SHOWN)
def test_loops_are_nested(compiler):
    """The loop over time steps has two inner loops: one polls (waits for other workgroups), and one has the multiply-adds."""
    steps = of_products(whole(compiler))
    poll, products = steps.inner
    assert (steps.multiply_adds, poll.multiply_adds, products.multiply_adds) == (4, 0, 4)
    assert not poll.inner
    assert not products.inner


@pytest.mark.parametrize("compiler", SHOWN)
def test_what_is_loaded(compiler):
    poll, products = of_products(whole(compiler)).inner
    (state,) = (one for one in poll.instructions if one.kind == assembly.LOAD)
    (weights,) = (one for one in products.instructions if one.kind == assembly.LOAD)
    (shared,) = (one for one in products.instructions if one.kind == assembly.SHARED)
    assert [one.size for one in (state, weights, shared)] == [16, 16, 16]
    assert state.coherent
    assert not weights.coherent
    assert not weights.uniform


@pytest.mark.parametrize("compiler", SHOWN)
def test_waits_name_the_loads(compiler):
    """Each load has a tag. For each tag in a loop, some instruction waits until no load with this tag is pending."""
    for loop in of_products(whole(compiler)).inner:
        waited = {tag for one in loop.instructions for tag, most in one.waits.items() if most == 0}
        assert {one.tag for one in loop.instructions if one.tag} <= waited


@pytest.mark.parametrize("compiler", SHOWN)
def test_what_is_stored_and_added(compiler):
    kinds = [one.kind for one in whole(compiler).instructions]
    assert kinds.count(assembly.STORE) == 1
    assert kinds.count(assembly.FLOAT) == 1


@pytest.mark.parametrize(("line", "waits"), [
    ("s_waitcnt vmcnt(3)", {assembly.LOAD: 3}), ("s_waitcnt lgkmcnt(1)", {assembly.SHARED: 1, assembly.CONSTANT: 1}),
    ("s_wait_loadcnt 0x2", {assembly.LOAD: 2}), ("s_wait_dscnt 0x0", {assembly.SHARED: 0}),
    ("s_wait_loadcnt_dscnt 0x104", {assembly.LOAD: 1, assembly.SHARED: 4}), ("s_waitcnt_vscnt null, 0x0", {}), ("s_nop 0", {})])
def test_counters_of_amd(line, waits):
    (instruction,) = assembly.parse(f"Assembly\n\t{line}  ; 0\n")[0].instructions
    assert instruction.waits == waits


def test_instructions_that_are_shown_once():
    (block,) = assembly.parse("Assembly\n\ts_nop 0   ; bf800000\n\t(then repeated 4 times)\n\ts_endpgm\n")
    assert [one.text.split()[0] for one in block.instructions] == ["s_nop"] * 5 + ["s_endpgm"]
    assert len({id(one) for one in block.instructions}) == 6


@pytest.mark.parametrize(("line", "size"), [
    ("ds_load_b128 v[0:3], v4", 16), ("ds_load_2addr_b64 v[0:3], v4 offset0:1 offset1:2", 16), ("ds_load_b64 v[0:1], v4", 8),
    ("ds_load_2addr_stride64_b32 v[0:1], v4 offset1:1", 8), ("ds_read2_b64 v[0:3], v4 offset1:1", 16), ("ds_read_u8 v0, v4", 1)])
def test_bytes_of_amd(line, size):
    (instruction,) = assembly.parse(f"Assembly\n\t{line}\n")[0].instructions
    assert (instruction.kind, instruction.size) == (assembly.SHARED, size)


LOOK = "\tv_cmp_ne_u32_e32 vcc, -1, v0                                ; 7c9a00c1\n"
IN_VAIN = ["v_add_nc_u32_e32 v20, 1, v20", "s_cbranch_scc1 BB11", "buffer_load_b32 v21, off, s[0:3], 0 glc", "s_mov_b32 s7, 0"]
BRANCHES = LOOK + """\ts_and_saveexec_b32 s6, vcc_lo
\ts_cbranch_execz BB8
BB7:
\tds_store_b128 v9, v[0:3]
BB8:
\ts_and_not1_b32 exec_lo, s6, exec_lo
\ts_cbranch_execz BB12
BB9:
\t{}
\t{}
BB10:
\t{}
BB11:
\t{}
BB12:
\ts_mov_b32 exec_lo, s6
""".format(*IN_VAIN)


def test_what_runs_only_after_failed_polls():
    """Instructions that run only after a poll without success are marked `in_vain`. The loop's `at_once` leaves them out."""
    poll, _ = of_products(loops(assembly.parse(AMD.replace(LOOK, BRANCHES)))).inner
    assert [one.text for one in poll.instructions if one.in_vain] == IN_VAIN
    assert [one for one in poll.instructions if not one.in_vain] == poll.at_once.instructions


def test_code_that_may_be_needed_is_kept():
    """`at_once` keeps code that may be needed: stores to shared memory, and all code if none after the poll loads a flag."""
    def kept(old, new):
        poll, _ = of_products(loops(assembly.parse(AMD.replace(LOOK, BRANCHES.replace(old, new))))).inner
        return {one.text for one in poll.at_once.instructions} & {new, *IN_VAIN}

    assert kept(IN_VAIN[0], "ds_store_b32 v9, v20") == {"ds_store_b32 v9, v20", IN_VAIN[1], IN_VAIN[3]}
    assert kept(IN_VAIN[2], "v_mov_b32 v21, 0") == {"v_mov_b32 v21, 0", IN_VAIN[0], IN_VAIN[1], IN_VAIN[3]}


SUMS, ELEMENT = "ds_store_b128 v9, v[0:3]", "v_fma_f32 v12, v7, v15, v12"
PASSED_OVER = AMD.replace("\ts_branch BB1 ", f"""\ts_cbranch_execz BB7
BB6:
\tds_load_b64 v[0:1], v9
\t{SUMS}
BB7:
\ts_cbranch_execz BB9
BB8:
\tds_load_b64 v[2:3], v9
\t{ELEMENT}
BB9:
\ts_branch BB1 """)


def test_code_that_some_subgroups_skip():
    """Instructions that some subgroups skip have a role: SUMMING if they store sums to shared memory, FINISHING otherwise."""
    whole = loops(assembly.parse(PASSED_OVER))
    roles = [one.role for one in whole.instructions if one.role]
    assert roles == [assembly.SUMMING] * 2 + [assembly.FINISHING] * 2
    assert {one.text: one.role for one in whole.instructions if one.role}.items() >= {(SUMS, assembly.SUMMING), (ELEMENT, assembly.FINISHING)}


def test_spills_of_intel():
    line = "        send.hdc1 (8)             r21     r22     null     0x00000040  0x02026EFE   {$2}  // oword_block_read:owords2 (8) bti(253)"
    (instruction,) = assembly.parse(f"GEN Assembly\n{line}\n")[0].instructions
    assert instruction.kind == assembly.SCRATCH


def test_what_is_not_known():
    assert assembly.parse("Other Assembly\nnop\n") is None


@pytest.mark.parametrize(("line", "instruction"), [
    ("(sy)(ss)(rpt3)add.f r5.x, (last)(r)r5.x, (r)r7.y",
     {"kind": assembly.FLOAT, "repeats": 4, "waits": {assembly.LOAD: 0, assembly.SHARED: 0, assembly.QUICK: 0, assembly.CONSTANT: 0}}),
    ("isam.base0.1d (u32)(x)r0.z, r8.w, s#0, t#0", {"kind": assembly.LOAD, "size": 4, "coherent": False}),
    ("ldib.b.untyped.1d.u32.1.imm.base0 r5.z, r4.z+16, 10", {"kind": assembly.LOAD, "size": 4, "coherent": True}),
    ("ldl.u32 r7.y, l[r5.y+1536], 2", {"kind": assembly.SHARED, "size": 8}),
    ("(ss)(nop1) mad.f32 r8.x, (last)r8.x, r4.z, (last)r11.w", {"multiply_adds": 1, "kind": assembly.OTHER}),
    ("(rpt4)nop", {"kind": assembly.BESIDE}), ("ldp.u32 r1.x, p[r2.x], 1", {"kind": assembly.SCRATCH}),
    ("brao !p0.z, !p0.y, #l369", {"kind": assembly.BRANCH, "target": "l369", "is_last": False}),
    ("jump #l369", {"kind": assembly.BRANCH, "target": "l369", "is_last": True})])
def test_instructions_of_adreno(line, instruction):
    blocks = assembly.parse(f"IR3 Assembly\n{line}\n")
    (found,) = blocks[0].instructions
    assert {name: getattr(found, name) for name in instruction} == instruction
