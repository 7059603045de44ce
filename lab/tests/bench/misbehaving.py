"""A stand-in for a library in the benchmark's tests: it crashes, refuses cases, or gives wrong or inexact results."""

import os

import numpy as np

from vkdml_lab.bench.runner import Runner, zero_arrays
from vkdml_lab.processes import UnavailableError


class Library:
    """A library that misbehaves as `behaviour` says: "crash" (abort) or "refuse" (ValueError) in cases of three time steps;
    "wrong" (all results are NaN); "rough" (all are 0, so errors are below 1); "unavailable" (the constructor fails).
    """

    def __init__(self, behaviour):
        self.description = {"version": "1", "device": "none"}
        if behaviour == "unavailable":
            raise UnavailableError("no such device")
        self.result = np.nan if behaviour == "wrong" else 0
        self.behave = {"crash": os.abort, "wrong": lambda: None, "rough": lambda: None, "refuse": self.refuse}[behaviour]

    def refuse(self):
        raise ValueError("three steps\nare too many")

    def prepare(self, case):
        if case.steps == 3:
            self.behave()
        outputs = [np.full(shape, self.result, np.float32) for shape in case.output_shapes]
        return {"host": Runner(case, lambda *states: outputs, lambda: zero_arrays(case), list)}

    def ways(self, case):
        return {"host": lambda: self.prepare(case)["host"]}
