"""Models a heap (a shared buffer) for heaps.py: its bytes on the host and on the device, and which of the two are newer."""

import numpy as np

SAME, HOST, DEVICE, UNKNOWN = range(4)  # which side has a newer byte


class Memory:
    """Expected contents of a heap. host, device: bytes of each side; the same array if both share memory. host_known,
    device_known: whether the model knows each byte. newer: for each byte, which side is newer: SAME, HOST, DEVICE or UNKNOWN.
    """

    def __init__(self, content, is_shared):
        self.is_shared, self.is_exposed = is_shared, False
        self.host, self.host_known = content.copy(), np.ones(content.size, bool)
        self.device, self.device_known = ((self.host, self.host_known) if is_shared
                                          else (self.host.copy(), self.host_known.copy()))
        self.newer = np.full(content.size, SAME)

    def write(self, part, content):
        self.host[part], self.host_known[part], self.newer[part] = content, True, HOST

    def compute(self, part, content):
        """Note that a dispatch writes bytes on the device. part: a slice. content: the bytes, or None if they are unknown."""
        self.device_known[part], self.newer[part] = content is not None, DEVICE
        if content is not None:
            self.device[part] = content

    def work(self, part):
        """Note that a dispatch uses bytes as a temporary or persistent resource, so that they are unknown. part: a slice."""
        self.device_known[part], self.newer[part] = False, UNKNOWN

    def expose(self):
        self.is_exposed = True
        self.newer[self.newer == SAME] = HOST

    def poke(self, part, content):
        """Note that the host writes through an array of Buffer.host(). vkdml does not see such writes, so `newer` stays."""
        self.host[part], self.host_known[part] = content, True

    def upload(self):
        if not self.is_shared:
            by_host, by_device, unknown = (self.newer == who for who in (HOST, DEVICE, UNKNOWN))
            self.device[by_host], self.device_known[by_host] = self.host[by_host], self.host_known[by_host]
            self._bring(by_device)
            self.host_known[unknown] = False
            self._copied(unknown)

    def readback(self):
        if not self.is_shared:
            unknown = self.newer == UNKNOWN
            self._bring((self.newer == DEVICE) | (self.newer == SAME))
            self.host_known[unknown] = False
            self._copied(unknown | (self.newer == HOST))

    def _bring(self, where):
        self.host[where], self.host_known[where] = self.device[where], self.device_known[where]

    def _copied(self, but):
        self.newer[~but] = HOST if self.is_exposed else SAME

    def forget_host(self):
        """Mark the host's bytes as unknown where the device's may be newer: a refused upload may have copied those here."""
        if not self.is_shared:
            self.host_known[(self.newer == DEVICE) | (self.newer == UNKNOWN)] = False
