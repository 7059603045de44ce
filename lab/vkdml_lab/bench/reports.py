"""Compares reports of `vkdml gpu-report` in one table, and fits the figures of the cost model to the times in them.

    python -m bench.reports FOLDER...

FOLDER is a report's folder or archive. Each report has a column of the table: vkdml's times on the device, and other libraries'
times from numpy to numpy, divided by vkdml's. Figures are fitted to all reports of a GPU and driver together.
"""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from vkdml import DeviceInfo
from vkdml_lab.bench.peers import OURS
from vkdml_lab.gpu_report.beside import copied
from vkdml_lab.gpu_report.fit import Fit, fit
from vkdml_lab.reports import document, parsed, table

RESULTS = "results.jsonl"

Row = dict[str, Any]


@dataclass(frozen=True)
class Report:
    """A report of `vkdml gpu-report`. place: its folder or archive. info: its device. rows: all its results."""

    place: Path
    info: DeviceInfo
    rows: Sequence[Row]

    @staticmethod
    def read(place: Path) -> Report:
        """Read a report from its folder or archive. Raises SystemExit if it cannot be read, or has no device."""
        try:
            rows = [row for text in texts(place) for row in parsed(text)]
        except (OSError, zipfile.BadZipFile) as error:
            raise SystemExit(f"reports: {place} cannot be read: {error}") from None
        known = {field.name for field in fields(DeviceInfo)}
        facts = {row["fact"]: row["value"] for row in rows if row.get("table") == "Device" and row.get("fact") in known}
        if "name" not in facts:
            raise SystemExit(f"reports: {place} has no facts about a device: name what `vkdml gpu-report` has written")
        return Report(place, DeviceInfo(**facts), rows)

    def column(self) -> Row:
        """Return the report's column of the table: its values by the names of the table's rows."""
        checked = [row["right"] for row in self.rows
                   if row.get("right") is not None and row.get("library", OURS).startswith(OURS)]
        return {"GPU": self.info.name, "driver": f"{self.info.driver} {self.info.driver_version}", "report": self.place.name,
                "right": f"{sum(checked)} of {len(checked)}", **self._times(),
                **{f"{copy} GB/s": rate for copy, rate in copied(self.rows).items()}}

    def _times(self) -> Row:
        """Return, by row name, vkdml's ms of problems that other libraries have run, and their times divided by vkdml's."""
        taken = {(row["problem"], row["library"], row["way"]): row["seconds"] for row in self.rows
                 if row.get("part") == "peers" and row.get("library") and row.get("seconds")}
        found: Row = {}
        for problem in dict.fromkeys(problem for problem, library, _ in taken if library != OURS):
            if seconds := taken.get((problem, OURS, "device")):
                found[f"{problem} ms"] = seconds * 1e3
            for (of, library, way), theirs in taken.items():
                if (of, way) == (problem, "host") and library != OURS and (problem, OURS, way) in taken:
                    found[f"{problem}, times of {library}"] = theirs / taken[problem, OURS, way]
        return found


def texts(place: Path) -> Iterator[str]:
    """Yield the text of each results file in a report's folder or archive. Each line of a text is JSON."""
    if place.is_dir():
        yield from (path.read_text() for path in sorted(place.glob(f"*/{RESULTS}")))
        return
    with zipfile.ZipFile(place) as archive:
        yield from (archive.read(name).decode() for name in sorted(archive.namelist()) if name.endswith(f"/{RESULTS}"))


def fits(reports: Sequence[Report]) -> list[Fit]:
    """Fit the cost model's figures of each GPU and driver. All reports with the same GPU and driver go into one fit."""
    rows: dict[DeviceInfo, list[Row]] = {}
    for report in reports:
        same = next((info for info in rows if asdict(info) | {"index": 0} == asdict(report.info) | {"index": 0}), report.info)
        rows.setdefault(same, []).extend(report.rows)
    return [fit(found, info) for info, found in rows.items()]


def section(found: Fit) -> str:
    """Return a Markdown section about one fit: how far estimates were off, the changed figures, and code to paste."""
    rows = [{"figure": change.figure, "of": change.what, "now": change.before,
             "should be": change.reason if change.after is None else change.after} for change in found.changes]
    off = f"By the planner's figures a run's time is typically off by a factor of {found.off_before:.3g}"
    after = f"{off}; by these, of {found.off_after:.3g}, in {found.runs} runs." if found.lines else "Nothing could be fitted."
    paste = "\n".join(["```python", *found.lines, "```"]) if found.lines else ""
    return document(f"## {found.name}", after, table(rows), paste).rstrip()


def transposed(rows: Sequence[Row]) -> list[Row]:
    """Exchange rows and columns, as reports have many keys. Returns a row for each key, with columns "1", "2", ..."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return [{"": key, **{str(number): row.get(key) for number, row in enumerate(rows, 1)}} for key in keys]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.reports", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("reports", nargs="+", type=Path, metavar="FOLDER", help="a folder of a report, or its archive")
    reports = sorted(map(Report.read, parser.parse_args(arguments).reports), key=lambda report: report.info.name)
    print(document("# Reports", table(transposed([report.column() for report in reports])), *map(section, fits(reports))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
