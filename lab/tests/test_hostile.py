"""The kernels on a device that does whatever Vulkan allows (lab/vkdml_lab/hostile), and planted mistakes that it must see there."""

import pytest

from tools import compile_shaders
from vkdml_lab.hostile import controls, modes
from vkdml_lab.hostile.__main__ import main

RUNS = [(mode, seed) for seed in range(40) for mode in modes.MODES]


@pytest.mark.family("problems of each mode", first=12)
@pytest.mark.parametrize(("mode", "seed"), RUNS)
def test_kernels_are_right_on_a_hostile_device(mode, seed):
    task, result = modes.try_once(mode, seed)
    assert not result.wrong, task.name


@pytest.mark.family("what each mode draws", first=0)
@pytest.mark.parametrize("mode", modes.MODES)
def test_every_kernel_is_drawn(mode):
    left = {name for name in compile_shaders.kernels() if not name.startswith("cpu/")}
    if mode == "weak":
        left = {name for name in left if name.endswith(("_persistent", "_persistent_coherent"))}
    for seed in range(600):
        plan = modes.draw(mode, seed).plan
        left -= {dispatch.kernel for dispatch in plan.initialize + plan.execute}
    assert not left


@pytest.mark.family("planted mistakes", first=5)
@pytest.mark.parametrize(("name", "mode"), controls.ALL)
def test_a_planted_mistake_is_seen(name, mode):
    assert controls.ALL[name, mode]()


def test_what_is_wrong_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(controls, "ALL", {("seen", "weak"): lambda: "race: x", ("not seen", "weak"): lambda: ""})
    wrong = modes.Mode(lambda *_: modes.Result({"gpu/gru"}, ["other bits"]), (modes.tasks.plain,))
    monkeypatch.setattr(modes, "MODES", dict.fromkeys(modes.MODES, wrong))
    assert main(["--minutes", "0.001", "--seed", "4", "--output", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "weak does not see: not seen" in said
    assert "watched 4, arithmetic in float16: other bits" in said
    assert said.strip() == (tmp_path / "hostile.md").read_text().strip()
    assert main(["--only", "watched", "4"]) == 1
    assert "other bits" in capsys.readouterr().out
