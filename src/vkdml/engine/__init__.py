"""The engine records plans as commands and executes them on a device."""
