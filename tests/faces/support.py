"""Arrays for the numpy functions, and comparison in each type's tolerance."""

import numpy as np

from vkdml_lab.suite.support import DTYPES, TOLERANCES

T, B, I, H = 5, 3, 7, 6  # those of the tests of PyTorch's twins, too, so that pipelines are compiled once


def arrays(name, gates=3, d=1):
    rng = np.random.default_rng(0)
    shapes = {"x": (T, B, I), "w": (d, gates * H, I), "r": (d, gates * H, H), "b": (d, 2 * gates * H), "initial_h": (d, B, H)}
    return {key: (rng.standard_normal(shape) * 0.4).astype(DTYPES[name]) for key, shape in shapes.items()}


def check(results, expected, name):
    rtol, atol = TOLERANCES[name]
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == DTYPES[name]
        np.testing.assert_allclose(result.astype(np.float64), wanted, rtol=rtol, atol=atol)


def packed_bytes(device):
    """Bytes of the packed weights that the device's store keeps."""
    return sum(entry.size for key, entry in device.gpu.store._entries.items() if key[0] == "packed weights")
