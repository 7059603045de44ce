"""The thread for executions in the background."""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from vkdml.engine.vulkan.driver import Background


def test_work_is_done_in_order_by_one_thread():
    background, done = Background(), []
    with ThreadPoolExecutor(8) as pool:
        futures = list(pool.map(lambda number: background.submit(lambda: done.append((number, threading.get_ident()))), range(200)))
    for future in futures:
        future.result(60)
    assert sorted(number for number, _ in done) == list(range(200))
    assert len({thread for _, thread in done}) == 1
    futures = [background.submit(lambda number=number: done.append(number)) for number in range(200)]
    futures[-1].result(60)
    assert done[200:] == list(range(200))


def test_the_thread_goes_once_it_has_done_all():
    background, begin, done = Background(), threading.Event(), []
    futures = [background.submit(begin.wait), background.submit(lambda: done.append(threading.current_thread()))]
    del background
    gc.collect()
    begin.set()
    futures[1].result(60)
    done[0].join(60)
    assert not done[0].is_alive()


def test_an_interrupted_start_leaves_no_thread(monkeypatch):
    background, started, really = Background(), [], threading.Thread.start

    def start(thread):
        really(thread)
        started.append(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(threading.Thread, "start", start)
        with pytest.raises(KeyboardInterrupt):
            background.submit(lambda: pytest.fail("its future is dropped"))
    started[0].join(60)
    assert not started[0].is_alive()
    background.submit(lambda: None).result(60)
