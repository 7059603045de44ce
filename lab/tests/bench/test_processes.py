"""A worker's process."""

import time
from pathlib import Path

import pytest

from lab.tests.bench.support import TINY, table
from vkdml_lab.bench.processes import Process

pytestmark = pytest.mark.device


def test_a_worker_runs_only_while_it_is_asked():
    process = Process(table()["onnxruntime-cpu"])
    process.open()
    status = Path(f"/proc/{process.pid}/status")
    for _ in range(100):
        if "State:\tT (stopped)" in status.read_text():
            break
        time.sleep(0.01)
    else:
        raise AssertionError("it still runs")
    assert process.ask("prepare", TINY) == ["host"]
    process.close()
