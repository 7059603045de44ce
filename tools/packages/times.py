"""Times the packages' recurrent models, run in this source tree and in another one in turns:

    python -m tools.packages.times FOLDER TREE

FOLDER is the virtual environment's, as tools.packages makes it; models of packages that are not in it are left out. TREE is
another commit's checkout that was built (by `make setup`, say). Submissions are of a run; a ratio is the median of this/TREE
over the pairs; each of their times is the median of as many runs as take 0.2 s. Results are compared with onnxruntime's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

from tqdm import tqdm

from bench.against import Tree
from bench.peers import Peer
from bench.processes import ROOT, Process
from tools.packages.models import MODELS
from vkdml.laboratory import table

PAIRS = 15


def main(folder: Path, tree: Path) -> None:
    trees = [Tree("this", ROOT), Tree("other", tree)]
    site = next((folder / "venv/lib").glob("python3*")) / "site-packages"
    rows = []
    for name in tqdm([name for name in MODELS if (site / name).exists()], disable=None):
        processes = [Process(Peer(one.name, "tools.packages.models", {"tree": one.folder}, one.environment)) for one in trees]
        try:
            for process in processes:
                process.open()
            first = [process.ask("measure", site / name, name) for process in processes]
            found = [[process.ask("measure", site / name, name)["seconds"] for process in processes] for _ in range(PAIRS)]
        finally:
            for process in processes:
                process.close()
        this, other = (median(times) for times in zip(*found))
        rows.append({"model": name, "submissions": f"{first[1]['submissions']}, {first[0]['submissions']}", "pairs": len(found),
                     "us before": round(other * 1e6), "us": round(this * 1e6), "ratio": median(a / b for a, b in found),
                     "difference": first[0]["difference"]})
    print(table(rows, {"ratio": ".2f", "difference": ".0e"}))


if __name__ == "__main__":
    main(*(Path(argument).resolve() for argument in sys.argv[1:]))
