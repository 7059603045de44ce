"""A library for the benchmark's tests that crashes, refuses, or gives results that are wrong or inexact (off by under 1)."""

import os

import numpy as np

from vkdml_lab.bench.runner import Runner, zero_arrays
from vkdml_lab.processes import UnavailableError


class Library:
    """Crashes or refuses cases of three time steps, or gives NaN ("wrong") or 0 ("rough"), as the argument `behaviour` says."""

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
