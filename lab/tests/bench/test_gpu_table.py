"""Tests bench.gpu_table, which reads the tables of times in docs/gpu/ and draws pictures of their ratios."""

import re
from pathlib import Path

import pytest

from vkdml_lab.bench import gpu_table

FOLDER = Path(__file__).parents[3] / "docs" / "gpu"
PAGES = sorted(FOLDER.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_ratios_of_a_page_are_those_of_its_times(page):
    text = page.read_text()
    rows = gpu_table.ratios(text)
    assert len(rows) == len(re.findall(r"^\|(?:GRU|LSTM|RNN) ", text, re.M)) > 0
    for row in rows:
        cells = text.split(f"|{row.problem}|")[1].split("|")
        assert (row.device, row.host) == pytest.approx((float(cells[2]), float(cells[5])), rel=0.05)
    assert f"]({page.stem}.png)" in text
    assert page.with_suffix(".png").exists()


def test_a_table_is_drawn(tmp_path):
    gpu_table.draw(gpu_table.ratios("|GRU (1,1,2,2)|57|1,079|1.4|76|135|1.8|\n|LSTM (1,1,2,2), lengths|2|1|0.5|2|2|1| | |\n"), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
