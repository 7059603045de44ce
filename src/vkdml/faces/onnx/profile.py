"""Profiles of sessions: one file of what onnxruntime's sessions wrote for their parts, and of the recurrent nodes.

Source: the events that onnxruntime writes, those of Chrome's trace format; times in microseconds from the profile's start.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnxruntime

Event = dict[str, Any]


class Profile:
    """A profile while it is written. front: the session that names the file."""

    def __init__(self, front: onnxruntime.InferenceSession) -> None:
        self._front = front
        self._parts: list[onnxruntime.InferenceSession] = []
        self._nodes: list[Event] = []
        self._folder = Path.cwd()  # onnxruntime has opened its files there
        self._start = start = front.get_profiling_start_time_ns()
        # The start is by one of these clocks: the one in onnxruntime's documentation, or the other from libstdc++
        self._clock = min((time.monotonic_ns, time.time_ns), key=lambda clock: abs(clock() - start))

    def add(self, part: onnxruntime.InferenceSession) -> None:
        self._parts.append(part)

    @contextmanager
    def node(self, name: str, op_type: str, provider: str) -> Iterator[None]:
        """Time a run of a node that onnxruntime does not know of."""
        begin = self._clock()
        yield
        end = self._clock()
        self._nodes.append({
            "cat": "Node", "pid": os.getpid(), "tid": threading.get_native_id(), "dur": (end - begin) // 1000,
            "ts": (begin - self._start) // 1000, "ph": "X", "name": f"{name}_kernel_time",
            "args": {"op_name": op_type, "provider": provider}})

    def end(self) -> str:
        """Write the file. Returns its name; "" if it is written already."""
        name = self._front.end_profiling()
        if not name:
            return ""
        path = self._folder / name
        events = json.loads(path.read_text()) + self._nodes
        for part in self._parts:
            later = (part.get_profiling_start_time_ns() - self._start) // 1000
            file = self._folder / part.end_profiling()
            events += [{**event, "ts": event["ts"] + later} for event in json.loads(file.read_text())]
            file.unlink()
        lines = map(json.dumps, sorted(events, key=lambda event: event["ts"]))
        path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
        return name
