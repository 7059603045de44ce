from .faces.dxdispatch import *  # noqa: F403  (the names that it lists)
from .faces.dxdispatch import __all__ as __all__
from .faces.dxdispatch import __doc__ as __doc__
