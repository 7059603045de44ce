"""Writes the documentation as a site: the documents, README.md first, and a reference of the Python interface.

    python -m tools.docs [FOLDER]        docs/api by default
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
import sys
import typing
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any

import pdoc
from markupsafe import Markup

ROOT = Path(__file__).resolve().parents[2]
MODULES = ["vkdml", "vkdml.onnx", "vkdml.torch", "vkdml.pydirectml", "vkdml.errors", "vkdml.reference"]
FIRST = "README.md"
PAGES = ["docs/README.md", "docs/install.md", "docs/new-gpu.md", "docs/gpu/*.md", "docs/recipes/*.md", "docs/faces/*.md",
         "docs/gru.md", "docs/caches.md", "docs/*.md", "docs/kernels/*.md", "shaders/README.md", "tools/kp/README.md",
         "lab/README.md", "lab/vkdml_lab/radeon/README.md", "docs/bench/*.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
APART = ["docs/notebook.md"]  # for developers: a file beside the pages
_LINK = re.compile(r'(href|src)="(?![a-z]+:|#)([^"#]+)(#[^"]*)?"')
_OURS = re.compile(r"\bvkdml\.(?:faces|planning|engine|operators)\.[\w.]*?(\w+)(?![\w.])")
_OF_ENGINE = re.compile(r"\bvkdml\.engine\.[\w.]*?(\w+)(?![\w.])")


def write(folder: Path) -> None:
    paths = pages()
    env = pdoc.render.env
    pdoc.render.configure(docformat="google", show_source=False, template_directory=Path(__file__).parent)
    env.globals["documents"] = [(site_path(path), title(path)) for path in paths]
    public = {f"{cls.__module__}.{cls.__qualname__}" for cls in classes()}
    env.globals["public"] = public
    _show_what_is_inherited(public)
    _leave_out_what_is_internal()
    rendered = {path: env.filters["to_html"]((ROOT / path).read_text()) for path in paths}
    env.globals["readme"] = Markup(_with_links(FIRST, rendered[FIRST], folder))
    pdoc.pdoc(*MODULES, output_directory=folder)  # with README.md as index.html
    for page in (folder / "vkdml").rglob("*.html"):
        page.write_text(_without_dead_links(page.read_text()))
    for path in paths[1:]:
        target = folder / site_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        up = "../" * path.count("/")
        content = Markup(_with_links(path, rendered[path], folder))
        target.write_text(env.get_template("document.html.jinja2").render(
            content=content, up=up, name=title(path), all_modules=MODULES))


def _without_dead_links(page: str) -> str:
    """The page without links to places that it lacks: onnxruntime's docstrings name methods that this reference leaves out."""
    places = set(re.findall(r'id="([^"]+)"', page))
    return re.sub(r'<a href="#([^"]+)">(.*?)</a>', lambda link: link[0] if link[1] in places else link[2], page)


def pages() -> list[str]:
    """The documents' paths, in the order of the sidebar."""
    found = [FIRST, *(str(path.relative_to(ROOT)) for pattern in PAGES for path in sorted(ROOT.glob(pattern)))]
    return [path for path in dict.fromkeys(found) if path not in APART]


def site_path(path: str) -> str:
    return "index.html" if path == FIRST else str(Path(path).with_suffix(".html"))


def title(path: str) -> str:
    return (ROOT / path).read_text().partition("\n")[0].lstrip("# ").replace("`", "")


def _with_links(path: str, page: str, folder: Path) -> str:
    """A page whose links lead to the other pages, and to copies of what else it names: pictures and sources."""
    def linked(match: re.Match[str]) -> str:
        named = os.path.normpath(Path(path).parent / match[2])
        if (ROOT / named).is_dir():
            named += "/README.md"
        if named.endswith(".md") and named not in APART:
            if not (ROOT / named).is_file():
                return ""
            named = site_path(named)
        elif (ROOT / named).is_file():
            (folder / named).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / named, folder / named)
        return f'{match[1]}="{os.path.relpath(named, Path(path).parent)}{match[3] or ""}"'

    return _LINK.sub(linked, page)


def things() -> Iterator[tuple[str, Any]]:
    """All that the modules offer, by name."""
    for name in MODULES:
        module = importlib.import_module(name)
        yield from ((public, getattr(module, public)) for public in getattr(module, "__all__", ()))


def classes() -> list[type[Any]]:
    """The classes that the modules offer."""
    return [thing for _, thing in things() if inspect.isclass(thing)]


def _show_what_is_inherited(public: Container[str]) -> None:
    """Give classes the members that they inherit from a class without a page of its own."""
    for cls in classes():
        for base in cls.__mro__[1:]:
            if base.__module__.startswith("vkdml") and f"{base.__module__}.{base.__qualname__}" not in public:
                without_default = dict.fromkeys(inspect.get_annotations(base), inspect.Signature.empty)
                for name, member in (without_default | dict(vars(base))).items():
                    is_told = not inspect.isfunction(member) or member.__doc__
                    if is_told and not name.startswith("_") and name not in vars(cls):
                        setattr(cls, name, member)


def _leave_out_what_is_internal() -> None:
    """Hide what takes objects of the engine that users do not have, constructors of what other calls make, and rooms' names."""
    names = {cls.__name__ for cls in classes()}
    for cls in classes():
        for name, method in vars(cls).items():
            hints = typing.get_type_hints(method).values() if inspect.isfunction(method) else ()
            taken = {found[1] for hint in hints for found in _OF_ENGINE.finditer(inspect.formatannotation(hint))}
            if not taken <= names or (name == "__init__" and "Made by" in (cls.__doc__ or "")):
                method.__doc__ = "@private"
    shown: Callable[[Any], str] = inspect.formatannotation
    modules: tuple[Any, ...] = (inspect, pdoc.doc)
    for module in modules:
        module.formatannotation = lambda annotation, *others: _OURS.sub(r"\1", shown(annotation, *others))


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "api"
    write(place)
    print(f"the documentation is in {place / 'index.html'}")
