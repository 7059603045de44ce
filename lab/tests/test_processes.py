"""Tests vkdml_lab/processes.py: child processes that end, hang or leave children, and workers, which answer questions."""

import os
import signal
import sys
import threading
import time

import pytest

from vkdml_lab import ROOT
from vkdml_lab.processes import Worker, WorkerError, supervise

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


def test_a_child_that_keeps_writing_does_not_hang(tmp_path):
    """A process counts as hung if its file does not grow for `silence` seconds. One that keeps writing may run for longer."""
    (tmp_path / "results").touch()
    text = "import time\nfor _ in range(8):\n    print('.', file=open('results', 'a'), flush=True)\n    time.sleep(0.2)"
    seen = []
    ended = run(tmp_path, text, grows=tmp_path / "results", silence=0.8, seen=lambda: seen.append(1))
    assert ended.code == 0
    assert seen


WORKER = """
import os, sys, time
from vkdml_lab.processes import serve

class Answers:
    def twice(self, number):
        return 2 * number

    def sleep(self):
        print("about to sleep", flush=True)
        time.sleep(100)

serve(Answers(), sys.argv[-1])
"""


@pytest.mark.parametrize(("number", "said"), [
    (signal.SIGSEGV, "crashed: SIGSEGV: about to sleep"), (signal.SIGSTOP, "hung: no answer to sleep in 2 s")])
def test_a_worker_that_does_not_answer(number, said, tmp_path):
    """A worker that crashed or hung answers nothing until it is started again. After an exception, it still answers."""
    (tmp_path / "answers.py").write_text(WORKER)
    worker = Worker("answers", [], {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "lab")])}, tmp_path, 2)
    try:
        worker.start()
        assert worker.ask("twice", 3) == 6
        with pytest.raises(WorkerError, match="AttributeError: .*no attribute 'thrice'"):
            worker.ask("thrice", 3)
        threading.Timer(0.3, os.kill, (worker.pid, number)).start()
        with pytest.raises(WorkerError, match=said):
            worker.ask("sleep")
        with pytest.raises(WorkerError, match="ended by what was asked before"):
            worker.ask("twice", 3)
        worker.start()
        assert worker.ask("twice", 4) == 8
    finally:
        worker.close()
