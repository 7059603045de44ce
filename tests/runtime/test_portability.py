"""Drivers without all of Vulkan, as macOS has them: the loader tells of them only those who ask, and their devices want an
extension to be enabled.
"""

import subprocess
from pathlib import Path

import pytest

from tests.runtime.manifests import cpu_driver, with_manifest

pytestmark = pytest.mark.device

SOURCE = Path(__file__).with_name("portability_driver.c")
USE = """
import numpy as np, vkdml
from vkdml import reference
rng = np.random.default_rng(0)
x, w, r = (rng.standard_normal(sizes, np.float32) for sizes in ((5, 2, 8), (1, 48, 8), (1, 48, 16)))
try:
    print(vkdml.Device().info.name.split()[0], np.abs(vkdml.gru(x, w, r)[0] - reference.gru(x, w, r)[0]).max() < 1e-5)
except vkdml.DriverError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """Its manifest, and the environment that it wants."""
    original = cpu_driver(is_portability_driver=True)
    library = tmp_path_factory.mktemp("driver") / "libvulkan_portability.so"
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden", "-o", str(library), str(SOURCE),
                    "-ldl"], check=True)
    icd = original["ICD"]
    return {**original, "ICD": {**icd, "library_path": str(library)}}, {"WRAPPED_DRIVER": icd["library_path"]}


def test_it_is_used(driver, tmp_path):
    manifest, environment = driver
    assert with_manifest(tmp_path, manifest, USE, **environment) == "llvmpipe True\n"


def test_kp_counts_the_devices_that_are_listed(driver, tmp_path):
    manifest, environment = driver
    code = "from vkdml.runtime.device import enumerate_devices, kp\nprint(len(enumerate_devices()), len(kp.Manager().list_devices()))"
    assert with_manifest(tmp_path, manifest, code, **environment) == "1 1\n"
