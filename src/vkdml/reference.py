"""The operators in numpy and float64, written to be read: what the device's results are compared with."""

from . import _publish
from .operators.reference import gru, lstm, rnn, run

__all__ = ["gru", "lstm", "rnn", "run"]

_publish(globals())
