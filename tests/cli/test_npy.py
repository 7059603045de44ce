"""Files of arrays that somebody or something has broken."""

import io
import os
import random

import numpy as np
import pytest

from vkdml.cli.common import read_npy

HEADERS = ("(3,)", "()", "(1000000000000,)", "(-1,)", "(1,)*70", "(2**64,)", "(0, 10**30)", "((3,),)", "(3.0,)")
TYPES = ("'<f4'", "'|V0'", "'|S0'", "'<U0'", "'O'", "[('a','<f4')]", "'<M8[D]'", "3", "'x'")


def broken_npy(rng):
    if rng.random() < 0.5:
        file = io.BytesIO()
        np.save(file, np.arange(rng.randint(0, 5), dtype=rng.choice(["f4", ">f8", "i1", "c16"])))
        data = file.getvalue()
        place = rng.randrange(len(data))
        return rng.choice((data[:place], data[:place] + rng.randbytes(1) + data[place + 1:], data[:place] + rng.randbytes(5) + data[place:]))
    header = "(" * rng.choice((0, 0, 10, 2000)) + \
        f"{{'descr': {rng.choice(TYPES)}, 'fortran_order': {rng.choice(('False', 'True', '1'))}, 'shape': {rng.choice(HEADERS)}, }}"
    version = rng.choice(((1, 0), (2, 0), (3, 0), (9, 9)))
    return b"\x93NUMPY" + bytes(version) + len(header).to_bytes(2 if version == (1, 0) else 4, "little") + header.encode() + rng.randbytes(12)


@pytest.mark.filterwarnings("ignore:invalid escape")  # numpy evaluates headers
def test_broken_npy_files(tmp_path):
    read, refused = 0, []
    for seed in range(300):
        (tmp_path / "a.npy").write_bytes(broken_npy(random.Random(seed)))
        try:
            read += isinstance(read_npy(tmp_path / "a.npy"), np.ndarray)
        except (OSError, ValueError) as error:
            refused.append(str(error))
    assert read > 5
    assert all(refused)


def test_a_header_of_10_tb_is_refused_before_memory_is_taken(tmp_path, monkeypatch):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2500000000000,), }"
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + bytes(4))
    monkeypatch.setattr(np.lib.format, "read_array", None)
    with pytest.raises(ValueError, match=r"an array \(2500000000000,\) of float32 in 4 bytes"):
        read_npy(tmp_path / "a.npy")


def test_only_regular_files_are_read(tmp_path):
    """A pipe without a writer is refused, and not waited for."""
    os.mkfifo(tmp_path / "fifo.npy")
    for path in (tmp_path / "fifo.npy", "/dev/zero"):
        with pytest.raises(ValueError, match="not a regular file"):
            read_npy(path)
