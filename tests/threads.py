"""Threads that begin together."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier


def together(count, work):
    """What so many threads get from work(number of the thread); an exception of theirs is raised."""
    with ThreadPoolExecutor(count, initializer=Barrier(count).wait) as pool:
        return list(pool.map(work, range(count)))
