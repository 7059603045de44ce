"""An hour of random calls over all faces, right ones, broken ones and with a driver that fails, and what grows meanwhile."""
