"""Builds the emulator's C library. The file's name contains a hash of the sources, so that each version is built only once."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from vkdml_lab.radeon import instructions, structures

SOURCES = Path(__file__).parent / "native"
_FLAGS = ["-std=gnu17", "-O3", "-march=native", "-ffp-contract=off", "-fno-strict-aliasing", "-fvisibility=hidden", "-shared",
          "-fPIC"]


def build(folder: Path, main: Path = SOURCES / "radeon.c") -> Path:
    """Compile the C file `main` to a shared library in `folder`, unless it is there already. Returns the library's path."""
    texts = {path.name: path.read_text() for path in (*sorted(SOURCES.iterdir()), main)}
    texts |= {"shared.h": structures.c_text(), **instructions.c_text()}
    key = hashlib.sha256(repr([texts, _FLAGS, main.name]).encode()).hexdigest()[:16]
    library = folder / f"libradeon-{key}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory() as sources:  # other processes may build at the same time
            for name, text in texts.items():
                Path(sources, name).write_text(text)
            new = library.with_suffix(f".{os.getpid()}")
            subprocess.run(["gcc", *_FLAGS, "-o", new, Path(sources, main.name), "-lm", "-ldl", "-lpthread"], check=True)
        new.rename(library)
    return library
