"""Prepares the report's folder for sending: removes absolute paths and names of user and host, and packs the folder."""

from __future__ import annotations

import getpass
import json
import platform
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vkdml_lab.reports import parsed

TEXTS = {".md", ".txt", ".json", ".jsonl"}
A_PATH = re.compile(r"(?<![\w.:/~<-])(?:/[\w.+@~-]+)+/([\w.+@~-]+)")
ANYONE = {"", "root", "user", "test", "admin", "runner", "ubuntu", "debian", "localhost"}


def clean(folder: Path) -> None:
    """Replace absolute paths, the user's name and the machine's name in all text files of a report."""
    private = [re.escape(name) for name in {user(), platform.node(), platform.node().partition(".")[0]} if name not in ANYONE]
    words = re.compile(rf"(?<!\w)(?:{'|'.join(private)})(?!\w)") if private else None

    def text(said: str) -> str:
        said = A_PATH.sub(r".../\1", said)
        return words.sub("(private)", said) if words else said

    for path in folder.rglob("*"):
        if path.is_file() and path.suffix in TEXTS:
            before = path.read_text(errors="replace")
            after = cleaned(path.suffix, before, text)
            if after != before:
                path.write_text(after)


def cleaned(suffix: str, said: str, text: Callable[[str], str]) -> str:
    """Return `said`, a file's text, with private names replaced by `text`; in JSON, only values change. suffix: the file's."""
    if suffix not in (".json", ".jsonl"):
        return text(said)

    def value(found: Any) -> Any:
        if isinstance(found, dict):
            return {key: value(one) for key, one in found.items()}
        return [value(one) for one in found] if isinstance(found, list) else text(found) if isinstance(found, str) else found

    if suffix == ".json":
        found = json.loads(said)
        return said if value(found) == found else json.dumps(value(found), indent=1) + "\n"
    return "\n".join(json.dumps(value(found)) for found in parsed(said))


def user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return ""


def pack(folder: Path) -> Path:
    """Pack the folder into a .zip file beside it, which unpacks into one folder. Returns the file's path."""
    archive = folder.with_name(folder.name + ".zip")
    new = archive.with_name(archive.name + ".new")
    with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            file.write(path, Path(folder.name) / path.relative_to(folder))
    return new.replace(archive)
