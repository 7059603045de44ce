"""Where tests of the runtime do not apply."""

import pytest

from vkdml.runtime.device import HAS_RANGES

needs_ranges = pytest.mark.skipif(not HAS_RANGES, reason="this kp binds whole buffers only: make wheels builds one that does not")
