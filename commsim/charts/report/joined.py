"""
Short neighbours of a row joined, for a timeline that must be small.

What begins in the same stretch of time and means the same becomes one box that is as long as its
parts together; those of one stretch are laid end to end. So a row is busy for as long as it was,
and nothing moves by more than a stretch.
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Ints

__all__ = ["join_short"]

Columns = dict[str, Ints]


def join_short(columns: Columns, row: Ints, stretch: int) -> tuple[Columns, Ints]:
    """Return the columns (begin not as gaps yet) and rows with spans below `stretch` joined.

    Spans are in order of row and begin; so are those returned. Joined ones lose their microbatch
    and instance (0), and have the size of their first.
    """
    whole = columns["wait"] + columns["length"]
    short = np.flatnonzero(whole < stretch)
    if not len(short):
        return columns, row
    few = {name: values[short] for name, values in columns.items()}
    at, cell = row[short], few["begin"] // stretch
    order = np.lexsort((few["what"], cell, at))
    few = {name: values[order] for name, values in few.items()}
    at, cell = at[order], cell[order]
    starts = _starts(at, cell, few["what"])
    joined = {name: values[starts] for name, values in few.items()}
    for name in ("wait", "length"):
        joined[name] = np.add.reduceat(few[name], starts)
    alone = np.diff(np.append(starts, len(at))) == 1
    for name in ("microbatch", "instance"):
        joined[name] = np.where(alone, joined[name], 0)
    joined["begin"] = _end_to_end(few["begin"], at, cell, starts, joined)
    long = np.flatnonzero(whole >= stretch)
    both = {name: np.concatenate((values[long], joined[name])) for name, values in columns.items()}
    rows = np.concatenate((row[long], at[starts]))
    order = np.lexsort((both["begin"], rows))
    return {name: values[order] for name, values in both.items()}, rows[order]


def _starts(*keys: Ints) -> Ints:
    """Return where a run of equal keys begins."""
    new = np.ones(len(keys[0]), np.bool_)
    new[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return np.flatnonzero(new)


def _end_to_end(begin: Ints, row: Ints, cell: Ints, starts: Ints, joined: Columns) -> Ints:
    """Return where the boxes of each stretch begin: after each other, from its first begin."""
    cells = _starts(row, cell)
    first = np.minimum.reduceat(begin, cells)
    number = np.searchsorted(cells, starts, side="right") - 1
    length = joined["wait"] + joined["length"]
    before = np.cumsum(length) - length
    head = np.searchsorted(starts, cells)  # the first box of each stretch
    offset: Ints = first[number] + before - before[head][number]
    return offset
