"""
What NCCL's ranges say about communicators: who is in them, and what was called on each.

The range in which a communicator is made says how many ranks it has and which one the process
is. The largest communicator is taken for the world: a rank in it is a global rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from commsim.ops import op_of
from commsim.traces.formats.event_args import EventArgs
from commsim.traces.formats.kineto import rank_in_name

__all__ = ["LIBRARY", "RecordedCommunicators"]

LIBRARY = "nccl"
_MAX_RANKS = 1_000_000

_Call = tuple[int, int, Any, Any, EventArgs]


class _Communicator(msgspec.Struct):
    """How many ranks it has, and which process has which."""

    members: int = -1
    ranks: dict[int, int] = msgspec.field(default_factory=dict)


class RecordedCommunicators(msgspec.Struct):
    """What was heard, in the order of the file."""

    known: dict[int, _Communicator] = msgspec.field(default_factory=dict)
    heard: list[tuple[int, int, Any, Any, str, dict[str, int]]] = msgspec.field(
        default_factory=list
    )

    @property
    def largest(self) -> _Communicator:
        """The communicator that is taken for the world."""
        return max(self.known.values(), key=lambda c: c.members, default=_Communicator())

    def hear(
        self, pid: int, thread: int, start: Any, end: Any, name: str, fields: dict[str, int]
    ) -> None:
        """Take one range of NCCL with the fields of its payload."""
        if "communicator" not in fields:
            return
        one = self.known.setdefault(fields["communicator"], _Communicator())
        if 0 < fields.get("ranks", -1) <= _MAX_RANKS:
            one.members = fields["ranks"]
            one.ranks[pid] = fields.get("rank", -1)
        if op := op_of(name.removeprefix(LIBRARY)):
            self.heard.append((pid, thread, start, end, op, fields))

    def ranks_of(self, devices: Mapping[int, int], name: str) -> tuple[dict[int, int], str]:
        """Return the rank of each process of file `name`, and where that is from.

        `devices` is the first GPU of each process.
        """
        told = {pid: self.largest.ranks.get(pid, -1) for pid in devices}
        if min(told.values()) >= 0 and len(set(told.values())) == len(told):
            return told, "its rank in the largest communicator"
        rank = rank_in_name(name)
        if len(devices) == 1 and rank >= 0:
            return dict.fromkeys(devices, rank), "as the file's name says"
        first = max(0, rank) * len(devices)
        order = sorted(devices, key=lambda pid: (devices[pid], pid))
        return {pid: first + at for at, pid in enumerate(order)}, "in order of their GPUs"

    def groups(self, ranks: Mapping[int, int]) -> dict[str, tuple[int, ...]]:
        """Return the global ranks of each communicator that says enough; `ranks` by process."""
        world = self.largest.members
        found: dict[str, tuple[int, ...]] = {}
        for number, one in self.known.items():
            if 0 < one.members == world:
                found[f"{number:x}"] = tuple(range(world))
            elif len(one.ranks) == one.members > 0:
                order = sorted(one.ranks, key=lambda pid: one.ranks[pid])
                found[f"{number:x}"] = tuple(ranks[pid] for pid in order)
        return found

    def calls(self, groups: Mapping[str, tuple[int, ...]]) -> Iterator[_Call]:
        """Yield (process, thread, start, end, arguments) of each call, as torch would write it."""
        for pid, thread, start, end, op, fields in self.heard:
            label = f"{fields['communicator']:x}"
            yield pid, thread, start, end, self._args(op, label, fields, groups.get(label, ()))

    def _args(
        self, op: str, label: str, fields: Mapping[str, int], ranks: tuple[int, ...]
    ) -> EventArgs:
        """NCCL tells the bytes of one rank's part ("Message size"), and a peer in the group."""
        part, members = fields.get("size", -1), self.known[fields["communicator"]].members
        whole = part * members if members > 0 else -1
        sent, received = {"all_gather": (part, whole), "reduce_scatter": (whole, part)}.get(
            op, (part, part)
        )
        sized = min(sent, received) >= 0
        place = fields.get("peer", -1)
        peer = ranks[place] if 0 <= place < len(ranks) else -1
        return EventArgs(
            call=op,
            op=op,
            dtype="uint8",
            itemsize=1,
            elements=sent if sized else -1,
            out_elements=received if sized else -1,
            group=label,
            ranks=ranks,
            source=peer if op == "recv" else -1,
            target=peer if op == "send" else -1,
        )
