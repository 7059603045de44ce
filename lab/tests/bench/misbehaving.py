"""A worker's library that crashes, gives wrong results, slightly wrong ones (within its tolerance of 1), or refuses."""

import os

import numpy as np

from vkdml_lab.bench.runner import Runner, zero_arrays
from vkdml_lab.processes import UnavailableError


class Library:
    """The library of a worker in these tests. It misbehaves in the given way, for three time steps only."""

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
