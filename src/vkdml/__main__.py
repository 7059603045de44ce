"""python -m vkdml: the command `vkdml`."""

from .cli import main

raise SystemExit(main())
