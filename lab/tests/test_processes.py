"""Children that end, hang, and leave others behind."""

import os
import sys
import time

import pytest

from vkdml_lab.processes import supervise

PARENT = """
import subprocess, sys, time
print("begun", flush=True)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
open("child", "w").write(str(child.pid))
{then}
"""


def run(tmp_path, text, **limits):
    return supervise([sys.executable, "-c", text], dict(os.environ), tmp_path, **limits)


def is_running(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(("then", "code", "how"), [
    ("", 0, "crashed: exit code 0"), ("sys.exit(3)", 3, "crashed: exit code 3"), ("import os; os.abort()", -6, "crashed: SIGABRT"),
    ("time.sleep(100)", None, "hung: not done in 1.5 s")])
def test_nothing_is_left_of_a_child(then, code, how, tmp_path):
    ended = run(tmp_path, PARENT.format(then=then), seconds=1.5, output=tmp_path / "output.txt")
    assert (ended.code, ended.how) == (code, how)
    assert ended.output.startswith("begun")
    assert (tmp_path / "output.txt").read_text().startswith("begun")
    for _ in range(100):
        if not is_running(int((tmp_path / "child").read_text())):
            break
        time.sleep(0.02)
    else:
        raise AssertionError("its child still runs")


def test_who_goes_on_does_not_hang(tmp_path):
    """A file that grows for longer than it may be silent."""
    (tmp_path / "results").touch()
    text = "import time\nfor _ in range(8):\n    print('.', file=open('results', 'a'), flush=True)\n    time.sleep(0.2)"
    seen = []
    ended = run(tmp_path, text, grows=tmp_path / "results", silence=0.8, seen=lambda: seen.append(1))
    assert ended.code == 0
    assert seen
