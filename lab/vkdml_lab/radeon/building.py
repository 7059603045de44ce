"""Builds the emulator's library, once for each text of its sources."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from vkdml_lab.radeon import instructions, structures

SOURCES = Path(__file__).parent / "native"
_FLAGS = ["-std=gnu17", "-O3", "-march=native", "-ffp-contract=off", "-fno-strict-aliasing", "-fvisibility=hidden", "-shared", "-fPIC", "-g"]


def build(folder: Path) -> Path:
    """The library in the folder. Processes with an older C library than the driver's may load it too."""
    texts = {path.name: path.read_text() for path in sorted(SOURCES.iterdir())}
    texts |= {"shared.h": structures.c_text(), **instructions.c_text()}
    key = hashlib.sha256(repr([texts, _FLAGS]).encode()).hexdigest()[:16]
    library = folder / f"libradeon-{key}.so"
    if not library.exists():
        sources = folder / f"native-{key}"
        sources.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (sources / name).write_text(text)
        new = library.with_suffix(".new")
        subprocess.run(["gcc", *_FLAGS, "-o", new, sources / "radeon.c", "-lm", "-ldl", "-lpthread"], check=True)
        new.rename(library)
    return library
