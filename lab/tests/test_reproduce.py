"""Tests `vkdml reproduce`, which runs one test of the suite again in a process of its own."""

import pytest

from vkdml import cli

pytestmark = pytest.mark.device


def test_a_test_runs_again(capsys):
    assert cli.main(["reproduce", "suite/test_reference.py::test_schedule[chunked-LSTM]"]) == 0
    assert "1 passed, 0 failed" in capsys.readouterr().out


@pytest.mark.thorough
def test_what_cannot_be_reproduced(capsys):
    assert cli.main(["reproduce", "suite/test_reference.py::test_nothing"]) == 2
    assert "CASE: found 'suite/test_reference.py::test_nothing'; expected a test of the suite" in capsys.readouterr().err
