"""What the process keeps, and what it drops."""

import sys

import pytest

import vkdml
from tests.threads import together
from vkdml.engine.vulkan.store import Lease, Recent, Store


def keys(store):
    return "".join(key[0] for key in store._entries)


def put(store, names, lease=None):
    for name in names:
        store.get((name,), lambda name=name: name.upper(), 10, lease)


def test_what_was_not_used_for_the_longest_is_dropped():
    store = Store(30)
    put(store, "abcad")
    assert (keys(store), store.size, len(store._entries)) == ("cad", 30, 3)
    assert store.get(("a",), lambda: pytest.fail("it is there"), 10) == "A"
    store.limit = 10
    store.drop_oldest()
    assert (keys(store), store.size) == ("a", 10)


def test_a_failure_leaves_nothing_behind():
    store = Store(30)
    with pytest.raises(ZeroDivisionError):
        store.get(("a",), lambda: 1 / 0, 10)
    assert (len(store._entries), store.size) == (0, 0)


def test_a_user_is_told_once_a_part_of_its_is_dropped():
    store, lost = Store(40), []
    first, second = (Lease(store, lambda name=name: lost.append(name)) for name in ("first", "second"))
    put(store, "ab", first)
    put(store, "bc", second)
    store.use(first.keys)
    assert keys(store) == "cab"
    put(store, "xy")
    assert (lost, keys(store)) == (["second"], "abxy")
    assert not second.keys
    put(store, "z")
    assert (lost, keys(store)) == (["second", "first"], "bxyz")


def test_renewed_again_and_again_with_others_between():
    store = Store(30)
    first, second = Lease(store, list), Lease(store, list)
    put(store, "a", first)
    put(store, "b", second)
    for lease, order in ((first, "ba"), (first, "ba"), (second, "ab"), (first, "ba")):
        store.use(lease.keys)
        assert keys(store) == order
    put(store, "c")
    store.use(first.keys)
    assert keys(store) == "bca"


def test_what_a_user_gave_back_is_dropped_without_telling():
    store = Store(20)
    lease = Lease(store, lambda: pytest.fail("freed"))
    put(store, "ab", lease)
    del lease.keys["a",]
    put(store, "c")
    assert keys(store) == "bc"
    store.use(lease.keys)
    assert keys(store) == "cb"


def test_one_user_may_have_more_than_the_limit():
    """Until somebody else needs something."""
    store, lost = Store(20), []
    lease = Lease(store, lambda: lost.append(True))
    put(store, "abc", lease)
    assert (keys(store), lost) == ("abc", [])
    put(store, "d")
    assert (keys(store), lost) == ("cd", [True])


def test_users_that_are_gone_are_not_told():
    store = Store(10)
    put(store, "a", Lease(store, lambda: pytest.fail("freed")))
    put(store, "b")
    assert keys(store) == "b"


@pytest.mark.parametrize("limit", [-1, 1e9, "1", True])
@pytest.mark.parametrize("name", ["cache_limit", "memory_limit"])
def test_wrong_limits_of_a_device_are_refused(device, name, limit):
    with pytest.raises(vkdml.InvalidArgumentError, match=f"{name}: found"):
        setattr(device, name, limit)


class Slow:
    """A key whose comparison lets other threads run."""

    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        sum(range(200))
        return self.number == other.number

    def __hash__(self):
        return self.number


def test_threads_with_keys_of_their_own_get_their_own_values():
    """As calls on several devices do, at the same time: also while few are kept."""
    recent, wrong, interval = Recent(3), [], sys.getswitchinterval()

    def ask(number):
        for _ in range(3000):
            found = recent.get(Slow(number), lambda: number)
            if found != number:
                wrong.append((number, found))

    sys.setswitchinterval(1e-6)
    try:
        together(4, ask)
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
    assert len(recent._values) <= 3
