"""
Chunk programs: a collective algorithm as sends of chunks from actor to actor.

A program says which chunks go from which actor to which, copied or reduced, in which step. It
has no bytes and no links: chunk c holds `share[c]` of the collective's size S. Messages of one
step happen at once; a message may leave as soon as its source holds what it sends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Program", "ProgramBuilder"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Messages in program order, and the chunks that each carries.

    `message`, `chunk`: one row per chunk of a message, messages ascending. `step`, `source`,
    `target`, `reduce`, `phase`: one entry per message. `phase` groups the steps in which the
    same connections are active at once. `root` is a member index, -1 for none.
    """

    op: str
    algorithm: str
    n: int
    root: int
    share: Floats
    message: Ints
    chunk: Ints
    step: Ints
    source: Ints
    target: Ints
    reduce: npt.NDArray[np.bool_]
    phase: Ints

    def __len__(self) -> int:
        return len(self.step)

    def __repr__(self) -> str:
        messages = f"{len(self)} messages in {self.steps} steps"
        return f"Program({self.op} by {self.algorithm}, n={self.n}, {messages})"

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return len(np.unique(self.step))

    @property
    def message_share(self) -> Floats:
        """The share of S that each message carries."""
        total = np.bincount(self.message, weights=self.share[self.chunk], minlength=len(self))
        return total.astype(np.float64)

    @property
    def bytes_sent(self) -> Floats:
        """The share of S that each rank sends, shape (n,)."""
        total = np.bincount(self.source, weights=self.message_share, minlength=self.n)
        return total.astype(np.float64)


class ProgramBuilder:
    """Collects sends in any order; `build` sorts them by step, keeping their order within one."""

    def __init__(
        self, op: str, algorithm: str, n: int, share: Iterable[float], *, root: int = -1
    ) -> None:
        self._head = (op, algorithm, n, root)
        self._share = np.fromiter(share, dtype=np.float64)
        self._sends: list[tuple[int, int, int, bool, int]] = []
        self._chunks: list[tuple[int, ...]] = []

    def copy(
        self, chunks: int | Iterable[int], source: int, target: int, *, step: int, phase: int = 0
    ) -> None:
        """Send chunks; the target then holds what the source held."""
        self._send(chunks, source, target, False, step, phase)

    def reduce(
        self, chunks: int | Iterable[int], source: int, target: int, *, step: int, phase: int = 0
    ) -> None:
        """Send chunks; the target adds them to its own."""
        self._send(chunks, source, target, True, step, phase)

    def build(self) -> Program:
        """Return the program."""
        table = np.array(self._sends, dtype=np.int64).reshape(-1, 5)
        order = np.argsort(table[:, 2], kind="stable")
        chunks = [self._chunks[i] for i in order.tolist()]
        counts = [len(c) for c in chunks]
        table = table[order]
        return Program(
            *self._head,
            share=self._share,
            message=np.repeat(np.arange(len(chunks)), counts),
            chunk=np.array([c for some in chunks for c in some], dtype=np.int64),
            step=table[:, 2],
            source=table[:, 0],
            target=table[:, 1],
            reduce=table[:, 3].astype(np.bool_),
            phase=table[:, 4],
        )

    def _send(
        self, chunks: int | Iterable[int], source: int, target: int, reduce: bool, step: int,
        phase: int,
    ) -> None:  # fmt: skip
        self._sends.append((source, target, step, reduce, phase))
        self._chunks.append((chunks,) if isinstance(chunks, int) else tuple(chunks))
