"""The documentation's site: its links lead somewhere, tables keep their cells, a browser shows pages whole, and the reference shows
what users call and nothing else."""

import json
import os
import re
import subprocess
import sys
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import which

import pytest

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
REFERENCE = "tools/docs/reference/"
NAMES = (ROOT / "tests" / "public_names.txt").read_text().split()
WIDE, NARROW = 1400, 380


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "tools/docs", ".", folder], cwd=ROOT, check=True)
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.html")}, folder


def test_links_lead_somewhere(site):
    pages, folder = site
    wrong = []
    for page, text in pages.items():
        for link in re.findall(r'(?:href|src)="(?![a-z]+:|\$)([^"]+)"', text):
            named, _, place = link.partition("#")
            target = os.path.normpath(Path(page).parent / named.partition("?")[0]) if named else page
            if not (folder / target).is_file() or (place and target in pages and f'id="{place}"' not in pages[target]):
                wrong.append((page, link))
    assert not wrong


def test_every_document_is_in_the_list_of_pages(site):
    pages, _ = site
    listed = set(re.findall(r'class="reference internal" href="([^"#]+)"', pages["index.html"]))
    written = {f"{path.relative_to(ROOT).with_suffix('')}.html" for pattern in ("*.md", "docs/**/*.md", "lab/**/README.md")
               for path in ROOT.glob(pattern)} - {"README.html"}
    assert len(written) > 45
    assert written <= listed
    captions = re.findall(r'class="caption-text">([^<]+)', pages["index.html"])
    assert captions[0] == "Begin"
    assert captions[-1].startswith("Contributors: ")
    assert "<h1" in pages["index.html"]


def test_each_document_has_a_description_and_an_icon(site):
    pages, folder = site
    found = {page: re.findall(r'<meta name="description" content="([^"]+)">', text) for page, text in pages.items()
             if (ROOT / Path(page).with_suffix(".md")).is_file()}
    assert len(found) > 45
    assert found.pop("docs/README.html") == []  # it is a table alone
    assert {len(texts) for texts in found.values()} == {1}
    assert len({text for [text] in found.values()}) == len(found)
    assert found["README.html"] == ["vkdml runs the GRU, LSTM and RNN layers of ONNX and PyTorch models on any Vulkan GPU under Linux, from Python."]
    icons = {os.path.normpath(Path(page).parent / link.partition("?")[0]) for page, text in pages.items()
             for link in re.findall(r'<link rel="[a-z ]*icon" href="([^"]+)"', text)}
    assert [folder / icon for icon in icons if (folder / icon).is_file()] == [folder / "_static/icon.svg"]


class Tables(HTMLParser):
    """The numbers of cells in each row of each table: [[2, 2, 2], ...]."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag == "table":
            self.found.append([])
        elif tag == "tr":
            self.found[-1].append(0)
        elif tag in ("th", "td"):
            self.found[-1][-1] += int(dict(attributes).get("colspan", 1))


def written_tables(path):
    """The same numbers of a document's source: a pipe ends a cell, also in code and right behind it, unless it has a backslash."""
    text = re.sub(r"(?ms)^```.*?^```$", "", path.read_text())
    tables = [table.strip().splitlines() for table in re.findall(r"(?m)(?:^\|.*\n)+", text)]
    return [[len(re.findall(r"(?<!\\)\|", row)) - 1 for row in (head, *rows)] for head, _, *rows in tables]


def test_tables_keep_their_cells(site):
    tables = {page: Tables(text).found for page, text in site[0].items()}
    written = {page: written_tables(path) for page in tables if (path := ROOT / Path(page).with_suffix(".md")).is_file()}
    assert sum(map(len, written.values())) > 80
    assert not {page: found for page, found in written.items() if any(len(set(rows)) > 1 for rows in found)}  # as many as the head
    assert {page: tables[page] for page in written} == written


def test_what_users_call_is_there(site):
    names = [*NAMES, "vkdml.DML_GRU_OPERATOR_DESC.Direction", "vkdml.DML_GRU_OPERATOR_DESC.InputTensor",
             "vkdml.GRU.stream", "vkdml.CompiledOperator.input_fields", "vkdml.CompiledGraph.set_name",  # inherited
             "vkdml.DML_ACTIVATION_TANH_OPERATOR_DESC.InputTensor", "vkdml.torch.LSTM.warm_up", "vkdml.onnx.InferenceSession.run"]
    reference = "".join(text for page, text in site[0].items() if page.startswith(REFERENCE))
    assert not [name for name in names if f'id="{name}"' not in reference]


def test_nothing_internal_is_shown(site):
    for page, text in site[0].items():
        if page.startswith(REFERENCE):
            shown = re.sub(r"<[^>]+>", "", text)
            assert not re.findall(r"vkdml\.(?:faces|planning|engine|operators|cli)\.\w+", shown), page
            signatures = re.findall(r'<dt class="sig.*?</dt>', text, re.S)
            assert signatures
            assert not [one for one in signatures if re.search(r"\b(Gpu|OfOneProcess)\b", one)], page
            assert 'id="vkdml.torch.GRU.requires_grad_"' not in text  # PyTorch explains what is PyTorch's


# What a browser lays out

BROWSER = next((str(path) for path in (ROOT / ".vulkan" / "browser", which("chromium"), which("google-chrome"))
                if path and os.access(path, os.X_OK)), None)
MEASURE = """<!doctype html><pre id="found"></pre><script>
const wrong = [], seen = {code: 0, tables: 0, buttons: 0, wide: 0};
function look(page, width, frame) {
  const inside = frame.contentDocument, root = inside.documentElement, said = text => wrong.push(`${page} at ${width}: ${text}`);
  if (root.scrollWidth > width) said(`is ${root.scrollWidth} wide`);
  for (const code of inside.querySelectorAll(".highlight pre")) {
    seen.code++;
    if (code.scrollWidth > code.clientWidth) said(`cuts ${code.innerText.slice(0, 60)}`);
    if (code.parentElement.querySelector("button.copybtn")) seen.buttons++; else said(`copies nothing of ${code.innerText.slice(0, 60)}`);
  }
  for (const table of inside.querySelectorAll("article table")) {
    const around = table.parentElement, scrolls = frame.contentWindow.getComputedStyle(around).overflowX == "auto";
    seen.tables++;
    if (table.offsetWidth > around.clientWidth) { seen.wide++; if (!scrolls) said(`a table runs out: ${table.innerText.slice(0, 60)}`); }
  }
  for (const picture of inside.querySelectorAll("article img"))
    if (!picture.naturalWidth || picture.offsetWidth > inside.querySelector("article").clientWidth) said(`does not fit ${picture.src}`);
  const box = inside.querySelector(width > 1000 ? "input.sidebar-search" : ".mobile-header label");
  if (!box || !box.offsetWidth) said("shows no search, or no way to it");
}
async function all() {
  for (const page of PAGES) for (const width of WIDTHS) {
    const frame = document.createElement("iframe");
    frame.style = `width: ${width}px; height: 800px; border: 0`;
    frame.src = page;
    await new Promise(done => { frame.onload = done; document.body.append(frame); });
    look(page, width, frame);
    frame.remove();
  }
  const search = document.createElement("iframe");
  search.src = "search.html?q=" + WORD;
  document.body.append(search);
  let results = [];
  for (let tries = 0, before = -1; tries < 60 && (!results.length || results.length > before); tries++) {  // they come one by one
    before = results.length;
    await new Promise(done => setTimeout(done, 500));
    results = [...search.contentDocument.querySelectorAll("#search-results li a")].map(link => link.getAttribute("href"));
  }
  fetch("/found", {method: "POST", body: JSON.stringify({wrong, seen, results})});
}
all();
</script>"""


class Server(SimpleHTTPRequestHandler):
    """Serves the site, and takes what the page measured."""

    def do_POST(self):
        self.server.found = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        self.server.has_found.set()

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def seen(site, tmp_path_factory):
    """What a browser finds on all pages, wide and narrow, and when it searches for the name of a variable."""
    if not BROWSER:
        pytest.skip("no browser is here: make vulkan-extras fetches one")
    pages, folder = site
    shown = [page for page in pages if not page.startswith("_") and page not in ("search.html", "genindex.html", "py-modindex.html")]
    (folder / "_measure.html").write_text(
        MEASURE.replace("PAGES", json.dumps(shown)).replace("WIDTHS", f"[{WIDE}, {NARROW}]").replace("WORD", '"VKDML_TUNING"'))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Server, directory=folder)) as server:
        server.has_found = threading.Event()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = subprocess.Popen([BROWSER, "--headless=new", "--no-sandbox", "--remote-debugging-port=0",
                                    f"--user-data-dir={tmp_path_factory.mktemp('browser')}",
                                    f"http://127.0.0.1:{server.server_port}/_measure.html"], stderr=subprocess.DEVNULL)
        try:
            assert server.has_found.wait(280), "the browser said nothing"
        finally:
            browser.terminate()
            browser.wait()
            server.shutdown()
    return server.found


def test_pages_fit_the_window(seen):
    assert not seen["wrong"], "\n".join(seen["wrong"])
    assert seen["seen"]["code"] > 100
    assert seen["seen"]["buttons"] == seen["seen"]["code"]
    assert seen["seen"]["wide"] > 0  # tables that scroll


def test_search_finds_documents(seen):
    assert {"docs/architecture.html", "docs/caches.html", "docs/faces/cli.html"} <= {result.partition("#")[0].partition("?")[0] for result in seen["results"]}
