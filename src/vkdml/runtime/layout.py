"""Where a network has its buffers: all of it is known before any of them is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from .device import Gpu
from .scratch import Place, bytes_at


@dataclass(frozen=True)
class Layout:
    """tensors: by the network's names. own: what each node alone needs, by the plan's names; the next one may have it after it.
    packing: weights of nodes, by node and field, while they are packed. kept: bytes of buffers that are nobody else's, by name.
    """

    tensors: Mapping[str, Place]
    own: Sequence[Mapping[str, Place]]
    packing: Mapping[int, Mapping[str, Place]]
    kept: Mapping[str, int]

    def sizes(self, gpu: Gpu) -> Counter[str]:
        """Bytes of all, by name. What has the same place counts once."""
        sizes, seen = Counter(self.kept), set[Place]()
        for name, place in self._places():
            if place not in seen:
                sizes[name] += bytes_at(gpu, place)
                seen.add(place)
        return sizes

    def _places(self) -> Iterator[tuple[str, Place]]:
        return chain.from_iterable(places.items() for places in (self.tensors, *self.own, *self.packing.values()))
