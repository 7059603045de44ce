"""Tests instructions that access memory, and the faults that the emulator reports, such as the use of a pending load."""

import numpy as np
import pytest

from lab.tests.radeon.wave import Wave, changed, run_groups
from vkdml_lab.radeon import decoder
from vkdml_lab.radeon.instructions import MEMORY


@pytest.mark.parametrize(("texts", "expected"), [
    (["ds_load_b32 v0, v1 offset:8"], [12, 13]), (["ds_load_u8 v0, v1 offset:9"], [0xab, 0xab]), (["ds_load_i8 v0, v1 offset:9"], [0xffffffab] * 2),
    (["ds_store_b32 v1, v2 offset:4", "ds_load_b32 v0, v1 offset:4"], [100, 101]),
    (["ds_add_u32 v1, v2 offset:8", "ds_load_b32 v0, v1 offset:8"], [112, 114]), (["ds_max_u32 v1, v2 offset:8", "ds_load_b32 v0, v1 offset:8"], [100, 101])])
def test_shared_memory(texts, expected):
    wave = Wave()
    wave.s[126] = 0b11
    wave.v[1] = 4 * np.arange(64)
    wave.v[2] = np.arange(100, 164)
    wave.lds[:] = np.arange(10, 10 + wave.lds.size)
    if "8" in texts[0].split()[0]:
        wave.lds[2] = wave.lds[3] = 0x0000ab00
    assert wave.run(*texts, "s_waitcnt lgkmcnt(0)") is None
    assert wave.v[0, :2].tolist() == expected


def test_two_addresses():
    wave = Wave()
    wave.lds[:] = np.arange(wave.lds.size)
    assert wave.run("ds_load_2addr_b32 v[0:1], v2 offset0:2 offset1:5", "ds_load_2addr_stride64_b32 v[4:5], v2 offset0:1 offset1:2",
                    "ds_load_2addr_b64 v[6:9], v2 offset0:1 offset1:4", "s_waitcnt lgkmcnt(0)") is None
    assert wave.v[[0, 1, 4, 5, 6, 7, 8, 9], 0].tolist() == [2, 5, 64, 128, 2, 3, 8, 9]


@pytest.mark.parametrize(("texts", "kind"), [
    (["ds_load_b32 v0, v1", "v_mov_b32 v2, v0"], "EARLY_READ"), (["ds_load_b32 v0, v1", "v_mov_b32 v0, 0"], "EARLY_WRITE"),
    (["v_mov_b32 v1, 0xffffff00", "ds_load_b32 v0, v1"], "OUTSIDE_LDS"), (["ds_load_b32 v0, v1 offset:2"], "MISALIGNED"),
    (["v_mov_b32 v2, 64", "global_load_b32 v0, v[2:3], off"], "FAULT"), (["s_load_b32 s0, s[4:5], 0x40"], "FAULT")])
def test_findings(texts, kind):
    assert Wave().run(*texts, "s_waitcnt vmcnt(0) lgkmcnt(0)") == kind


WAITS = ["s_wait_kmcnt 0x0", "s_wait_dscnt 0x0", "s_wait_loadcnt 0x0", "s_wait_loadcnt_dscnt 0x3f00", "s_wait_loadcnt_dscnt 0x3f"]


LOADS, SHARED, STORES, SCALARS = range(4)  # queues
ACCESSES = {  # every memory instruction in the table, and the queue that counts it
    "scalar_load": ("s_load_b32 s8, s[0:1], 0x0", SCALARS), "scratch_load": ("scratch_load_b32 v1, off, off offset:4", LOADS),
    "scratch_store": ("scratch_store_b32 off, v1, off offset:4", STORES),
    "buffer_load": ("buffer_load_b32 v1, v2, s[0:3], 0 offen", LOADS), "buffer_store": ("buffer_store_b32 v1, v2, s[0:3], 0 offen", STORES),
    "buffer_atomic": ("buffer_atomic_add_u32 v1, v2, s[0:3], 0 offen", STORES),
    "buffer_atomic that returns": ("buffer_atomic_add_u32 v1, v2, s[0:3], 0 offen glc", LOADS),
    "global_load": ("global_load_b32 v1, v[2:3], off", LOADS), "global_store": ("global_store_b32 v[2:3], v1, off", STORES),
    "global_atomic": ("global_atomic_add_u32 v[2:3], v1, off", STORES), "ds_load": ("ds_load_b32 v1, v2", SHARED),
    "ds_store": ("ds_store_b32 v2, v1", SHARED), "ds_atomic": ("ds_add_u32 v2, v1", SHARED)}
COUNTERS = {
    "s_waitcnt vmcnt(0)": {LOADS}, "s_waitcnt lgkmcnt(0)": {SHARED, SCALARS}, "s_waitcnt_vscnt null, 0x0": {STORES},
    "s_waitcnt vmcnt(0) lgkmcnt(0)": {LOADS, SHARED, SCALARS}, "s_wait_loadcnt 0x0": {LOADS}, "s_wait_dscnt 0x0": {SHARED},
    "s_wait_storecnt 0x0": {STORES}, "s_wait_kmcnt 0x0": {SCALARS}, "s_wait_loadcnt_dscnt 0x0": {LOADS, SHARED},
    "s_wait_storecnt_dscnt 0x0": {STORES, SHARED}, "s_wait_idle": {LOADS, SHARED, STORES, SCALARS},
    "s_nop 0": set(), "s_waitcnt vmcnt(1) lgkmcnt(1)": set(), "s_waitcnt_depctr depctr_vm_vsrc(0)": set()}


@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("wait", COUNTERS)
def test_each_access_is_counted_until_its_wait(access, wait):
    assert {name.partition(" ")[0] for name in ACCESSES} == set(MEMORY)
    text, queue = ACCESSES[access]
    wave = Wave()
    wave.s[126] = 0  # counts even without active lanes
    with changed(late=2):
        assert wave.run(text) in (None, "FAULT")  # s_load does not use lanes
        assert wave.queued.tolist() == [int(queue == of) for of in range(4)]
        assert wave.run(text, wait) in (None, "FAULT")
    assert wave.queued.tolist() == [int(queue == of and queue not in COUNTERS[wait]) for of in range(4)]


@pytest.mark.parametrize(("offset", "kind"), [(0, None), (4092, None), (4096, "OUTSIDE_SCRATCH"), (5, "MISALIGNED")])
@pytest.mark.parametrize("late", [0, 1, 2])
def test_scratch_memory_is_a_lanes_own(late, offset, kind):
    """A lane can load what it stored in scratch memory, even without a wait. Outside and misaligned offsets are faults."""
    wave, place = Wave(), f"off offset:{offset}"
    wave.v[1], wave.v[2] = 5, 9
    with changed(late=late):
        assert wave.run(f"scratch_store_b32 off, v1, {place}", "s_mov_b32 exec_lo, 4", "v_mov_b32 v1, 7", f"scratch_store_b32 off, v1, {place}",
                        "s_mov_b32 exec_lo, 12", f"scratch_load_b32 v2, off, {place}", "s_waitcnt vmcnt(0)") == kind
    assert kind or wave.v[2, :5].tolist() == [9, 9, 7, 5, 9]


@pytest.mark.parametrize("rdna", [2, 3])
def test_shared_memory_by_the_lanes_number(rdna):
    """Compilers spill registers by the addtid instructions: the shared address is the lane's number plus register m0."""
    wave, (store, load) = Wave(), ("ds_write_addtid_b32", "ds_read_addtid_b32") if rdna == 2 else ("ds_store_addtid_b32", "ds_load_addtid_b32")
    wave.v[1], wave.s[125] = np.arange(100, 164), 0x10100
    assert wave.run(f"{store} v1 offset:8", f"{load} v2 offset:8", "v_mov_b32 v3, 0x108", "ds_load_b32 v3, v3 offset:4", "s_waitcnt lgkmcnt(0)") is None
    assert (wave.v[2, :32].tolist(), set(wave.v[3, :32])) == ([*range(100, 132)], {101})


@pytest.mark.parametrize(("load", "enough", "read"), [
    ("s_load_b32 s8, s[0:1], 0x0", [1, 0, 0, 0, 0], "s_mov_b32 s9, s8"), ("ds_load_b32 v1, v2", [0, 1, 0, 1, 0], "v_mov_b32 v3, v1"),
    ("scratch_load_b32 v1, off, off", [0, 0, 1, 0, 1], "v_mov_b32 v3, v1"),
    ("buffer_load_b32 v1, off, s[0:3], null", [0, 0, 1, 0, 1], "v_mov_b32 v3, v1")])
def test_each_wait_of_rdna_4_is_for_its_own_loads(load, enough, read):
    for wait, is_enough in zip(WAITS, enough, strict=True):
        program = f"v_mov_b32 v2, 0\nds_store_b32 v2, v2\n{load}\n{wait}\n{read}\ns_endpgm"
        found = run_groups(program, 1, 1, np.zeros(4, np.uint32), late=2)
        assert found == (set() if is_enough else {"EARLY_READ"}), wait


@pytest.mark.parametrize("text", [
    "v_dot2_f32_f16 v0, v1, v2, v3", "v_mov_b32_dpp v0, v1 quad_perm:[0,1,2,3]", "buffer_load_b32 v0, v1, s[0:3], 0 idxen",
    "v_mul_f32 v0, v1, v2 mul:8", "image_load v0, v[0:1], s[0:7]", "v_add_nc_u32 v0, v1, q2", "s_setreg_b32 hwreg(HW_REG_MODE), s0"])
def test_what_is_not_known_is_refused(text):
    with pytest.raises(decoder.Refused):
        decoder.instruction(text)


@pytest.mark.parametrize(("text", "same"), [
    # RDNA 2
    ("ds_read2st64_b32 v[0:1], v2 offset0:1 offset1:2", "ds_load_2addr_stride64_b32 v[0:1], v2 offset0:1 offset1:2"),
    ("buffer_load_dwordx4 v[0:3], v4, s[0:3], 0 offen", "buffer_load_b128 v[0:3], v4, s[0:3], 0 offen"),
    ("buffer_store_short v0, v1, s[0:3], 0 offen", "buffer_store_b16 v0, v1, s[0:3], 0 offen"),
    ("s_load_dwordx8 s[0:7], s[8:9], 0x0", "s_load_b256 s[0:7], s[8:9], 0x0"), ("s_andn2_b32 s0, s1, s2", "s_and_not1_b32 s0, s1, s2"),
    ("s_orn2_b64 vcc, exec, s[0:1]", "s_or_not1_b64 vcc, exec, s[0:1]"), ("s_ff1_i32_b64 s0, s[2:3]", "s_ctz_i32_b64 s0, s[2:3]"),
    ("s_andn1_saveexec_b64 s[0:1], s[2:3]", "s_and_not0_saveexec_b64 s[0:1], s[2:3]"),
    ("buffer_atomic_add v0, v1, s[0:3], 0 offen glc", "buffer_atomic_add_u32 v0, v1, s[0:3], 0 offen glc"),
    ("v_cvt_pkrtz_f16_f32 v0, v1, v2", "v_cvt_pk_rtz_f16_f32 v0, v1, v2"),
    # RDNA 4
    ("s_add_co_u32 s0, s1, s2", "s_add_u32 s0, s1, s2"), ("s_sub_co_i32 s0, s1, s2", "s_sub_i32 s0, s1, s2"),
    ("s_add_co_ci_u32 s0, s1, s2", "s_addc_u32 s0, s1, s2"), ("s_addk_co_i32 s0, 0x1", "s_addk_i32 s0, 0x1"),
    ("v_max_num_f32 v0, v1, v2", "v_max_f32 v0, v1, v2"), ("v_maxmin_num_f32 v0, v1, v2, v3", "v_maxmin_f32 v0, v1, v2, v3"),
    ("buffer_load_b32 v0, v1, s[0:3], null offen scope:SCOPE_DEV", "buffer_load_b32 v0, v1, s[0:3], null offen glc"),
    ("buffer_atomic_add_u32 v0, v1, s[0:3], null offen th:TH_ATOMIC_RETURN scope:SCOPE_DEV", "buffer_atomic_add_u32 v0, v1, s[0:3], null offen glc"),
    ("buffer_atomic_add_u32 v0, v1, s[0:3], null offen scope:SCOPE_DEV", "buffer_atomic_add_u32 v0, v1, s[0:3], null offen")])
def test_names_of_other_generations(text, same):
    assert bytes(decoder.instruction(text)) == bytes(decoder.instruction(same))
