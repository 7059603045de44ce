"""setuptools' build_ext. It builds kp (Kompute's Python package: its sdist with the patches of tools/kp/) into this package,
and this package's own extensions.

Downloads are pinned by hash. Builds are kept in the user's cache (docs/caches.md). Errors are one line that begins with "kp: ".
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from setuptools import Extension
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

ROOT = Path(__file__).resolve().parent.parent
KP = ROOT / "tools/kp"
NEEDS = ("g++, patch, and the headers of Python, Vulkan and fmt (on Debian: apt-get install g++ patch python3-dev "
         "libvulkan-dev libfmt-dev)")
SOURCES = ["Algorithm", "Manager", "OpAlgoDispatch", "OpMemoryBarrier", "OpTensorCopy", "OpTensorSyncDevice",
           "OpTensorSyncLocal", "Sequence", "Tensor"]
# Logging is off, and fmt compiled in, so the module needs no library of it
MACROS = {"FMT_HEADER_ONLY": "1", "KOMPUTE_BUILD_PYTHON": "1", "KOMPUTE_OPT_LOG_LEVEL_DISABLED": "1"}
COMPILING = ["-std=c++17", "-O2", "-g0", "-fvisibility=hidden"]
FLAGS = ("CC", "CXX", "CPPFLAGS", "CFLAGS", "CXXFLAGS", "LDFLAGS", "LDSHARED")  # variables that setuptools uses


class BuildExt(build_ext):
    def build_extension(self, ext: Extension) -> None:
        built = Path(self.get_ext_fullpath(ext.name))
        kept = place(built.name, ext.sources)
        if kept and kept.exists():
            self.mkpath(str(built.parent))
            shutil.copyfile(kept, built)
            return
        with tempfile.TemporaryDirectory() as folder:
            self.build_temp, self.force = folder, True
            prepare(ext, Path(folder)) if not ext.sources else compiled(ext, Path(folder))
            try:
                super().build_extension(ext)
            except (BaseError, CCompilerError) as error:
                raise SystemExit(f"kp: did not build ({error}): it needs {NEEDS}") from None
        if kept:
            keep(built, kept)


def version() -> str:
    """Return the version that the package requires."""
    return re.search(r'^KP_VERSION = "(\S+)"', (ROOT / "src/vkdml/engine/vulkan/gpu.py").read_text(), re.MULTILINE)[1]


def compiled(ext: Extension, folder: Path) -> None:
    """Fetch pybind11 and build the extension with it."""
    fetch("install", "--no-user", "--only-binary", ":all:", "--target", folder / "needed", "-r", KP / "requirements.txt")
    ext.include_dirs.append(str(folder / "needed/pybind11/include"))
    ext.extra_compile_args, ext.extra_link_args = COMPILING, ["-Wl,-s"]


def prepare(ext: Extension, folder: Path) -> None:
    """Fetch and patch kp's source, and build the extension from it."""
    compiled(ext, folder)
    fetch("download", "--no-build-isolation", "--no-binary", "kp", "-d", folder, "-r", KP / "source.txt")
    (sdist,) = folder.glob("kp-*.tar.gz")
    shutil.unpack_archive(sdist, folder)
    source = folder / sdist.name.removesuffix(".tar.gz")
    for change in sorted(KP.glob("*.patch")):
        try:
            done = subprocess.run(["patch", "-d", source, "-p", "1", "--forward", "-i", change])
        except FileNotFoundError:
            raise SystemExit(f"kp: the command patch is missing: kp needs {NEEDS}") from None
        if done.returncode:
            raise SystemExit(f"kp: {change.name} does not apply")
    for shader in (source / "src/shaders/glsl").glob("*.hpp.in"):
        shutil.copy(shader, source / "src/include" / shader.stem)
    # One file builds in an eighth of the time, most of which goes to vulkan.hpp
    whole = source / "kp.cpp"
    whole.write_text("".join(f'#include "src/{name}.cpp"\n' for name in SOURCES) + '#include "python/src/main.cpp"\n')
    ext.sources, ext.libraries, ext.language = [str(whole)], ["vulkan"], "c++"
    ext.include_dirs += [str(source), str(source / "src/include")]
    ext.define_macros = [*MACROS.items(), ("VERSION_INFO", f'"{version()}"')]


def fetch(*arguments: str | Path) -> None:
    # Hides the variables by which the outer pip finds this build's backend
    own = {name: value for name, value in os.environ.items() if "_BACKEND_PATH" not in name}
    if subprocess.run([sys.executable, "-m", "pip", *arguments, "--no-deps", "--require-hashes"], env=own).returncode:
        raise SystemExit("kp: could not fetch kp's source or pybind11 from the package index: check the network, and what "
                         "pip.conf or the environment tells pip")


# The cache

def place(name: str, sources: Sequence[str] = ()) -> Path | None:
    """Return the cache's file for the module that would be built now, or None if others may have written to the cache.

    sources: this package's own source files.
    """
    named = os.environ.get("VKDML_CACHE")
    cache = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vkdml"
    files = [Path(__file__), *sorted(KP.glob("*.patch")), *sorted(KP.glob("*.txt")), *(ROOT / source for source in sources)]
    digest = hashlib.sha256(repr([version(), platform.libc_ver(), [os.environ.get(flag) for flag in FLAGS],
                                  [path.read_bytes() for path in files]]).encode()).hexdigest()
    kept = cache / "kp" / digest[:16] / name
    for path in (cache, *reversed(kept.parents[:2]), kept):
        if path.exists() and not is_ours(path):
            print(f"kp: {path} is not used, because others may have written to it: remove it, or set VKDML_CACHE to a folder "
                  "of your own", flush=True)
            return None
    return kept


def is_ours(path: Path) -> bool:
    """Whether only this user can have written the path. A file in a shared folder could be anybody's."""
    facts = path.lstat()
    return facts.st_uid == os.getuid() and not stat.S_ISLNK(facts.st_mode) and not facts.st_mode & 0o022


def keep(built: Path, kept: Path) -> None:
    """Copy a build into the cache in one step, as other builds may read there. Does nothing if the cache is not writable."""
    before = os.umask(0o077)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            shutil.copyfile(built, Path(folder, kept.name)).replace(kept)
    except OSError as error:
        print(f"kp: not kept for the next build: {error}", flush=True)
    finally:
        os.umask(before)
