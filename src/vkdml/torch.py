from . import _publish
from .faces.torch import *  # noqa: F403  (the names that it lists)
from .faces.torch import __all__ as __all__
from .faces.torch import __doc__ as __doc__

_publish(globals())
