"""The command `vkdml`: its exit codes and errors, `devices`, and the commands of the laboratory. cli/ has `run` and `explain`."""

import io
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tqdm import tqdm

import vkdml
from vkdml import cli
from vkdml.engine.trust import choices, tuner
from vkdml.engine.vulkan import gpu
from vkdml_lab.gpu_report import running
from vkdml_lab.gpu_report.steps import Log, Step
from vkdml_lab.radeon import command as radeon

ROOT = Path(__file__).parents[1]


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The current folder, with an input and what is no model."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros(4, np.float32))
    Path("gru.onnx").touch()


def run(capsys, *arguments):
    """The exit code, and what is printed to stdout and stderr."""
    try:
        code = cli.main(list(arguments))
    except SystemExit as error:
        code = error.code
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_devices(capsys, device):
    code, out, _ = run(capsys, "devices")
    assert (code, out.count(device.info.name)) == (0, 1)
    assert f"* {device.info.index}  {device.info.name} (" in out
    assert f"driver {device.info.driver} " in out
    assert ("No GPU was found" in out) is all(info.is_cpu for info in device.enumerate())
    code, out, _ = run(capsys, "devices", "--json")
    rows = json.loads(out)
    assert [row["name"] for row in rows if row["is_default"]] == [device.info.name]
    assert rows[device.info.index]["max_storage_buffer_range"] == device.info.max_storage_buffer_range


def test_devices_fit_80_columns(capsys, device, monkeypatch):
    infos = [replace(device.info, name="NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", type="discrete", compute_units=188,
                     driver="NVIDIA", driver_version="580.95.05", max_storage_buffer_range=2**32 - 4),
             replace(device.info, index=1, driver_version="24.3.0-devel (git-0123456789)", min_subgroup_size=32, max_subgroup_size=64)]
    monkeypatch.setattr(cli.devices, "enumerate_devices", lambda: infos)
    monkeypatch.setattr(cli.devices, "profile", lambda info: SimpleNamespace(tuned=True))
    _, out, _ = run(capsys, "devices")
    assert not [line for line in out.splitlines() if len(line) > 80 and not line.startswith("What was measured is in")]
    assert "subgroup 32 to 64; " in out
    assert "largest tensor 4 GiB" in out


@pytest.mark.device
def test_devices_are_listed_where_the_wanted_one_is_not_there(capsys, monkeypatch):
    monkeypatch.setenv("VKDML_DEVICE", "foo")
    code, out, _ = run(capsys, "devices")
    assert (code, out.count("*")) == (0, 1)
    assert "VKDML_DEVICE: no Vulkan device 'foo'; the devices are [0] " in out
    code, out, _ = run(capsys, "devices", "--json")
    assert (code, {row["is_default"] for row in json.loads(out)}) == (0, {False})


@pytest.mark.parametrize(("count", "said"), [(4, "0.00391 KiB"), (32768, "32 KiB"), (2**27, "128 MiB"), (2**32 - 4, "4 GiB")])
def test_sizes_of_devices(count, said):
    assert cli.devices._size(count) == said


@pytest.mark.parametrize(("mode", "said"), [
    ("on", "Tuning of GPUs is on: the best plans for new sizes are timed"), ("", "Tuning of GPUs is on: "),
    ("read", "Tuning of GPUs is read: plans that were kept are used, and nothing is timed"),
    ("off", "Tuning of GPUs is off: the model of costs chooses, and nothing is read")])
def test_devices_tell_what_is_kept_of_gpus(capsys, device, monkeypatch, tmp_path, mode, said):
    monkeypatch.setenv("VKDML_TUNING", mode)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cli.devices, "profile", lambda info: SimpleNamespace(tuned=True))
    choices.Choices(device.info).put({"persistent": "GRU"}, {"passed": True})
    _, out, _ = run(capsys, "devices")
    out = " ".join(out.split())
    assert said in out
    assert "(VKDML_TUNING in the environment: on, read, off)" in out
    assert f"What was measured is in {tmp_path}/vkdml/tuning: 1 files" in out


@pytest.mark.device
@pytest.mark.parametrize(("arguments", "code", "message"), [
    (("fly",), 2, "invalid choice: 'fly'"),
    (("run",), 2, "required: model"),
    (("explain", "gru-1x1x1x1", "--device", "9"), 1, "vkdml: no Vulkan device '9'"),
    (("explain", "gru.onnx", "-T", "9" * 5000), 2, "is not a positive whole number"),
])
def test_errors_and_exit_codes(capsys, files, arguments, code, message):
    found, out, err = run(capsys, *arguments)
    assert (found, bool(re.search(message, err)), out if code == 2 else "") == (code, True, ""), err


@pytest.mark.device
@pytest.mark.family("variables that different modules read", first=2)
@pytest.mark.parametrize("name", ["VKDML_LOG", "VKDML_TUNING", "VKDML_SELFTEST", "VKDML_VERIFY", "VKDML_MEMORY_BYTES"])
def test_a_wrong_variable_is_wrong_usage(name):
    done = subprocess.run([sys.executable, "-m", "vkdml", "explain", "gru-1x1x1x1"], capture_output=True, text=True, env={**os.environ, name: "loud"})
    assert (done.returncode, done.stdout, name in done.stderr, done.stderr.count("\n")) == (2, "", True, 1), done.stderr


@pytest.mark.parametrize(("raised", "code", "said"), [
    (KeyboardInterrupt(), 130, ""), (BrokenPipeError(), 1, ""), (PermissionError(13, "Permission denied", "x"), 1, "Permission denied"),
    (vkdml.DriverError("the driver failed"), 1, "the driver failed")])
def test_exit_codes_of_failures(capsys, monkeypatch, raised, code, said):
    def fail(chosen):
        raise raised

    monkeypatch.setattr(cli.selftest, "run", fail)
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # which a broken pipe takes away
    found, _, err = run(capsys, "selftest")
    assert (found, said in err) == (code, True)


def test_a_missing_package_is_one_line(capsys, files, monkeypatch):
    """Only what is missing is named, as onnxruntime must not be installed beside onnxruntime-gpu."""
    for name in [name for name in sys.modules if name.startswith(("vkdml.onnx", "vkdml.faces.onnx"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.delattr(vkdml.faces, "onnx", raising=False)
    code, _, err = run(capsys, "run", "gru.onnx", "--input", "x=x.npy")
    assert (code, err) == (1, "vkdml: vkdml.onnx needs the package onnxruntime: pip install 'onnxruntime>=1.25'\n")


@pytest.mark.parametrize("name", ["conformance", "gpu-report", "radeon", "reproduce"])
def test_commands_of_the_laboratory_say_how_to_install_it(capsys, monkeypatch, name):
    monkeypatch.setattr(cli, "entry_points", lambda **_: ())
    assert run(capsys, name, "--json") == (
        1, "", f"vkdml: vkdml {name} is a command of the package vkdml_lab, which is not installed: in a checkout of vkdml "
        f"pip install ./lab, else pip install vkdml_lab-{vkdml.__version__}-py3-none-any.whl\n")
    code, out, _ = run(capsys, "--help")
    assert (code, f"\n    {name}" in out) == (0, True)


def test_json_has_no_infinities_and_nan(capsys):
    cli.common.print_json({"a": [1.5, float("nan"), float("inf")]})
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {"a": [1.5, "nan", "inf"]}


def test_light_imports():
    """The heavy packages are for the faces that need them."""
    code = ("import sys, vkdml, vkdml.cli, vkdml.pydirectml; "
            "print({'onnx', 'onnxruntime', 'torch', 'matplotlib', 'ml_dtypes'} & sys.modules.keys())")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_as_a_module_and_a_command():
    for command in ([sys.executable, "-m", "vkdml"], [Path(sys.executable).parent / "vkdml"]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout == f"vkdml {vkdml.__version__}\n"


@pytest.mark.family("programs", first=1)
@pytest.mark.parametrize(("module", "says"), [
    ("vkdml_lab.validate", r"takes\s+no\s+arguments"), ("tests.planning.snapshot", "--against FILE  print the rows that differ"),
    ("lab.tests.radeon.check", "--minutes MINUTES +test random problems"),
])
def test_programs_of_contributors_explain_themselves(module, says):
    """They run for minutes, so --help must not start them."""
    done = subprocess.run([sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert f"python -m {module}" in done.stdout
    assert re.search(says, done.stdout)


def test_the_page_lists_every_environment_variable_and_its_values():
    listed = dict(re.findall(r"^\| ?`(VKDML_\w+)` ?\|(.*?)\|", (ROOT / "docs/faces/cli.md").read_text(), re.M))
    assert listed.keys() == {name for path in (ROOT / "src").rglob("*.py") for name in re.findall(r"VKDML_[A-Z_]+", path.read_text())}
    for name, allowed in (("VKDML_LOG", gpu.LEVELS), ("VKDML_TUNING", tuner.MODES)):
        assert all(f"`{value}`" in listed[name] for value in allowed), name


# Commands of the laboratory on a terminal

@pytest.mark.parametrize(("is_terminal", "answer", "fetches"), [
    (False, "y", False), (True, "", False), (True, "n", False), (True, "y", True), (True, "Yes", True)])
def test_drivers_are_downloaded_only_if_somebody_agrees(monkeypatch, capsys, tmp_path, is_terminal, answer, fetches):
    fetched = []
    monkeypatch.setattr(radeon.subprocess, "run", lambda arguments: fetched.append(arguments) or SimpleNamespace(returncode=1))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: is_terminal))
    monkeypatch.setattr("builtins.input", lambda: answer)
    code, _, err = run(capsys, "radeon", "--drivers", str(tmp_path), "true")
    assert (code, bool(fetched)) == (2, fetches)
    assert "Fetch 0.6 GB" in err
    assert f"gpu/fetch {tmp_path} fetches them" in err


def test_progress_of_a_report_is_in_seconds(tmp_path):
    log, shown = Log(tmp_path), io.StringIO()
    bar = tqdm(desc="schedules", total=75, bar_format=running.BAR, file=shown)
    log.announce([Step("a", list), Step("b", list)])
    log.begin(Step("a", list))
    running.progress(bar, tmp_path, time.time() + 63)()
    assert shown.getvalue().rpartition("\r")[2].strip() == "schedules: 12 of at most 75 s, step 1 of 2: a"
    running.progress(bar, tmp_path, time.time() - 5)()  # a turn may overrun
    assert ": 75 of at most 75 s" in shown.getvalue()
