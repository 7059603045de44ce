"""Facts about a device, kept on disk for later processes in a small JSON file each.

A file that cannot be read or has another content counts as missing; a fact that cannot be written is dropped. Files that users
other than this one and root could have written are ignored. Several processes may read and write at once.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from ...planning.device_info import DeviceInfo
from ..vulkan import files

_NAME_LETTERS = 40
_MOST_BYTES = 2**20  # larger files are ignored
_GAVE_UP = "gave up"
_BELIEVED = 3  # so many give-ups are believed, as a busy machine may cause one,
_SECONDS_BELIEVED = 24 * 3600  # for so long


def folder() -> Path | None:
    """Return the folder of all devices' files, in XDG_CACHE_HOME or else in ~/.cache; None if there is no home."""
    return files.cache_folder("tuning")


def count() -> int:
    """Return how many facts are kept."""
    place = folder()
    return sum(1 for _ in place.glob("*/*.json")) if place else 0


@cache
def _version() -> str:
    """Return the version of the package, and a hash of its kernels."""
    digest = hashlib.sha256()
    shaders = Path(str(resources.files("vkdml") / "spirv"))
    for path in sorted(shaders.rglob("*.spv")):
        digest.update(path.relative_to(shaders).as_posix().encode() + path.read_bytes())
    return f"{metadata.version('vkdml')} {digest.hexdigest()[:16]}"


class Choices:
    """The facts kept about one device with its present driver and kernels."""

    def __init__(self, info: DeviceInfo) -> None:
        self._about = {"device": info.name, "driver": info.driver, "driver version": info.driver_version,
                       "driver build": info.pipeline_cache_uuid, "vkdml": _version()}
        place = folder()
        readable = re.sub(r"[^a-z0-9]+", "-", info.name.lower())[:_NAME_LETTERS].strip("-")
        self._folder = place / f"{readable}-{_digest(self._about)}" if place else None
        if self._folder and files.others_write_to(self._folder):
            warnings.warn(f"{self._folder} is ignored: its owner is another user, or others can write to it", RuntimeWarning,
                          stacklevel=2)
            self._folder = None

    def get(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the value kept under a key of strings and numbers; None if there is none."""
        path = self._path(key)
        if path is None or files.others_write_to(path):
            return None
        try:
            content = json.loads(files.read(path, _MOST_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(content, dict) or content.get("key") != {**self._about, **key}:
            return None
        value = content.get("value")
        return value if isinstance(value, dict) else None

    def put(self, key: Mapping[str, Any], value: Mapping[str, Any]) -> None:
        """Keep a value under a key, in place of an earlier one."""
        path = self._path(key)
        if path is None:
            return
        text = json.dumps({"key": {**self._about, **key}, "value": value}, indent=1)
        with suppress(OSError):
            files.write_whole(path, text.encode())

    def count_give_up(self, key: Mapping[str, Any]) -> None:
        """Keep the time of one more attempt that gave up."""
        self.put({**key, _GAVE_UP: True}, {_GAVE_UP: [*self._give_ups(key), time.time()][-_BELIEVED:]})

    def gives_up(self, key: Mapping[str, Any]) -> bool:
        """Return whether attempts gave up so often that another is not worth it. A day after the last one it is."""
        dates = self._give_ups(key)
        return len(dates) == _BELIEVED and time.time() - dates[-1] < _SECONDS_BELIEVED

    def _give_ups(self, key: Mapping[str, Any]) -> list[float]:
        dates = (self.get({**key, _GAVE_UP: True}) or {}).get(_GAVE_UP)
        if not isinstance(dates, list) or not all(isinstance(date, float) for date in dates):
            return []
        return dates[-_BELIEVED:]

    def _path(self, key: Mapping[str, Any]) -> Path | None:
        return self._folder / f"{_digest(key)}.json" if self._folder else None


def _digest(key: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
