"""Run kernels on the hostile device: first some with planted mistakes, then random tasks in all modes (modes.py).

    python -m vkdml_lab.hostile [--minutes M] [--seed N] [--output DIR] [--only MODE SEED]

Needs no driver. The exit code is 1 if anything is wrong. Failures begin with the MODE and SEED that run a task again.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from vkdml_lab.hostile import controls, modes
from vkdml_lab.reports import bullets, document, table, write

_TURNS = ("watched", "inexact", "watched", "weak")


@dataclass
class Ran:
    """All results. runs: counts by (mode, kernel). notes: by (mode, note). wrong: failures. seen: reports by mistake."""

    runs: Counter[tuple[str, str]] = field(default_factory=Counter)
    notes: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    seen: dict[tuple[str, str], str] = field(default_factory=dict)

    def run(self, mode: str, seed: int) -> None:
        """Run the task that this mode draws from this seed, and record the results. An exception counts as a failure, too."""
        try:
            task, result = modes.try_once(mode, seed)
        except Exception:
            self.wrong.append(f"{mode} {seed}: {traceback.format_exc(limit=-3)}")
            return
        self.runs.update((mode, kernel) for kernel in (*result.kernels, "all problems"))
        self.notes[mode, result.note] += bool(result.note)
        self.wrong += [f"{mode} {seed}, {task.name}: {text}" for text in result.wrong]

    def markdown(self) -> str:
        rows = [{"kernel": kernel, **{mode: self.runs[mode, kernel] or None for mode in modes.MODES}}
                for kernel in sorted({kernel for _, kernel in self.runs})]
        seen = [{"mode": mode, "planted mistake": name, "seen as": said.split(":")[0] or "NOT SEEN"}
                for (name, mode), said in self.seen.items()]
        notes = "; ".join(f"{mode}: {note} {times} times" for (mode, note), times in (+self.notes).items())
        return document("# Kernels on a hostile device", bullets("## Wrong", self.wrong), table(rows), notes, table(seen))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m vkdml_lab.hostile", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="minutes to run (60)")
    parser.add_argument("--seed", type=int, help="seed of the first task (the time of day)")
    parser.add_argument("--output", type=Path, default=Path("hostile-report"), help="folder for the report (hostile-report)")
    parser.add_argument("--only", nargs=2, metavar=("MODE", "SEED"), help="run one task and print what it says")
    given = parser.parse_args(arguments)
    ran = Ran()
    if given.only:
        ran.run(given.only[0], int(given.only[1]))
        print("\n".join(ran.wrong) or "nothing is wrong")
        return int(bool(ran.wrong))
    first = int(time.time()) % 1_000_000 * 1000 if given.seed is None else given.seed
    print(f"hostile: {given.minutes:g} minutes, --seed {first}", file=sys.stderr)
    ran.seen = {key: control() for key, control in controls.ALL.items()}
    ran.wrong += [f"{mode} does not see: {name}" for (name, mode), said in ran.seen.items() if not said]
    end = time.monotonic() + given.minutes * 60
    for seed in count(first):
        if time.monotonic() > end:
            break
        ran.run(_TURNS[seed % len(_TURNS)], seed)
    write(given.output, {"hostile.md": ran.markdown()})
    print(ran.markdown())
    return int(bool(ran.wrong))


if __name__ == "__main__":
    raise SystemExit(main())
