"""vkdml beside other libraries: sentences that say from which sizes on it is faster than one of them, and by how much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vkdml_lab.gpu_report.steps import Row

OURS = "vkdml"
WAYS = {"host": "from numpy to numpy", "device": "on the device alone"}
# Questions that the page answers in any case, each by libraries whose names begin so
ASKED = {"onnxruntime on this machine's CPU": "onnxruntime-cpu", "onnxruntime's WebGPU provider": "onnxruntime-webgpu",
         "PyTorch on this GPU": "torch-gpu"}
CACHED_GB_S = 1.0  # memory that is not cached is read at some 0.2, over the bus at 0.05
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}  # of an element
LARGE = 2**20  # bytes; reading fewer says how long a call takes

Sizes = tuple[int, int, int]  # T, B, H


def sentences(rows: Sequence[Row]) -> list[str]:
    named = dict.fromkeys(row["library"] for row in rows if row.get("library"))
    libraries = [library for library in named if not library.startswith(OURS)]
    found = [sentence for question, name in ASKED.items()
             for sentence in answer(question, [library for library in libraries if library.startswith(name)], rows)]
    others = [library for library in libraries if not library.startswith(tuple(ASKED.values()))]
    return [*found, *(sentence for library in others for sentence in answer(library, [library], rows)), *reading(rows)]


def answer(question: str, libraries: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    """A sentence for each library and way that were measured; one that says so where none was."""
    said = [(library, way, compared(rows, library, way)) for library in libraries for way in WAYS]
    known = [one for one in said if one[2]]
    if not known:
        reasons = dict.fromkeys(row["not checked"].partition(" (")[0] for row in rows
                                if row.get("library") in libraries and "not checked" in row)
        yield f"**Beside {question}**: not checked ({', '.join(reasons) or 'not begun'})."
    for library, way, times in known:
        name = "" if question.endswith(library) or len(libraries) == 1 else f", {library}"
        yield f"**Beside {question}**{name}, {WAYS[way]}: {verdict(times)}."


def compared(rows: Sequence[Row], library: str, way: str) -> dict[str, tuple[Sizes, float]]:
    """How many times as fast vkdml is, and the sizes, by the problem's name. Wrong results do not count."""
    def seconds(of: str) -> dict[tuple[str, str], Row]:
        return {(row["problem"], row["type"]): row for row in rows if row.get("library") == of and row.get("way") == way
                and row.get("seconds") and row.get("right") is not False}

    theirs = seconds(library)
    baseline = next((row["baseline"] for row in theirs.values() if row.get("baseline")), OURS)
    ours = seconds(baseline)
    return {key[0]: ((row["T"], row["B"], row["H"]), theirs[key]["seconds"] / row["seconds"])
            for key, row in ours.items() if key in theirs}


def verdict(found: Mapping[str, tuple[Sizes, float]]) -> str:
    """Sizes from which on it is faster: all that were measured and are as large in T, B and H. Problems that are called another
    way (streaming, with lengths that vary) are listed one by one.
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
    """Two digits, or a whole number."""
    return f"{number:.2g}" if number < 100 else f"{number:,.0f}"


@dataclass(frozen=True)
class Readback:
    """How fast the largest results came back to the host: their row, their bytes, GB/s."""

    row: Row
    size: int
    rate: float


def readback(rows: Sequence[Row]) -> Readback | None:
    """None: it was not measured."""
    found = [Readback(row, size, size / row["seconds"] / 1e9) for row in rows
             if row.get("library") == OURS and row.get("way") == "readback" and row.get("seconds")
             for size in [BYTES[row["type"]] * row["T"] * row["B"] * row["H"]]]
    return max(found, key=lambda one: one.size, default=None)


def reading(rows: Sequence[Row]) -> list[str]:
    found = readback(rows)
    if found is None:
        return ["**Reading results back**: not checked."]
    largest, size, rate = found.row, found.size, found.rate
    run = next((row["seconds"] for row in rows if row.get("library") == OURS and row.get("way") == "device"
                and row["problem"] == largest["problem"] and row.get("seconds")), None)
    beside = f", beside {brief(run * 1e3)} ms for computing them" if run else ""
    slow = ", as if its memory were not cached" if rate < CACHED_GB_S and size >= LARGE else ""
    return [f"**Reading results back**: {rate:.2g} GB/s{slow}; those of {largest['problem']} take "
            f"{brief(largest['seconds'] * 1e3)} ms{beside}."]
