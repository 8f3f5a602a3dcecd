"""
Chunk programs: a collective algorithm as sends of chunks from actor to actor.

A program says which chunks go from which actor to which, copied or reduced, in which step. It
has no bytes and no links: chunk c holds `share[c]` of the collective's size S. Messages of one
step happen at once; a message may leave as soon as its source holds what it sends.

Actors 0 to n - 1 are the ranks; those above are switches that reduce or multicast. A switch
holds nothing at the start, and nothing is promised for it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from commsim.arrays import Bools, Floats, Ints
from commsim.limits import BYTES_PER_CHUNK, FEWER_MESSAGES, check_size, most

__all__ = ["IN_NETWORK", "IN_NODE", "DataLayout", "Program", "ProgramBuilder"]


IN_NODE, IN_NETWORK = "node", "network"
"""What a switch actor is: the NVSwitch of a node, or the switches of the network as one."""


class DataLayout(msgspec.Struct, frozen=True, eq=False):
    """Where the data of an op lies, for programs whose places are not simply its chunks.

    Place p of rank r starts with the rank's contribution to chunk `held[r, p]` of the op and
    must end with chunk `wanted[r, p]`; -1 for none. Shapes (n, places). `names` says what a
    person calls each place.
    """

    held: Ints
    wanted: Ints
    names: tuple[str, ...]


class Program(msgspec.Struct, frozen=True, eq=False):
    """Messages in program order, and the chunks that each carries.

    `message`, `chunk`: one row per chunk of a message, messages ascending. `step`, `source`,
    `target`, `reduce`, `phase`: one entry per message. `phase` groups the steps in which the
    same connections are active at once. `root` is a member index, -1 for none. `switches` holds
    the kind (IN_NODE, IN_NETWORK) of each actor from n on.

    Imported programs need more: `into` (per row) is the place that a chunk goes to where that
    is not its own, `layout` says what the places hold, and `needs` is the CSR of what each
    message waits for if that is more than the data it sends.
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
    reduce: Bools
    phase: Ints
    switches: tuple[str, ...] = ()
    into: Ints | None = None
    layout: DataLayout | None = None
    needs: tuple[Ints, Ints] | None = None

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
    def actors(self) -> int:
        """How many ranks and switches there are."""
        return self.n + len(self.switches)

    @property
    def places(self) -> Ints:
        """The place at the target that each row goes to."""
        return self.chunk if self.into is None else self.into

    @property
    def message_share(self) -> Floats:
        """The share of S that each message carries."""
        total = np.bincount(self.message, weights=self.share[self.chunk], minlength=len(self))
        return total.astype(np.float64)

    @property
    def bytes_sent(self) -> Floats:
        """The share of S that each rank sends to others, shape (n,)."""
        sent = np.where(self.source == self.target, 0.0, self.message_share)
        total = np.bincount(self.source, weights=sent, minlength=self.n)
        return total.astype(np.float64)[: self.n]


class ProgramBuilder:
    """Collects sends in any order; `build` sorts them by step, keeping their order within one."""

    def __init__(
        self,
        op: str,
        algorithm: str,
        n: int,
        share: Iterable[float],
        *,
        root: int = -1,
        switches: Iterable[str] = (),
    ) -> None:
        self._head = (op, algorithm, n, root)
        self._switches = tuple(switches)
        self._share = np.fromiter(share, dtype=np.float64)
        self._sends: list[tuple[int, int, int, bool, int]] = []
        self._chunks: list[tuple[int, ...]] = []
        self._count, self._most = 0, most(BYTES_PER_CHUNK)

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

    def reduce_at(
        self,
        chunks: int | Iterable[int],
        switch: int,
        sources: Iterable[int],
        target: int,
        *,
        step: int,
        phase: int = 0,
    ) -> None:
        """Let a switch add up what the sources hold; the target gets the sum a step later."""
        carried = (chunks,) if isinstance(chunks, int) else tuple(chunks)
        for source in sources:
            self.reduce(carried, source, switch, step=step, phase=phase)
        self.copy(carried, switch, target, step=step + 1, phase=phase)

    def multicast(
        self,
        chunks: int | Iterable[int],
        switch: int,
        source: int,
        targets: Iterable[int],
        *,
        step: int,
        phase: int = 0,
    ) -> None:
        """Send chunks to a switch, which hands a copy to every target a step later."""
        carried = (chunks,) if isinstance(chunks, int) else tuple(chunks)
        self.copy(carried, source, switch, step=step, phase=phase)
        for target in targets:
            self.copy(carried, switch, target, step=step + 1, phase=phase)

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
            switches=self._switches,
        )

    def _send(
        self,
        chunks: int | Iterable[int],
        source: int,
        target: int,
        reduce: bool,
        step: int,
        phase: int,
    ) -> None:
        self._sends.append((source, target, step, reduce, phase))
        carried = (chunks,) if isinstance(chunks, int) else tuple(chunks)
        self._chunks.append(carried)
        self._count += 1 + len(carried)
        if self._count > self._most:
            op, algorithm, n, _ = self._head
            check_size(
                self._count, BYTES_PER_CHUNK,
                f"{op} by {algorithm} among {n:,} ranks: {len(self._sends):,} messages so far, with"
                f" {self._count - len(self._sends):,} chunks,",
                FEWER_MESSAGES,
            )  # fmt: skip
