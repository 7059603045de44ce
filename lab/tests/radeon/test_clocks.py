"""Tests how the emulator finds races: programs that synchronize their waves have none, unless an instruction is missing."""

import numpy as np
import pytest

from lab.tests.radeon.wave import run_groups

# Waves of workgroup 0 store words, and one of them increments another word. A wave of workgroup 1 polls that word, and its
# waves load what was stored
_MESSAGE = """
    v_mov_b32 v1, 0
    v_lshlrev_b32 v2, 2, v0
    v_xor_b32 v2, 0x100, v2
    v_mov_b32 v3, 1
    s_cmp_eq_u32 s4, 0
    s_cbranch_scc0 reads
    buffer_store_b32 v3, v2, s[0:3], 0 offen
    s_waitcnt_vscnt null, 0x0
    s_barrier
    v_cmpx_eq_u32 v0, v1
    buffer_atomic_add_u32 v3, v1, s[0:3], 0 offen
    s_endpgm
reads:
    v_readfirstlane_b32 s6, v0
    s_cmp_lg_u32 s6, 0
    s_cbranch_scc1 goes_on
looks:
    buffer_load_b32 v4, v1, s[0:3], 0 offen glc
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s5, v4
    s_cmp_eq_u32 s5, 0
    s_cbranch_scc1 looks
goes_on:
    v_xor_b32 v2, 0x80, v2
    s_barrier
    buffer_gl0_inv
    buffer_load_b32 v5, v2, s[0:3], 0 offen
    s_waitcnt vmcnt(0)
    s_endpgm
"""
# One wave of a workgroup stores a word of shared memory, and the others load it
_SHARED = """
    v_mov_b32 v1, 0
    v_mov_b32 v2, 0
    v_cmpx_gt_u32 32, v0
    ds_store_b32 v1, v0
    s_mov_b32 exec_lo, -1
    s_waitcnt lgkmcnt(0)
    s_barrier
    ds_load_b32 v2, v1
    s_waitcnt lgkmcnt(0)
    s_endpgm
"""
# Each workgroup stores words that were all ones, and polls the other's until they are not
_FLAGS = """
    v_mov_b32 v6, 1
    v_mov_b32 v7, 1
    s_lshl_b32 s5, s4, 7
    s_xor_b32 s6, s5, 0x80
    v_mov_b32 v1, s5
    v_mov_b32 v2, s6
    buffer_store_b64 v[6:7], v1, s[0:3], 0 offen
looks:
    buffer_load_b64 v[4:5], v2, s[0:3], 0 offen glc
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s7, v4
    s_cmp_eq_u32 s7, -1
    s_cbranch_scc1 looks
    s_endpgm
"""
# Workgroup 0 stores a word, and workgroup 1 copies what it reads there
_LONE = """
    v_mov_b32 v1, 0
    v_mov_b32 v2, 0x80
    v_mov_b32 v3, 1
    s_cmp_eq_u32 s4, 0
    s_cbranch_scc0 reads
    buffer_store_b32 v3, v1, s[0:3], 0 offen
    s_endpgm
reads:
    buffer_load_b32 v4, v1, s[0:3], 0 offen glc
    s_waitcnt vmcnt(0)
    buffer_store_b32 v4, v2, s[0:3], 0 offen
    s_endpgm
"""
SEEDS = range(20)


def found(text, without="", with_="", word=0, groups=2, waves=2):
    assert text.count(without) >= 1
    changed = text.replace(without, with_, 1) if without else text
    memory = np.full(256, word, np.uint32)
    return [run_groups(changed, groups, waves, memory.copy(), seed=seed, late=seed % 3, budget=5000) for seed in SEEDS]


@pytest.mark.parametrize(("text", "others"), [(_MESSAGE, {}), (_SHARED, {"waves": 4}),
    (_SHARED.replace("s_waitcnt lgkmcnt(0)", "s_waitcnt_depctr depctr_vm_vsrc(0)", 1), {}), (_FLAGS, {"word": 0xffffffff, "waves": 1})])
def test_what_is_in_order(text, others):
    assert found(text, **others) == [set()] * len(SEEDS)


@pytest.mark.parametrize(("without", "with_", "kind"), [
    ("s_waitcnt_vscnt null, 0x0", "", "RACE"), ("s_barrier", "", "RACE"), ("s_barrier\n    buffer_gl0", "buffer_gl0", "RACE"),
    ("offen glc", "offen", "RACE"), ("buffer_gl0_inv", "", "STALE")])
def test_a_message_between_workgroups(without, with_, kind):
    assert all(kind in one for one in found(_MESSAGE, without, with_))


@pytest.mark.parametrize("without", ["s_barrier", "s_waitcnt lgkmcnt(0)"])
def test_shared_memory(without):
    assert all("LDS_RACE" in one for one in found(_SHARED, without, groups=1))


@pytest.mark.parametrize(("without", "word"), [("offen glc", 0xffffffff), ("looks:", 0)])
def test_flags(without, word):
    """Polling a flag is a race if the load does not bypass the cache, or if the flag was not all ones at first."""
    assert all("RACE" in one for one in found(_FLAGS, without, without.replace(" glc", ""), word, waves=1))


def test_a_lone_word_may_be_read_and_is_noise():
    copied = set()
    for seed in SEEDS:
        memory = np.zeros(256, np.uint32)
        assert run_groups(_LONE, 2, 1, memory, seed=seed) == set()
        copied.add(int(memory[0x20]))
    assert 1 not in copied
    assert len(copied) > 2


@pytest.mark.parametrize(("offset", "kind"), [("", set()), (" offset:4", {"RACE"})])
def test_races_are_no_faults_after_a_workgroup_gave_up(offset, kind):
    """Races are no faults after a workgroup gave up waiting, that is, set the buffer's first word. Other words do not count."""
    gives_up = f"buffer_atomic_or_b32 v3, v1, s[0:3], 0 offen{offset}"
    assert found(_MESSAGE, "s_waitcnt_vscnt null, 0x0", gives_up) == [kind] * len(SEEDS)
