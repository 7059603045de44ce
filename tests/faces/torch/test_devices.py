"""Tensors of a GPU: on_a_gpu.py and all tests of this folder, each in a process of its own, as the GPU that is not there changes
PyTorch for the rest of a process.
"""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.device, pytest.mark.thorough]


def run(*arguments, minutes):
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 * minutes, check=False)
    assert done.returncode == 0, done.stdout[-5000:]


def test_a_gpu_that_is_not_there():
    run(Path(__file__).with_name("on_a_gpu.py"), minutes=10)


@pytest.mark.timeout(2000)
@pytest.mark.parametrize("way", ["host", "CUDA"])
def test_all_tests_with_a_gpu_as_the_default_device(way):
    run("-p", "tests.faces.torch.default_gpu", "--tensors", way, "-m", "not thorough", Path(__file__).parent, minutes=30)
