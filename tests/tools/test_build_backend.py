import importlib
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture
def backend(monkeypatch):
    """The build backend, as pip calls it in an environment without kp."""
    monkeypatch.syspath_prepend(str(TOOLS))
    monkeypatch.setenv("PIP_BUILD_TRACKER", "/tmp")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    backend = importlib.import_module("build_backend")
    monkeypatch.setattr(backend.build_meta, "get_requires_for_build_wheel", lambda *_: ["a requirement"])
    monkeypatch.setattr(backend.build_meta, "get_requires_for_build_editable", lambda *_: ["a requirement"])
    monkeypatch.setattr(backend.site, "getsitepackages", lambda _: [])
    monkeypatch.setattr(backend.site, "getusersitepackages", lambda: "/nonexistent")
    monkeypatch.setattr(backend, "_parent_arguments", lambda: ["python", "-m", "pip", "install", "."])
    yield backend
    del sys.modules["build_backend"], sys.modules["compile_shaders"]


HOOKS = ["get_requires_for_build_wheel", "get_requires_for_build_editable"]


@pytest.mark.parametrize("hook", HOOKS)
def test_pip_without_kp_ends_with_one_line(backend, hook):
    with pytest.raises(SystemExit) as stopped:
        getattr(backend, hook)()
    assert "run `make wheels`" in stopped.value.code
    assert "\n" not in stopped.value.code


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("arguments", [
    ["install", "dist/kp-0.9.0-cp311-cp311-linux_x86_64.whl", "."],
    ["install", "--find-links=dist", "."],
    ["install", "-f", "dist", "."],
    ["wheel", "--no-deps", "."],
    ["install", "-r", "requirements.txt"],
])
def test_pip_that_may_have_a_wheel_of_kp_goes_on(backend, hook, arguments, monkeypatch):
    monkeypatch.setattr(backend, "_parent_arguments", lambda: ["python", "-m", "pip", *arguments])
    assert getattr(backend, hook)() == ["a requirement"]


def test_pip_that_is_told_of_a_wheel_in_the_environment_goes_on(backend, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(SystemExit):
        backend.get_requires_for_build_wheel()
    (tmp_path / "kp-0.9.0-cp311-cp311-linux_x86_64.whl").touch()
    assert backend.get_requires_for_build_wheel() == ["a requirement"]


def test_pip_with_kp_goes_on(backend, tmp_path, monkeypatch):
    (tmp_path / "kp-0.9.0.dist-info").mkdir()
    (tmp_path / "kp-0.9.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: kp\nVersion: 0.9.0\n")
    monkeypatch.setattr(backend.site, "getsitepackages", lambda _: [str(tmp_path)])
    assert backend.get_requires_for_build_wheel() == ["a requirement"]


def test_other_programs_than_pip_go_on(backend, monkeypatch):
    monkeypatch.delenv("PIP_BUILD_TRACKER")
    assert backend.get_requires_for_build_wheel() == ["a requirement"]
