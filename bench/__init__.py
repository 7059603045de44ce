"""`python -m bench` in a checkout is `python -m vkdml_lab.bench`."""

from vkdml_lab import bench

__path__ = bench.__path__
