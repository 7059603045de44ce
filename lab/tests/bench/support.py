"""Small cases and libraries (bench/peers.py) to measure in the benchmark's tests, none of which asserts times."""

from vkdml_lab.bench.cases import Case
from vkdml_lab.bench.peers import Peer, devices, peers

TINY = Case("gru", 3, 2, 4, 8)

KINDS = [TINY, Case("lstm", 3, 2, 4, 8), Case("gru", 3, 2, 4, 8, directions=2), Case("gru", 5, 3, 4, 8, ragged=True),
         Case("gru", 1, 1, 8, 8, streaming=True), Case("gru", 3, 2, 4, 8, linear_before_reset=False)]


def misbehaving(behaviour):
    return Peer(behaviour, "lab.tests.bench.misbehaving", {"behaviour": behaviour}, tolerance=1)


def table():
    return {peer.name: peer for peer in peers(*devices())}
