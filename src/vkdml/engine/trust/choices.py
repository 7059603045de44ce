"""Facts that were found out about a device, kept on disk for later processes: a small file of JSON for each.

A file that cannot be read, or has another content, counts as missing; a fact that cannot be written is not kept. Files and
folders that other users than this one and root could have written are ignored.
Several processes may read and write at once: a file appears whole, or not at all.
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
_MOST_BYTES = 2**20  # of a file
_GAVE_UP = "gave up"
_BELIEVED = 3  # give-ups: a busy machine may cause one
_SECONDS_BELIEVED = 24 * 3600


def folder() -> Path | None:
    """The folder of all devices' files: in XDG_CACHE_HOME, or else in ~/.cache. None: there is no home."""
    return files.cache_folder("tuning")


def count() -> int:
    """How many files there are."""
    place = folder()
    return sum(1 for _ in place.glob("*/*.json")) if place else 0


@cache
def _version() -> str:
    """The versions of the package and of the kernels in it."""
    digest = hashlib.sha256()
    shaders = Path(str(resources.files("vkdml") / "spirv"))
    for path in sorted(shaders.rglob("*.spv")):
        digest.update(path.relative_to(shaders).as_posix().encode() + path.read_bytes())
    return f"{metadata.version('vkdml')} {digest.hexdigest()[:16]}"


class Choices:
    """The choices of one device with its present driver and kernels."""

    def __init__(self, info: DeviceInfo) -> None:
        self._about = {"device": info.name, "driver": info.driver, "driver version": info.driver_version,
                       "driver build": info.pipeline_cache_uuid, "vkdml": _version()}
        place = folder()
        self._folder = place / f"{_readable(info.name)}-{_digest(self._about)}" if place else None
        if self._folder and files.others_write_to(self._folder):
            warnings.warn(f"{self._folder} is ignored: its owner is another user, or others can write to it", RuntimeWarning,
                          stacklevel=2)
            self._folder = None

    def get(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """The value kept under a key of words and numbers; None: there is none."""
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
        """Keep it, in the place of what was there."""
        path = self._path(key)
        if path is None:
            return
        text = json.dumps({"key": {**self._about, **key}, "value": value}, indent=1)
        with suppress(OSError):
            files.write_whole(path, text.encode())

    def count_give_up(self, key: Mapping[str, Any]) -> None:
        """Keep the date of one more attempt that gave up."""
        self.put({**key, _GAVE_UP: True}, {_GAVE_UP: [*self._give_ups(key), time.time()][-_BELIEVED:]})

    def gives_up(self, key: Mapping[str, Any]) -> bool:
        """Whether attempts have given up often enough to expect it again. A day after the last one it is time to try again."""
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


def _readable(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:_NAME_LETTERS].strip("-")
