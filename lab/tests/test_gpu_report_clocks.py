"""Tests the clock rates of GPUs in a report: where each driver shows them, when they are read, and the warm-up."""

import time

import pytest

from vkdml.engine.trust.trial import Run
from vkdml.errors import DriverError
from vkdml_lab.gpu_report import clocks, machine, schedules
from vkdml_lab.gpu_report import running as gpu_report
from vkdml_lab.gpu_report.parts import CANDIDATES, CEILINGS, ON_GPU, PARTS, PEERS, SCHEDULES, Turn
from vkdml_lab.gpu_report.steps import CLOCKS, lines, write_tables
from vkdml_lab.processes import Ended
from vkdml_lab.suite.devices import GPUS

AMD = "0: 500Mhz \n1: 1200Mhz {0}\n2: 2371Mhz {1}\n"


@pytest.fixture
def cards(tmp_path, monkeypatch):
    """Make the files in which AMD's and Intel's drivers show clocks, and a stand-in for nvidia-smi. Returns their folder."""
    files = {"card0/device/pp_dpm_sclk": AMD.format("*", ""), "card0/device/pp_dpm_mclk": "0: 96Mhz *\n", "card0-DP-1/status": "connected\n",
             "card1/gt_act_freq_mhz": "350\n", "card2/device/tile0/gt1/freq0/act_freq": "0\n", "card3/device/pp_dpm_sclk": "\n"}
    for name, text in files.items():
        (tmp_path / "drm" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "drm" / name).write_text(text)
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho '0, 210 MHz, 405 MHz, P8'\necho '1, 1980 MHz, 2619 MHz, P0'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(clocks, "CARDS", tmp_path / "drm")
    return tmp_path / "drm"


def test_clocks(cards, monkeypatch):
    assert clocks.clocks() == {
        "card0/device/pp_dpm_sclk": "1200Mhz", "card0/device/pp_dpm_mclk": "96Mhz", "card1/gt_act_freq_mhz": "350 MHz",
        "card2/device/tile0/gt1/freq0/act_freq": "0 MHz", "card3/device/pp_dpm_sclk": machine.UNKNOWN,
        "nvidia-smi 0": "210 MHz, 405 MHz, P8", "nvidia-smi 1": "1980 MHz, 2619 MHz, P0"}
    (cards.parent / "nvidia-smi").write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    assert not [name for name in clocks.clocks() if name.startswith("nvidia")]
    (cards.parent / "nvidia-smi").write_text("#!/bin/sh\nsleep 60\n")
    monkeypatch.setattr(clocks, "NVIDIA_SECONDS", 0.1)
    assert not clocks.of_nvidia()
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(clocks, "CARDS", cards / "none")
    assert clocks.clocks() == {}


@pytest.mark.parametrize(("warms_up", "whens"), [(True, ["before", "warmed up", "after"]), (False, ["before", "after"])])
def test_clocks_before_and_after_a_part(cards, tmp_path, monkeypatch, warms_up, whens):
    """Clocks are read before and after a part runs, and also after the warm-up if the part has one (warms_up)."""
    sclk = cards / "card0/device/pp_dpm_sclk"
    monkeypatch.setattr(clocks, "work", lambda: sclk.write_text(AMD.format("", "*")) and "")
    with clocks.recorded(tmp_path, warms_up):
        sclk.write_text("S: 19Mhz *\n" + AMD.format("", ""))
    found = lines(tmp_path / CLOCKS)
    assert [row["when"] for row in found] == whens
    assert [row["card0/device/pp_dpm_sclk"] for row in found] == ["1200Mhz", *["2371Mhz"] * warms_up, "19Mhz"]
    write_tables(schedules, tmp_path)
    assert "| after" in (tmp_path / f"{tmp_path.name}.md").read_text().partition("## Clocks")[2]


def test_parts_that_time_are_warmed_up(tmp_path, monkeypatch):
    commands = {}
    monkeypatch.setattr(gpu_report, "supervise", lambda command, *_, **__: commands.update({command[3]: command}) or Ended(0, "", ""))
    for part in PARTS:
        gpu_report.run_turn(Turn(part, 60), tmp_path, GPUS["RTX 3090"], False, time.time() + 60)
    assert [part for part in PARTS if "--warm" in commands[part.module]] == [SCHEDULES, PEERS, ON_GPU, CEILINGS, CANDIDATES]


@pytest.mark.thorough
def test_half_a_second_of_work(device, monkeypatch):
    """clocks.work() keeps the GPU busy for half a second. It returns an error as text, as the steps after it will report it."""
    count, execute = [], Run.execute
    monkeypatch.setattr(Run, "execute", lambda run: count.append(time.monotonic()) or execute(run))
    assert clocks.work() == ""
    assert time.monotonic() - count[1] >= 0.5
    monkeypatch.setattr(clocks, "open_device", lambda _: (_ for _ in ()).throw(DriverError("the device is lost")))
    assert clocks.work() == "the device is lost"
