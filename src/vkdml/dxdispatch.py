"""The public name of faces/dxdispatch: DxDispatch's JSON models."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .faces.dxdispatch import *  # noqa: F403  (the names that it lists)
else:
    from .faces import dxdispatch

    sys.modules[__name__] = dxdispatch
