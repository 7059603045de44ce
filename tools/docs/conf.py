"""The site of documents, as Sphinx makes it: `make docs` runs `sphinx-build -c tools/docs . docs/api`."""

from __future__ import annotations

import enum
import inspect
import shutil
import textwrap
import typing
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

import vkdml

HERE = Path(__file__).parent

project = author = "vkdml"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "lab/**README.md", "shaders/README.md", "tools/kp/README.md",
                    "tools/docs/reference/*"]
exclude_patterns = [".*", "**/build", "**/*.egg-info", "docs/api"]
suppress_warnings = ["ref.ref"]  # onnxruntime's, PyTorch's and numpy's docstrings name parts of their own documents
myst_heading_anchors = 6

html_theme = "furo"
html_title = "vkdml"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_favicon = "static/icon.svg"
html_copy_source = False

default_role = "py:obj"  # docstrings write `name`
OTHERS = "BaseException, Enum, Module, OnnxRuntimeBackend, Session, int, ndarray, object"  # their members are not ours
autodoc_default_options = {"members": True, "undoc-members": True, "inherited-members": OTHERS}
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
napoleon_use_param = False
python_use_unqualified_type_names = True


def setup(app: Sphinx) -> None:
    app.connect("source-read", _add_lists)
    app.connect("autodoc-skip-member", lambda app, what, name, thing, *others: _takes_inner_objects(thing) or None)
    app.connect("autodoc-process-signature", _without_constructor)
    app.connect("html-page-context", _describe)
    app.connect("build-finished", _make_first_page)


def _add_lists(app: Sphinx, document: str, text: list[str]) -> None:
    """Add the list of all pages, which GitHub's readers do not need, and constants, of which autodoc shows none."""
    if document == root_doc:
        text[0] += (HERE / "contents.txt").read_text()
    if document.endswith("/vkdml"):
        numbers = {name: getattr(vkdml, name) for name in vkdml.__all__ if isinstance(getattr(vkdml, name), int)}
        text[0] += "".join(f"\n.. py:data:: {name}\n   :value: {number:d}\n" for name, number in numbers.items())


def _takes_inner_objects(thing: Any) -> bool:
    """Whether a function takes objects of the engine that users do not have."""
    hints = typing.get_type_hints(thing).values() if inspect.isfunction(thing) else ()
    return any("vkdml.engine." in inspect.formatannotation(hint) for hint in hints)


def _without_constructor(app: Sphinx, what: str, name: str, thing: Any, *others: Any) -> tuple[str, str] | None:
    """Leave out the arguments of enumerations and of what other calls make."""
    is_made = what == "class" and (issubclass(thing, enum.Enum) or "Made by" in str(thing.__doc__)
                                   or _takes_inner_objects(thing.__init__))
    return ("", "") if is_made else None


def _describe(app: Sphinx, page: str, template: str, context: dict[str, Any], document: nodes.document | None) -> None:
    """Give search engines the beginning of a document."""
    paragraphs = document.findall(nodes.paragraph) if document else ()
    if first := next((one for one in paragraphs if isinstance(one.parent, nodes.section)), None):
        text = textwrap.shorten(first.astext(), 160, placeholder=" ...")
        context["metatags"] += f'<meta name="description" content="{escape(text)}">'


def _make_first_page(app: Sphinx, error: Exception | None) -> None:
    if not error:
        shutil.copyfile(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")
