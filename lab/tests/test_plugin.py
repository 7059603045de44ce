"""Which members of a family `make test` runs."""

from types import SimpleNamespace

import pytest

from vkdml_lab.suite.plugin import typical


class Member:
    def __init__(self, **params):
        self.callspec = SimpleNamespace(params=params)


def letters(members):
    return {"".join(member.callspec.params.values()) for member in members}


@pytest.mark.parametrize(("columns", "expected"), [
    (["xyz", "ab"], {"xa", "yb", "za"}), (["ab", "xyz"], {"ax", "by", "az"}), (["xyz", "ab", "1234"], {"xa1", "yb2", "za3", "xb4"}),
    (["x", "abc"], {"xa", "xb", "xc"}), (["xyz"], {"x", "y", "z"})])
def test_the_diagonal_of_a_grid_has_each_value(columns, expected):
    members = [Member()]
    for name, column in enumerate(columns):
        members = [Member(**member.callspec.params, **{str(name): value}) for member in members for value in column]
    assert letters(typical(members, None)) == expected


def test_the_first_so_many():
    members = [Member(seed=seed) for seed in "abcde"]
    assert letters(typical(members, 2)) == {"a", "b"}
    assert typical(members, 9) == set(members)
