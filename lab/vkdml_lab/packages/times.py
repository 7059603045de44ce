"""Times the packages' recurrent models, run in this source tree and in another one in turns:

    python -m vkdml_lab.packages.times FOLDER TREE

FOLDER is the virtual environment's, as vkdml_lab.packages makes it; models of packages that are not in it are left out. TREE is
another commit's checkout that was built (by `make setup`, say). Submissions are of a run; a ratio is the median of this/TREE
over the pairs; each of their times is the median of as many runs as take 0.2 s. Results are compared with onnxruntime's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

from tqdm import tqdm

from vkdml_lab.bench.against import Tree
from vkdml_lab.bench.peers import Peer
from vkdml_lab.bench.processes import ROOT, Process
from vkdml_lab.packages.models import MODELS
from vkdml_lab.reports import table

PAIRS = 15


def main(folder: Path, tree: Path) -> None:
    trees = [Tree("this", ROOT), Tree("other", tree)]
    site = next((folder / "venv/lib").glob("python3*")) / "site-packages"
    rows = []
    for name in tqdm([name for name in MODELS if (site / name).exists()], disable=None):
        processes = [Process(Peer(one.name, "vkdml_lab.packages.models",
                                  {"tree": one.folder, "path": site / name, "name": name}, one.environment)) for one in trees]
        try:
            for process in processes:
                process.open()
            found = [[process.ask("measure") for process in processes] for _ in range(PAIRS)]
        finally:
            for process in processes:
                process.close()
        this, other = (process.description for process in processes)
        seconds, seconds_before = (median(times) for times in zip(*found))
        rows.append({"model": name, "submissions": f"{other['submissions']}, {this['submissions']}", "pairs": len(found),
                     "us before": round(seconds_before * 1e6), "us": round(seconds * 1e6),
                     "ratio": median(a / b for a, b in found), "difference": this["difference"]})
    print(table(rows, {"ratio": ".2f"}))


if __name__ == "__main__":
    main(*(Path(argument).resolve() for argument in sys.argv[1:]))
