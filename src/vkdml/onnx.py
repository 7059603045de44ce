from . import _publish
from .faces.onnx import *  # noqa: F403  (the names that it lists)
from .faces.onnx import __all__ as __all__
from .faces.onnx import __doc__ as __doc__
from .faces.onnx import __getattr__ as __getattr__
from .faces.onnx import backend as backend

_publish(globals())

if __name__ == "__main__":  # runs a Python program whose sessions prefer the device
    import os
    import runpy
    import sys

    is_module = sys.argv[1:2] == ["-m"]
    del sys.argv[:1 + is_module]
    if not sys.argv or not (is_module or os.path.exists(sys.argv[0])):
        found = f"no file {sys.argv[0]}" if sys.argv else "neither"
        sys.exit(f"usage: python -m vkdml.onnx [-m MODULE | PROGRAM.py] ARGUMENTS (found {found})")
    prefer()  # noqa: F405
    if is_module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        if not sys.flags.safe_path:
            sys.path[0] = os.path.dirname(os.path.realpath(sys.argv[0]))
        runpy.run_path(os.path.abspath(sys.argv[0]), run_name="__main__")
