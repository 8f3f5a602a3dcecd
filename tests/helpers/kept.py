"""
Figures that are kept: a short account of all that a run says, to see when any of it moves.

`account(data)` takes a tree as JSON has it and returns for each place (the path, lists as `[]`) how
many values stand there and one figure of them all: for numbers a sum of their logarithms, each
weighted by where it stands, so that a change of one of ten thousand by a thousandth shows, as does
an exchange of neighbours; for texts a checksum. `benchmarks/kept_figures.py` writes the files in
`tests/data/kept`.
"""

from __future__ import annotations

import json
import math
import zlib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import commsim as cs
from commsim.timeline import Timeline
from helpers.paths import ROOT

__all__ = [
    "KEPT", "Account", "account", "account_of_run", "account_without_limits", "kept", "moved",
    "write",
]  # fmt: skip

KEPT = ROOT / "tests/data/kept"
SMALLEST = 1e-12  # what is below this counts as nothing: seconds of a picosecond do not
PERIOD = 89  # weights go from 1 to this and again: a prime, so that no usual length is a multiple
CLOSE, RELATIVE = 2e-4, 1e-12  # of a figure: a picosecond of a short op; last digits of a sum

Account = dict[str, list[float]]
"""How many values stand at a place, the figure of the numbers, the checksum of the texts."""


def account(data: Any, depth: int | None = None) -> Account:
    """Return the account of a tree; `depth` joins all that lies below so many keys."""
    places: dict[str, list[Any]] = defaultdict(list)
    for path, value in _values(data, ()):
        if path[:1] == ("commsim",):  # the version
            continue
        places[".".join(path[:depth])].append(value)
    return {path: _figure(values) for path, values in places.items()}


def account_of_run(result: cs.Result, depth: int | None = None) -> Account:
    """Return the account of a run: its JSON, and the times of its spans."""
    return account({**result.to_dict(), "timeline": _spans(result.timeline)}, depth)


def account_without_limits(result: cs.Result) -> Account:
    """Return the account of a run but for what limits it, which takes as long again to find."""
    data = {**result.metrics.to_dict(), **result.extra, "timeline": _spans(result.timeline)}
    return account(data)


def _spans(timeline: Timeline) -> dict[str, list[int]]:
    """Return the columns of a timeline by name."""
    names = ("lane", "op", "kind", "arrive", "start", "end")
    return {name: getattr(timeline, name).tolist() for name in names}


def _values(data: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(data, dict):
        for key, inner in data.items():
            yield from _values(inner, (*path, str(key)))
    elif isinstance(data, list | tuple):
        for inner in data:
            yield from _values(inner, (*path[:-1], f"{path[-1]}[]") if path else ("[]",))
    else:
        yield path, data


def _figure(values: list[Any]) -> list[float]:
    total, texts = 0.0, 0
    for at, value in enumerate(values):
        if isinstance(value, int | float) and not isinstance(value, bool):
            size = math.log1p(abs(value) / SMALLEST)
            total += math.copysign(size, value) * (1 + at % PERIOD)
        else:
            texts = zlib.crc32(str(value).encode(), texts)
    return [len(values), total, texts]


@cache
def kept(name: str) -> dict[str, Account]:
    """Return the accounts of a file of `tests/data/kept`."""
    found: dict[str, Account] = json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))
    return found


def moved(before: Account, after: Account) -> list[str]:
    """Return the places at which two accounts differ."""
    return sorted(
        path
        for path in before.keys() | after.keys()
        if path not in before or path not in after or not _same(before[path], after[path])
    )


def _same(before: list[float], after: list[float]) -> bool:
    number = math.isclose(before[1], after[1], rel_tol=RELATIVE, abs_tol=CLOSE)
    return number and (before[0], before[2]) == (after[0], after[2])


def write(path: Path, accounts: dict[str, Account]) -> None:
    """Write accounts, a line for each place."""
    lines = [
        f" {json.dumps(name)}: {{\n"
        + ",\n".join(
            f"  {json.dumps(place)}: {json.dumps(figure)}" for place, figure in one.items()
        )
        + "\n }"
        for name, one in accounts.items()
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
