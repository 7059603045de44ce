"""Writes sentences that compare vkdml with other libraries: for which sizes vkdml is faster, and by how much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vkdml_lab.gpu_report.steps import Row

OURS = "vkdml"
# By another library's way: vkdml's way to compare it with, and its description
WAYS = {"host": ("host", "from numpy to numpy"), "device": ("device", "tensors on the device"),
        "queued": ("queued", "ten calls queued"), "graph": ("device", "its graph beside vkdml's executions"),
        "graph queued": ("queued", "ten calls of its graph queued")}
# Questions that the page always answers, with the beginning of the libraries' names
ASKED = {"onnxruntime on this machine's CPU": "onnxruntime-cpu", "onnxruntime's WebGPU provider": "onnxruntime-webgpu",
         "PyTorch on this GPU": "torch-gpu"}
CACHED_GB_S = 1.0  # uncached memory is read at about 0.2, memory over the bus at 0.05

Sizes = tuple[int, int, int]  # T, B, H


def sentences(rows: Sequence[Row]) -> list[str]:
    named = dict.fromkeys(row["library"] for row in rows if row.get("library"))
    libraries = [library for library in named if not library.startswith(OURS)]
    found = [sentence for question, name in ASKED.items()
             for sentence in answer(question, [library for library in libraries if library.startswith(name)], rows)]
    others = [library for library in libraries if not library.startswith(tuple(ASKED.values()))]
    return [*found, *(sentence for library in others for sentence in answer(library, [library], rows)), *copying(rows)]


def answer(question: str, libraries: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    """Answer a question: yield a sentence for each library and way to call it, or one that says why none was measured."""
    said = [(library, way, compared(rows, library, way)) for library in libraries for way in WAYS]
    known = [one for one in said if one[2]]
    if not known:
        reasons = dict.fromkeys(row["not checked"].partition(" (")[0] for row in rows
                                if row.get("library") in libraries and "not checked" in row)
        yield f"**Beside {question}**: not checked ({', '.join(reasons) or 'not begun'})."
    for library, way, times in known:
        name = "" if question.endswith(library) or len(libraries) == 1 else f", {library}"
        yield f"**Beside {question}**{name}, {WAYS[way][1]}: {verdict(times)}."


def compared(rows: Sequence[Row], library: str, way: str) -> dict[str, tuple[Sizes, float]]:
    """Return, by problem, its sizes and the library's time divided by vkdml's. Wrong results do not count. way: key of WAYS."""
    timed = [row for row in rows if row.get("library") and row.get("seconds") and row.get("right") is not False]
    ours = {(row["problem"], row["type"]): row["seconds"] for row in timed
            if row["library"].startswith(OURS) and row["way"] == WAYS[way][0]}
    theirs = [row for row in timed if row["library"] == library and row["way"] == way and (row["problem"], row["type"]) in ours]
    return {row["problem"]: ((row["T"], row["B"], row["H"]), row["seconds"] / ours[row["problem"], row["type"]])
            for row in theirs}


def verdict(found: Mapping[str, tuple[Sizes, float]]) -> str:
    """Return a text that says from which sizes on vkdml is faster: in all measured sizes that are at least as large in T, B and
    H. It lists other kinds of problems (streaming, with lengths, bidirectional) one by one. found: as `compared` returns it.
    """
    plain = {name: one for name, one in found.items() if name.count("-") == 1}
    wins = {sizes for sizes, _ in plain.values()
            if all(times > 1 for others, times in plain.values() if all(map(int.__ge__, others, sizes)))}
    least = [sizes for sizes in sorted(wins)
             if not any(other != sizes and all(map(int.__le__, other, sizes)) for other in wins)]
    ahead = [times for sizes, times in plain.values() if sizes in wins]
    behind = [(name, times) for name, (sizes, times) in plain.items() if sizes not in wins]
    said = []
    if least:
        said.append(f"vkdml is faster from (T, B, H) = {' or '.join(map(str, least))} on, {spread(ahead)} as fast")
    elif plain:
        said.append("there is no size from which on vkdml is faster")
    if behind:
        said.append(f"{'below that' if least else 'it is'} {spread([times for _, times in behind])} as fast "
                    f"({', '.join(name for name, _ in behind)})")
    special = [f"{name} {times:.2g}" for name, (_, times) in found.items() if name not in plain]
    return "; ".join([*said, *([f"times as fast otherwise: {', '.join(special)}"] if special else [])])


def spread(times: Sequence[float]) -> str:
    low, high = brief(min(times)), brief(max(times))
    return f"{low} times" if low == high else f"{low} to {high} times"


def brief(number: float) -> str:
    """Format a number with two significant digits, or as a whole number from 100 on."""
    return f"{number:.2g}" if number < 100 else f"{number:,.0f}"


def copied(rows: Sequence[Row]) -> dict[str, float]:
    """Return the GB/s of each stage of a copy, such as "readback", for the largest buffer. rows: of the part "peers"."""
    found = [row for row in rows if row.get("table") == "Copies" and row.get("GB/s")]
    return {row["copy"]: row["GB/s"] for row in found if row["bytes"] == max(one["bytes"] for one in found)}


def copying(rows: Sequence[Row]) -> list[str]:
    rates = copied(rows)
    slow = ", as if its memory were not cached" if rates.get("host copy out", CACHED_GB_S) < CACHED_GB_S else ""
    said = ", ".join(f"{copy} {rate:.2g}" for copy, rate in rates.items())
    return [f"**Copies**, GB/s: {said}{slow}." if rates else "**Copies**: not checked."]
