"""Kompute's Python package kp, with the patches of tools/kp/, as tools/build_kp.py builds it. It has no types of its own."""

from typing import Any

def __getattr__(name: str) -> Any: ...
