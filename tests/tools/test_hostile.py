"""tools/hostile: the kernels on a device that does whatever Vulkan allows, and planted mistakes that it must see there."""

import pytest

from tools.hostile import controls, formal, modes
from tools.hostile.__main__ import main

SEEDS = range(120)


@pytest.mark.family("problems of each mode", first=12)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", modes.MODES)
def test_kernels_are_right_on_a_hostile_device(mode, seed):
    task, result = modes.try_once(mode, seed)
    assert not result.wrong, task.name


@pytest.mark.family("planted mistakes", first=4)
@pytest.mark.parametrize(("name", "mode"), controls.ALL)
def test_a_planted_mistake_is_seen(name, mode):
    assert controls.ALL[name, mode]()


def test_races_by_the_memory_model():
    assert not formal.unexpected()


def test_what_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(controls, "ALL", {("seen", "weak"): lambda: "race: x", ("not seen", "weak"): lambda: ""})
    assert main(["--minutes", "0.01", "--seed", "3", "--output", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "weak does not see: not seen" in said
    assert said.strip() == (tmp_path / "hostile.md").read_text().strip()
