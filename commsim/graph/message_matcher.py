"""
Match sends with receives: the k-th from a to b with b's k-th from a.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from commsim.arrays import Ints
from commsim.errors import ScenarioError
from commsim.graph.table import Messages, OpKind
from commsim.units import format_size

__all__ = ["MessageMatcher"]


class _Posted(NamedTuple):
    op: int
    size: int
    recorded: int


_Key = tuple[int, int, int, int]
_NOBODY = _Posted(-1, -1, -1)


class MessageMatcher:
    """Collects the sends and receives of a graph, by group, source, target and tag."""

    def __init__(self) -> None:
        self._sends: dict[_Key, list[_Posted]] = {}
        self._recvs: dict[_Key, list[_Posted]] = {}

    def post(
        self, kind: OpKind, op: int, key: tuple[int, int, int, int], *, size: int, recorded: int
    ) -> None:
        """Add one end of a message; `key` is group, source rank, target rank, tag."""
        side = self._sends if kind == OpKind.SEND else self._recvs
        side.setdefault(key, []).append(_Posted(op, size, recorded))

    def match(self, items: Ints) -> Messages:
        """Return the messages, and write each op's row into `items`.

        Raises:
            ScenarioError: a message is sent in one size and received in another.
        """
        rows: list[tuple[int, ...]] = []
        for key in sorted(self._sends.keys() | self._recvs.keys()):
            sends, recvs = self._sends.get(key, []), self._recvs.get(key, [])
            for k in range(max(len(sends), len(recvs))):
                send = sends[k] if k < len(sends) else _NOBODY
                recv = recvs[k] if k < len(recvs) else _NOBODY
                for op in (send.op, recv.op):
                    if op >= 0:
                        items[op] = len(rows)
                rows.append(_row(key, send, recv))
        table = np.array(rows, dtype=np.int64).reshape(-1, 8)
        columns = [
            *(table[:, column].copy() for column in range(8)),
            np.zeros(len(table), np.int64),
        ]
        return Messages(*columns)


def _row(key: _Key, send: _Posted, recv: _Posted) -> tuple[int, ...]:
    group, source, target, tag = key
    if send.op >= 0 and recv.op >= 0 and send.size != recv.size:
        raise ScenarioError(
            f"rank {source} sends {format_size(send.size)} to rank {target},"
            f" which receives {format_size(recv.size)}: the sizes must agree."
        )
    size, recorded = max(send.size, recv.size), max(send.recorded, recv.recorded)
    return (group, source, target, size, tag, send.op, recv.op, recorded)
