"""What each option forces of a tiling: it runs as forced, or is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from .options import Options
from .tiling import Tiling

# The options that are bounds are not here: every tiling is within them. Families that know no such thing have what stands last
_PROPERTIES: dict[str, Callable[[Tiling], Any]] = {
    "schedule": lambda tiling: tiling.loop.schedule,
    "parts": lambda tiling: tiling.loop.parts,
    "fused": lambda tiling: tiling.projection is None,
    "lanes": lambda tiling: tiling.loop.properties.get("lanes", False),
    "resident": lambda tiling: tiling.loop.properties.get("resident", False),
    "rows": lambda tiling: tiling.loop.rows,
    "units_at_once": lambda tiling: tiling.loop.units_at_once,
    "workgroup": lambda tiling: tiling.loop.workgroup,
    "shared_state": lambda tiling: tiling.loop.shared_state,
    "meeting": lambda tiling: tiling.loop.meeting,
    "register_loads": lambda tiling: tiling.loop.properties.get("register_loads", 0),
    "shared_loads": lambda tiling: tiling.loop.properties.get("shared_loads", 0),
}


def forced(options: Options) -> dict[str, Any]:
    """The options that are not left to the plan."""
    return {field.name: getattr(options, field.name) for field in fields(Options)
            if getattr(options, field.name) != field.default}


def forces_bounds_only(options: Options) -> bool:
    """Whether every tiling has what is forced."""
    return not forced(options).keys() & _PROPERTIES.keys()


def has_all(tiling: Tiling, options: Options) -> bool:
    """Whether a tiling has all that is forced."""
    return all(getattr(options, name) in (None, of_tiling(tiling)) for name, of_tiling in _PROPERTIES.items())


def allowed(name: str, tilings: Iterable[Tiling]) -> str:
    """What the option could be, so that one of the tilings is left."""
    if name not in _PROPERTIES:
        least = min(tiling.projection.step_bytes for tiling in tilings if tiling.projection)
        return f"at least {least}, the projection of one time step,"
    values = sorted({_PROPERTIES[name](tiling) for tiling in tilings})
    return " or ".join(map(repr, values))
