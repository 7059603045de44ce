"""The public name of faces/torch: PyTorch modules."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .faces.torch import *  # noqa: F403  (the names that it lists)
else:
    from .faces import torch

    sys.modules[__name__] = torch
