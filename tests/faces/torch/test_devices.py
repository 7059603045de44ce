"""Tensors of a GPU: on_a_gpu.py, in a process of its own, as the GPU that is not there changes PyTorch for all its tests."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.device, pytest.mark.thorough]


def test_a_gpu_that_is_not_there():
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", Path(__file__).with_name("on_a_gpu.py")],
                          capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
