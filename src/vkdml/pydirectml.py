from typing import Any

from . import _publish
from .faces import pydirectml as _face
from .faces.pydirectml import *  # noqa: F403  (the names that it lists)
from .faces.pydirectml import __all__ as __all__
from .faces.pydirectml import __doc__ as __doc__

_publish(globals())


def __getattr__(name: str) -> Any:
    """What it has besides: members of enumerations, and operators that refuse."""
    return getattr(_face, name)
