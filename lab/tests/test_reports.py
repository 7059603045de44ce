"""Tests vkdml_lab/reports.py: tables, lists and files."""

import json

from vkdml_lab import reports


def test_tables():
    rows = [{"name": "a | b\nc", "ms": 1.23456, "n": 2, "nothing": None, "share": 0.25}, {"name": "d", "ms": float("nan"), "n": 10, "more": 1}]
    assert reports.table(rows, {"share": ".0%"}).splitlines() == [
        "| name    |    ms |   n | nothing   |   share |   more |",
        "|---------|-------|-----|-----------|---------|--------|",
        "| a / b c | 1.235 |   2 |           |     25% |        |",
        "| d       |       |  10 |           |         |      1 |"]
    assert reports.table(rows, {"name": ".3"}, {"what": "name"}).splitlines()[2:] == ["| a /    |", "| d      |"]
    assert reports.table([]) == ""


def test_what_is_written_is_whole(tmp_path):
    text = reports.document("# Title", "", reports.bullets("Failed:", ["one", "two", "three"], 2), reports.bullets("None:", []))
    reports.write(tmp_path / "new", {"a.md": text, "a.json": [1]})
    assert text == "# Title\n\nFailed:\n\n- one\n- two\n- and 1 more\n"
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"a.md", "a.json"}
    assert (tmp_path / "new" / "a.md").read_text() == text
    assert json.loads((tmp_path / "new" / "a.json").read_text()) == [1]
