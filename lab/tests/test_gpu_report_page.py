"""Tests the GPU report's first page: each sentence follows from rows of results, and nothing unchecked counts as passed."""

import pytest

from vkdml_lab.gpu_report import beside, first_page, model
from vkdml_lab.gpu_report.devices import PLANNED
from vkdml_lab.gpu_report.found import Found
from vkdml_lab.gpu_report.parts import CANDIDATES, CEILINGS, CONFORMANCE, DEVICES, PARTS, PEERS, SCHEDULES
from vkdml_lab.suite.devices import GPUS


def found(part, rows=(), done=1, steps=1, stopped=None):
    return Found(part, list(rows), done, steps, stopped or {}, [])


def peer(library, t, b, h, seconds, way="host", **changes):
    return {"problem": f"gru-{t}x{b}x{h}x{h}", "T": t, "B": b, "I": h, "H": h, "cell": "gru", "type": "float32", "library": library,
            "way": way, "seconds": seconds, "right": True, **changes}


def schedule(way, step, estimate, problem="gru-100x1x256x256", **changes):
    return {**peer("vkdml", 100, 1, 256, step * 1e-4), "problem": problem, "schedule": way, "runs": 50, "gave up": 0,
            "step us": step, "step estimate us": estimate, "phases": 1, **changes}


RIGHT = {"right": True, "tests": "all passed"}
MANY = {"right": True, "count": 468, "of": 588, "late": 70}


# Results

@pytest.mark.parametrize(("parts", "says"), [
    ([], "Not checked."),
    ([found(CONFORMANCE, [MANY]), found(SCHEDULES, [RIGHT, RIGHT])], "Yes**: conformance 468 passed and 50 skipped, schedules 2 passed."),
    ([found(CONFORMANCE, [MANY], 9, 9)], "Yes**: conformance 468 passed and 50 skipped."),  # later steps ran those
    ([found(CONFORMANCE, [MANY], 1, 9), found(SCHEDULES, done=0, steps=0)],
     "passed and 50 skipped; unfinished: conformance (8 of 9 steps are left; its first step had no time for 70 tests), schedules (not begun)."),
    ([found(CONFORMANCE, [RIGHT]), found(SCHEDULES, [RIGHT, {"right": False, "failed": "wrong"}])],
     "No**: 1 results have not passed (schedules)."),
    ([found(CONFORMANCE, [RIGHT]), found(SCHEDULES, stopped={"failed": "crashed"})], "Not known**: schedules failed."),
    ([found(PEERS, [peer("torch-gpu", 1, 1, 8, None, right=False)])], "Not checked."),  # others' mistakes are not ours
])
def test_is_it_right(parts, says):
    said = first_page.right(parts)
    assert said.startswith("**Is it right here?")
    assert said.strip("*").endswith(says) or says in said


@pytest.mark.parametrize(("load", "is_busy"), [(0.5, False), (2.5, True)])
def test_no_conclusion_from_times_of_a_busy_machine(load, is_busy):
    page = first_page.report(GPUS["RTX 3090"], [], False, load)
    assert ("**No conclusion from times**: other programs ran (load 2.5;" in page) is is_busy
    assert ("**Does it choose well?**" in page) is not is_busy


def test_a_part_without_time_is_not_passed():
    parts = [found(part, done=0, steps=0) for part in PARTS]
    assert {one.status for one in parts} == {"not checked"}
    assert {sentence for one in parts for sentence in first_page.not_checked(one)} == {f"{part.name}: not begun" for part in PARTS}


def test_what_was_not_checked_is_told_by_its_reason():
    rows = [{"not checked": "refused", "problem": f"gru-{number}", "schedule": "stepped", "library": "vkdml"} for number in range(5)]
    (said,) = first_page.not_checked(found(SCHEDULES, rows))
    assert said == "schedules: gru-0 stepped, gru-1 stepped, gru-2 stepped and 2 more: refused"


# Other libraries

def both(*sizes):
    """Return rows of times of vkdml and onnxruntime. sizes: tuples of T, B, H, and onnxruntime's time divided by vkdml's."""
    return [row for t, b, h, times in sizes for row in (peer("vkdml", t, b, h, 1e-3), peer("onnxruntime-cpu", t, b, h, times * 1e-3))]


@pytest.mark.parametrize(("sizes", "says"), [
    ([(1, 1, 64, 0.2), (100, 1, 256, 2.0), (100, 64, 512, 8.0)],
     "vkdml is faster from (T, B, H) = (100, 1, 256) on, 2 to 8 times as fast; below that 0.2 times as fast (gru-1x1x64x64)"),
    ([(100, 1, 512, 2.0), (100, 16, 256, 3.0), (100, 1, 256, 0.5)],
     "vkdml is faster from (T, B, H) = (100, 1, 512) or (100, 16, 256) on, 2 to 3 times as fast; below that 0.5 times as fast "
     "(gru-100x1x256x256)"),
    ([(100, 1, 256, 2.0), (100, 1, 512, 0.5)],
     "there is no size from which on vkdml is faster; it is 0.5 to 2 times as fast (gru-100x1x256x256, gru-100x1x512x512)"),
])
def test_from_which_size_on(sizes, says):
    (said, *others) = beside.sentences(both(*sizes))
    assert said == f"**Beside onnxruntime on this machine's CPU**, from numpy to numpy: {says}."
    assert others == ["**Beside onnxruntime's WebGPU provider**: not checked (not begun).",
                      "**Beside PyTorch on this GPU**: not checked (not begun).", "**Copies**: not checked."]


def test_wrong_results_win_nothing():
    rows = both((100, 1, 256, 2.0))
    rows[0]["right"] = False
    assert beside.sentences(rows)[0] == "**Beside onnxruntime on this machine's CPU**: not checked (not begun)."


def test_streaming_is_told_apart():
    rows = both((100, 1, 256, 2.0), (1, 1, 256, 0.5))
    for row in rows[2:]:
        row["problem"] += "-streaming"
    assert beside.sentences(rows)[0].endswith("on, 2 times as fast; times as fast otherwise: gru-1x1x256x256-streaming 0.5.")


def test_what_is_missing_and_how_fast_copies_are():
    rows = [{"library": "torch-gpu", "not checked": "missing (no GPU); to get it: install it"},
            *({"table": "Copies", "bytes": size, "copy": copy, "seconds": 1.0, "GB/s": rate} for size, copy, rate in (
                (9, "upload", 12.0), (9, "host copy out", 0.066), (4, "upload", 99.0))),
            {"table": "Copies", "bytes": 9, "copy": "allocation", "seconds": -1e-6}]
    *_, torch, read = beside.sentences(rows)
    assert torch == "**Beside PyTorch on this GPU**: not checked (missing)."
    assert read == "**Copies**, GB/s: upload 12, host copy out 0.066, as if its memory were not cached."


def test_types_settings_and_graphs_are_told_apart():
    """PyTorch's times are compared with vkdml's in the same type. Its CUDA graph is compared with vkdml's single executions."""
    rows = [peer(*named, 100, 1, 256, seconds, way, type=element) for *named, element, way, seconds in (
        ("vkdml", "float32", "device", 1.0), ("vkdml-float16", "float16", "device", 2.0), ("torch-gpu", "float32", "device", 3.0),
        ("torch-gpu-without-tf32", "float32", "device", 5.0), ("torch-gpu-float16", "float16", "device", 1.0),
        ("torch-gpu", "float32", "graph", 0.5))]
    assert [line.partition("gpu, ")[2] or line for line in beside.sentences(rows) if "GPU" in line.upper() and "times" in line]
    times = {(library, way): beside.compared(rows, library, way)["gru-100x1x256x256"][1] for library, way in (
        ("torch-gpu", "device"), ("torch-gpu-without-tf32", "device"), ("torch-gpu-float16", "device"), ("torch-gpu", "graph"))}
    assert list(times.values()) == [3.0, 5.0, 0.5, 0.5]


# The grid-sync test and the cost model

def test_the_grid_sync_test_and_the_model():
    rows = [{"schedule": "persistent", "passed": True}, {"schedule": "persistent", "passed": False},
            schedule("stepped", 10.0, 10.0), schedule("sequence", 40.0, 20.0), schedule("persistent", 2.0, 2.2, **{"gave up": 3})]
    assert model.sentences(GPUS["RTX 3090"], rows)[:3] == [
        "**May workgroups wait for each other?** The grid-sync test fails, and 3 of 50 runs gave up.",
        "**Which schedule is the fastest?** *persistent* in 1 of 1 problems.",
        "**How far is the model off?** A step takes 1 times as long as it says at the median: *stepped* 1 (1 to 1), *sequence* 2 (2 to 2), "
        "*persistent* 0.91 (0.91 to 0.91)."]
    assert model.sentences(GPUS["RTX 3090"], []) == [
        "**May workgroups wait for each other?** Not tested.", "**Which schedule is the fastest?** Not checked.",
        "**How far is the model off?** Not checked.",
        "**What should the table of GPUs say?** Not checked: nothing could be fitted to 0 runs."]


# The whole page

def test_answers_stand_before_any_table(device):
    facts = [{"table": PLANNED, "fact": name, "value": value}
             for name, value in {"figures of": "RTX 3090", "seen": 0.5e-6, "dispatch": 5e-6}.items()]
    page = first_page.report(device.info, [
        found(DEVICES, facts), found(CONFORMANCE, [RIGHT]), found(SCHEDULES, [schedule("stepped", 1.0, 1.0)]),
        found(PEERS, both((100, 1, 256, 2.0))), found(CEILINGS, done=0, steps=0),
        found(CANDIDATES, [{"choice": "model and tuner", "over the best": 0.1}])], False)
    before = page[:page.index("\n|")]
    for question in ("Is it right here? Yes", "Beside onnxruntime on this machine's CPU", "May workgroups wait for each other?", "Which schedule is the fastest?",
                     "How far is the model off?", "Does it choose well?", "ceilings: not begun"):
        assert question in before
    assert "nothing here is about a GPU" in before
