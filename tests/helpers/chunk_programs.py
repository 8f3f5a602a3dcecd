"""Programs to test with, and ways to break them."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from commsim.collectives import Program, program
from commsim.collectives.catalogue import ALGORITHMS
from commsim.ops import ROOTED

SIZES = [*range(2, 18), 32]
PAIRS = sorted(ALGORITHMS)
COLUMNS = ("step", "source", "target", "reduce", "phase")


def roots(op: str, n: int) -> range:
    return range(n if op in ROOTED else 1)


def make(op: str, algorithm: str, n: int, *, root: int = 0, pieces: int = 3) -> Program:
    """Return a program; `root` wraps around, and counts for rooted ops only."""
    splits = [[7 * i + j + 1 for j in range(n)] for i in range(n)]
    return program(
        op,
        algorithm,
        n,
        root=root % n if op in ROOTED else 0,
        pieces=pieces,
        splits=splits if op == "all_to_all_v" else None,
    )


def set_entry(p: Program, column: str, at: int, value: int) -> Program:
    """Change one entry of one column."""
    changed = getattr(p, column).copy()
    changed[at] = value
    return replace(p, **{column: changed})


def drop(p: Program, at: int) -> Program:
    """Lose a message."""
    keep = p.message != at
    renumbered = p.message[keep] - (p.message[keep] > at)
    columns: dict[str, Any] = {c: np.delete(getattr(p, c), at) for c in COLUMNS}
    return replace(p, message=renumbered, chunk=p.chunk[keep], **columns)


def repeat(p: Program, at: int) -> Program:
    """Send a message once more when all else is done."""
    rows = p.message == at
    columns: dict[str, Any] = {c: np.append(getattr(p, c), getattr(p, c)[at]) for c in COLUMNS}
    columns["step"][-1] = p.step.max() + 1
    message = np.append(p.message, np.full(rows.sum(), len(p)))
    return replace(p, message=message, chunk=np.append(p.chunk, p.chunk[rows]), **columns)
