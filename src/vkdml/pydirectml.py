"""The public name of faces/pydirectml: PyDirectML scripts."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .faces.pydirectml import *  # noqa: F403  (the names that it lists)
else:
    from .faces import pydirectml

    sys.modules[__name__] = pydirectml
