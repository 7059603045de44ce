"""Tests suite/plugin.py: which tests of a family (similar tests) `make test` runs, and the order of tests with --quick."""

from types import SimpleNamespace

import pytest

from vkdml_lab.suite.plugin import in_turns, typical


class Test(SimpleNamespace):
    __hash__ = object.__hash__
    __test__ = False


class Member:
    def __init__(self, **params):
        self.callspec = SimpleNamespace(params=params)


def letters(members):
    return {"".join(member.callspec.params.values()) for member in members}


@pytest.mark.parametrize(("columns", "first", "expected"), [
    (["xyz", "ab"], None, {"xa", "yb", "za"}), (["ab", "xyz"], None, {"ax", "by", "az"}), (["x", "abc"], None, {"xa", "xb", "xc"}),
    (["xyz", "ab", "1234"], None, {"xa1", "yb2", "za3", "xb4"}), (["xyz"], None, {"x", "y", "z"}), (["abcd", "xyz"], 2, {"ax", "by"})])
def test_the_diagonal_of_a_grid_has_each_value(columns, first, expected):
    members = [Member()]
    for name, column in enumerate(columns):
        members = [Member(**member.callspec.params, **{str(name): value}) for member in members for value in column]
    assert letters(typical(members, diagonal=first)) == expected


def test_the_first_so_many():
    members = [Member(seed=seed) for seed in "abcde"]
    assert letters(typical(members, 2)) == {"a", "b"}
    assert typical(members, 9) == set(members)


def test_quick_begins_with_all_operators():
    """--quick begins with one test of each function, on varying operators, so that a slow device tests all operators."""
    items = [Test(name=f"test_{function}[{case}-{cell}]", function=function, path=SimpleNamespace(stem=stem))
             for stem, function in (("test_plain", "a"), ("test_reference", "b"), ("test_reference", "c"), ("test_casts", "d"))
             for cell in ("GRU", "LSTM", "RNN") for case in range(3)]
    turns = in_turns(items)
    assert set(turns) == set(items)
    assert [item.function for item in turns[:4]] == ["b", "c", "a", "d"]
    assert [item.name[-5:].strip("]-[0") for item in turns[:4]] == ["LSTM", "RNN", "GRU", "GRU"]
    for start in range(0, 12, 4):
        assert len({item.name[-5:] for item in turns[start:start + 4]}) == 3
