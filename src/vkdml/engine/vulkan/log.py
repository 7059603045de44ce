"""What is logged: Python's loggers "vkdml.…", one for each module that logs, under "vkdml".

info: what takes long or is rare: devices opened, pipelines compiled, plans timed, what was dropped from the store. debug: each
plan and each submission. warning: what gave up. error: a lost device. Who handles them is the application's to say, unless
VKDML_LOG sends them to stderr.
"""

from __future__ import annotations

import logging
import os

from ...errors import InvalidArgumentError

_ROOT = logging.getLogger("vkdml")
_ROOT.addHandler(logging.NullHandler())

_STDERR = logging.StreamHandler()
_STDERR.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))

LEVELS = {"info": logging.INFO, "debug": logging.DEBUG}


def obey_environment() -> None:
    """VKDML_LOG: what is logged of this level and above goes to stderr, and nowhere else. Raises InvalidArgumentError for what
    is no level.
    """
    name = os.environ.get("VKDML_LOG")
    if not name:
        return
    if name not in LEVELS:
        raise InvalidArgumentError("Device", "VKDML_LOG", repr(name), "one of " + ", ".join(LEVELS))
    _ROOT.setLevel(LEVELS[name])
    _ROOT.propagate = False
    _ROOT.addHandler(_STDERR)
