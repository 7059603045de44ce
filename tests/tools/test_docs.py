"""The documentation's site: its links lead somewhere, and it shows what users call and nothing else."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.device, pytest.mark.thorough]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("pdoc")
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "-m", "tools.docs", folder], cwd=ROOT, check=True)
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.html")}, folder


def test_links_lead_somewhere(site):
    pages, folder = site
    wrong = []
    for page, text in pages.items():
        for link in re.findall(r'(?:href|src)="(?![a-z]+:|\$)([^"]+)"', text):
            named, _, place = link.partition("#")
            target = os.path.normpath(Path(page).parent / named) if named else page
            if not (folder / target).is_file() or (place and target in pages and f'id="{place}"' not in pages[target]):
                wrong.append((page, link))
    assert not wrong


def test_the_notebook_is_a_file_beside_the_pages(site):
    pages, folder = site
    assert "docs/notebook.html" not in pages
    assert 'href="notebook.md' in pages["docs/README.html"]
    assert (folder / "docs" / "notebook.md").is_file()


def test_the_first_page_is_the_readme(site):
    pages, _ = site
    assert "<h1" in pages["index.html"]
    assert "Where a GPU pays" in pages["index.html"]
    for module in ("vkdml", "vkdml/onnx", "vkdml/torch", "vkdml/pydirectml", "vkdml/errors"):
        assert f'href="{module}.html"' in pages["index.html"]
    assert 'href="../vkdml/torch.html"' in pages["vkdml/onnx.html"]
    assert 'href="../docs/faces/numpy.html"' in pages["vkdml/onnx.html"]


def test_pictures_are_no_wider_than_the_page(site):
    assert re.search(r"\.pdoc img\s*\{\s*max-width:\s*100%", site[0]["docs/performance.html"])
    assert "<img" in site[0]["docs/performance.html"]


@pytest.mark.parametrize(("module", "name"), [
    ("vkdml", "DML_GRU_OPERATOR_DESC"), ("vkdml/onnx", "InferenceSession"), ("vkdml/pydirectml", "lstm"),
    ("vkdml", "GRU.stream"), ("vkdml", "CompiledOperator.input_fields"), ("vkdml", "CompiledGraph.set_name"),  # inherited
    ("vkdml", "DML_GRU_OPERATOR_DESC.Direction"), ("vkdml", "DML_GRU_OPERATOR_DESC.InputTensor"),
    ("vkdml", "DML_ACTIVATION_TANH_OPERATOR_DESC.InputTensor"), ("vkdml/torch", "LSTM.warm_up")])
def test_what_users_call_is_there(site, module, name):
    assert f'id="{name}"' in site[0][f"{module}.html"]


def test_convert_is_before_its_twins(site):
    page = site[0]["vkdml/torch.html"]
    assert page.index('<section id="convert">') < page.index('<section id="GRU">')


def test_nothing_internal_is_shown(site):
    for page, text in site[0].items():
        if page.startswith("vkdml"):
            shown = re.sub(r"<[^>]+>", "", text)
            assert not re.findall(r"vkdml\.(?:faces|planning|engine|operators|cli)\.\w+", shown), page
    signatures = re.findall(r'<div class="attr.*?</div>', site[0]["vkdml.html"], re.S)
    assert len(signatures) > 100
    assert not [signature for signature in signatures if ">Gpu<" in signature or "OfOneProcess" in signature]
