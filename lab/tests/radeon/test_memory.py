"""Shared memory, loads that are not waited for, and what is found beside numbers."""

import numpy as np
import pytest

from lab.tests.radeon.wave import Wave, run_groups
from vkdml_lab.radeon import decoder


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


@pytest.mark.parametrize(("load", "enough", "read"), [
    ("s_load_b32 s8, s[0:1], 0x0", [1, 0, 0, 0, 0], "s_mov_b32 s9, s8"), ("ds_load_b32 v1, v2", [0, 1, 0, 1, 0], "v_mov_b32 v3, v1"),
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
    # Of RDNA 2
    ("ds_read2st64_b32 v[0:1], v2 offset0:1 offset1:2", "ds_load_2addr_stride64_b32 v[0:1], v2 offset0:1 offset1:2"),
    ("buffer_load_dwordx4 v[0:3], v4, s[0:3], 0 offen", "buffer_load_b128 v[0:3], v4, s[0:3], 0 offen"),
    ("buffer_store_short v0, v1, s[0:3], 0 offen", "buffer_store_b16 v0, v1, s[0:3], 0 offen"),
    ("s_load_dwordx8 s[0:7], s[8:9], 0x0", "s_load_b256 s[0:7], s[8:9], 0x0"), ("s_andn2_b32 s0, s1, s2", "s_and_not1_b32 s0, s1, s2"),
    ("s_orn2_b64 vcc, exec, s[0:1]", "s_or_not1_b64 vcc, exec, s[0:1]"), ("s_ff1_i32_b64 s0, s[2:3]", "s_ctz_i32_b64 s0, s[2:3]"),
    ("s_andn1_saveexec_b64 s[0:1], s[2:3]", "s_and_not0_saveexec_b64 s[0:1], s[2:3]"),
    ("buffer_atomic_add v0, v1, s[0:3], 0 offen glc", "buffer_atomic_add_u32 v0, v1, s[0:3], 0 offen glc"),
    ("v_cvt_pkrtz_f16_f32 v0, v1, v2", "v_cvt_pk_rtz_f16_f32 v0, v1, v2"),
    # Of RDNA 4
    ("s_add_co_u32 s0, s1, s2", "s_add_u32 s0, s1, s2"), ("s_sub_co_i32 s0, s1, s2", "s_sub_i32 s0, s1, s2"),
    ("s_add_co_ci_u32 s0, s1, s2", "s_addc_u32 s0, s1, s2"), ("s_addk_co_i32 s0, 0x1", "s_addk_i32 s0, 0x1"),
    ("v_max_num_f32 v0, v1, v2", "v_max_f32 v0, v1, v2"), ("v_maxmin_num_f32 v0, v1, v2, v3", "v_maxmin_f32 v0, v1, v2, v3"),
    ("buffer_load_b32 v0, v1, s[0:3], null offen scope:SCOPE_DEV", "buffer_load_b32 v0, v1, s[0:3], null offen glc"),
    ("buffer_atomic_add_u32 v0, v1, s[0:3], null offen th:TH_ATOMIC_RETURN scope:SCOPE_DEV", "buffer_atomic_add_u32 v0, v1, s[0:3], null offen glc"),
    ("buffer_atomic_add_u32 v0, v1, s[0:3], null offen scope:SCOPE_DEV", "buffer_atomic_add_u32 v0, v1, s[0:3], null offen")])
def test_names_of_other_generations(text, same):
    assert bytes(decoder.instruction(text)) == bytes(decoder.instruction(same))
