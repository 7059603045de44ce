"""Runs onnxruntime's own Python tests on onnxruntime and, with nothing but the import changed, on vkdml.onnx:

    pip install pytest-timeout parameterized
    python -m vkdml_lab.onnxruntime_tests SOURCE [FILE ...]

SOURCE is the folder of onnxruntime's unpacked source. Of it, onnxruntime/test/python and onnxruntime/test/testdata are needed;
models that are not there are made (models.py). FILE: the tests to run, such as quantization/test_qdq; if left out, those that
are not in folders. Prints how many pass with which, and what fails; the exit status is 1 if something passes with onnxruntime
only.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from tabulate import tabulate

from vkdml_lab.onnxruntime_tests.models import write_missing
from vkdml_lab.packages.__main__ import copy_with_vkdml

SERIES = "onnx_backend_test_series"
KINDS = ("both", "onnxruntime only", "vkdml only", "neither", "skipped")
FAILED = ("neither", "onnxruntime only")
SECONDS = 600  # limit for a test; some take long on onnxruntime, too


def outcomes(folder: Path, file: str) -> dict[str, str]:
    """What became of the tests of a file, by name: "" if passed, "skipped", or the first line of what is wrong."""
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    source = Path(__file__).parent / "series.py" if file == SERIES else folder / f"python/{file}.py"
    path = [str(folder / "python"), str(Path(__file__).parents[2]), *filter(None, sys.path)]
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "vkdml_lab.onnxruntime_tests.old_onnx",
         "-c", os.devnull, "--rootdir", folder, "--junitxml", report, f"--timeout={SECONDS}", source],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)})
    if not report.exists():
        return {"": "the process ended"}
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        wrong = [entry for entry in case if entry.tag in ("failure", "error")]
        name = f"{case.get('classname', '').split('.')[-1]}.{case.get('name')}"
        said = (wrong[0].get("message") or wrong[0].text or "?").strip().splitlines()[0] if wrong else ""
        found[name] = found.get(name) or said or ("skipped" if case.find("skipped") is not None else "")
    return found


def passed_with(theirs: str, ours: str) -> str:
    """The one of KINDS, or "skipped", for what became of a test with each."""
    return "skipped" if theirs == "skipped" else KINDS[bool(theirs) * 2 + bool(ours)]


def main(source: Path, files: list[str]) -> int:
    python, testdata = (source / "onnxruntime/test" / name for name in ("python", "testdata"))
    files = files or sorted(path.stem for path in python.glob("onnx*_test_*.py"))
    rows, failed = [], list[tuple[str, str, str]]()
    with tempfile.TemporaryDirectory() as scratch:
        theirs, ours = (Path(scratch) / name / "test" for name in ("onnxruntime", "vkdml"))
        for folder in (theirs, ours):
            shutil.copytree(testdata, folder / "testdata")
            made = write_missing(folder / "testdata")
        shutil.copytree(python, theirs / "python")
        lines = copy_with_vkdml(python, ours / "python")
        for file in files:
            expected, found = (outcomes(folder, file) for folder in (theirs, ours))
            found = {**dict.fromkeys(expected, "not run"), **found}
            kinds = {name: passed_with(said, found[name]) for name, said in expected.items()}
            counts = Counter(kinds.values())
            rows.append((file, *(counts[name] for name in KINDS)))
            failed += [(kind, f"{file} {name}", found[name]) for name, kind in kinds.items() if kind in FAILED]
            print(*rows[-1], sep="  ", flush=True)
    print(f"\nlines changed: {lines}; models made: {made}\n")
    print(tabulate([*rows, ("all", *(sum(column) for column in list(zip(*rows))[1:]))], ["", *KINDS]))
    for kind, name, said in sorted(failed):
        print(f"\n{kind}: {name}\n    {said}")
    return int(any(kind == "onnxruntime only" for kind, *_ in failed))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m vkdml_lab.onnxruntime_tests", description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("files", nargs="*", metavar="FILE")
    chosen = parser.parse_args()
    sys.exit(main(chosen.source.absolute(), chosen.files))
