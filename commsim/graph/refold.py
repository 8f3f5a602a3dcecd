"""
Refolding: a folded graph with fewer ranks per lane, made from the folded graph alone.

A lane holds the ops of all ranks that it stands for, a group the ranks of all groups; so a graph
with finer classes is made by writing a lane's ops once per class. All of it is done on columns: a
layout of thousands of GPUs is refolded more than once before it runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from commsim.arrays import Bools, Ints
from commsim.errors import ScenarioError
from commsim.graph.fold import Fold
from commsim.graph.table import Collectives, Folding, Graph, Group, Messages, OpKind, op_columns
from commsim.limits import check_size, op_bytes

__all__ = ["refold"]


def refold(graph: Graph, roles: Ints) -> Graph:
    """Return `graph` with ranks of different `roles` kept apart, a number per rank.

    Ranks on different lanes stay apart too. A graph that is not folded comes back as it is.

    Raises:
        ScenarioError: ops depend on ops of other lanes, or there are more than memory holds.
    """
    folding = graph.folding
    if folding is None:
        return graph
    groups = {_group(at): rows for at, rows in enumerate(folding.groups)}
    pairs = {_pair(at): rows for at, rows in enumerate(folding.pairs)}
    both = np.stack((folding.lane_of, np.asarray(roles, dtype=np.int64)), axis=1)
    # Splitting can only make classes finer than the lanes, so the ops of a lane are the ops of
    # each class that comes out of it: copying them per class is the graph of the finer fold.
    classes = np.unique(both, axis=0, return_inverse=True)[1].reshape(-1)
    return _Copies(graph, folding, Fold.of(classes, groups, pairs)).graph()


class _Copies:
    """The ops of every lane once per class of ranks: `source[i]` is the op that op i copies."""

    def __init__(self, graph: Graph, folding: Folding, fold: Fold) -> None:
        self.old, self.folding, self.fold = graph, folding, fold
        self.ranks = np.array(fold.representatives, dtype=np.int64)
        self.lane_was = folding.lane_of[self.ranks]
        by_lane = np.argsort(graph.lane, kind="stable")
        held = np.bincount(graph.lane, minlength=len(graph.lane_rank))
        first = np.concatenate(([0], np.cumsum(held)))[self.lane_was]
        self.count = held[self.lane_was]
        lanes, many = len(self.ranks), int(self.count.sum())
        check_size(
            many, op_bytes(many, copied=True),
            f"the work unfolded: {many:,} operations of {lanes:,} lanes",
            "Let equal ranks fold (engine.fold: auto), or take fewer microbatches or ranks.",
        )  # fmt: skip
        self.begin = np.concatenate(([0], np.cumsum(self.count)))
        self.lane = np.repeat(np.arange(len(self.ranks)), self.count)
        self.source = by_lane[np.repeat(first - self.begin[:-1], self.count) + _upto(self.lane)]
        self.place = np.empty(len(graph), np.int64)  # of each old op among those of its lane
        self.place[by_lane] = _upto(by_lane) - np.repeat(np.cumsum(held) - held, held)
        self.offset, orbits = _numbered([axis.orbit for axis in fold.groups.values()])
        self.groups = [self._new_group(old, orbit) for old, orbit in orbits]

    def graph(self) -> Graph:
        """Return the graph of all copies."""
        old, source = self.old, self.source
        columns: dict[str, Any] = {name: getattr(old, name)[source] for name in op_columns()}
        columns["lane"] = self.lane
        columns["batch"] = self._batches(columns["batch"])
        collectives, calls = self._collectives()
        messages, ends, pairs, pair = self._messages()
        columns["item"] = np.where(calls >= 0, calls, np.where(ends >= 0, ends, columns["item"]))
        names = self._rename(columns, messages)
        pointer, dep_op, dep_delay = self._dependencies()
        window = old.window[self.lane_was]
        shifted = self.begin[:-1, None] + self.place[window]
        made = replace(
            old,
            **columns,
            names=names,
            dep_ptr=pointer,
            dep_op=dep_op,
            dep_delay=dep_delay,
            lane_rank=self.ranks,
            multiplicity=self.fold.multiplicities()[self.ranks],
            lane_offset=old.lane_offset[self.lane_was],
            window=np.where(window >= 0, shifted, -1),
            groups=tuple(self.groups),
            collectives=collectives,
            messages=messages,
            folding=None,
        )
        return replace(made, folding=self._folding(pairs, pair)) if self.fold.folded else made

    def _new_group(self, old: int, orbit: int) -> Group:
        """Return the group of an orbit; the first keeps the name of what it is a part of."""
        was = self.old.groups[old]
        ranks = self.fold.groups[_group(old)].instances(orbit)[0].tolist()
        return replace(
            was, name=was.name if not orbit else f"{was.name}.{orbit}", ranks=tuple(ranks)
        )

    def _group_of(self, old: Ints, rank: Ints) -> Ints:
        """Return the new group of each rank that takes part in each old group."""
        found = np.empty(len(old), np.int64)
        for at in np.unique(old).tolist():
            axis, mine = self.fold.groups[_group(at)], old == at
            orbit = np.full(len(self.fold.stands), -1)
            orbit[axis.rows] = axis.orbit[:, None]
            found[mine] = self.offset[at] + orbit[rank[mine]]
        return found

    def _collectives(self) -> tuple[Collectives, Ints]:
        """Return the table of collectives, and the row of each op (-1: none)."""
        old, table = self.old, self.old.collectives
        ops = np.flatnonzero(old.kind[self.source] == OpKind.COLLECTIVE)
        row = old.item[self.source[ops]]
        group = self._group_of(table.group[row], self.ranks[self.lane[ops]])
        # Members of one old collective that are now in different groups call different ones.
        first, number = _by_appearance(row * len(self.groups) + group)
        calls = np.full(len(self.source), -1)
        calls[ops] = number
        row, group = row[first], group[first]
        was = row.tolist()
        made = Collectives(
            kind=tuple(table.kind[at] for at in was),
            group=group,
            size=table.size[row],
            root=self._roots(row, group),
            recorded=table.recorded[row],
            eager=table.eager[row],
            dtype=tuple(table.dtype[at] for at in was),
            redop=tuple(table.redop[at] for at in was),
            splits=tuple(table.splits[at] for at in was),
        )
        return made, calls

    def _roots(self, row: Ints, group: Ints) -> Ints:
        """Return the global ranks of the roots: the same members of the new groups."""
        table, roots = self.old.collectives, self.old.collectives.root[row].copy()
        for at in np.flatnonzero(roots >= 0).tolist():
            member = self.old.groups[int(table.group[row[at]])].ranks.index(int(roots[at]))
            roots[at] = self.groups[int(group[at])].ranks[member]
        return roots

    def _messages(self) -> tuple[Messages, Ints, list[Ints], Ints]:
        """Return the table of messages, the row of each op (-1: none), and what the rows stand for.

        That is the pairs of every orbit, and of each message the number of its own.
        """
        old, table, source = self.old, self.old.messages, self.source
        offset, orbits = _numbered([axis.orbit for axis in self.fold.pairs.values()])
        pairs = [self.fold.pairs[_pair(at)].instances(orbit) for at, orbit in orbits]
        sends = old.kind[source] == OpKind.SEND
        ops = np.flatnonzero(sends | (old.kind[source] == OpKind.RECV))
        was, rank, sends = old.item[source[ops]], self.ranks[self.lane[ops]], sends[ops]
        pair = self._pair_of(self.folding.pair[was], rank, sends, offset)
        first, number = _by_appearance(was * max(len(pairs), 1) + pair)
        group = self._group_of(table.group[was[first]], rank[first])
        ends = np.full((len(first), 2), -1)
        ends[number, np.where(sends, 0, 1)] = ops
        row, pair = was[first], pair[first]
        named = np.array([rows[0] for rows in pairs], dtype=np.int64).reshape(-1, 2)[pair]
        # The order of `MessageMatcher`: a graph folded anew equals the same one built finer.
        order = np.lexsort((row, named[:, 1], named[:, 0], group))
        made = Messages(
            group=group[order],
            source=named[order, 0],
            target=named[order, 1],
            size=table.size[row][order],
            tag=table.tag[row][order],
            send_op=ends[order, 0],
            recv_op=ends[order, 1],
            recorded=table.recorded[row][order],
            eager=table.eager[row][order],
        )
        rows = np.full(len(source), -1)
        rows[ops] = np.argsort(order)[number]
        return made, rows, pairs, pair[order]

    def _pair_of(self, old: Ints, rank: Ints, sends: Bools, offset: list[int]) -> Ints:
        """Return the new orbit of pairs of each end of a message."""
        found = np.empty(len(old), np.int64)
        for at in np.unique(old).tolist():
            axis = self.fold.pairs[_pair(at)]
            for column, side in enumerate((sends, ~sends)):
                mine = (old == at) & side
                orbit = np.full(len(self.fold.stands), -1)
                orbit[axis.rows[:, column]] = axis.orbit
                found[mine] = offset[at] + orbit[rank[mine]]
        return found

    def _rename(self, columns: dict[str, Any], messages: Messages) -> tuple[str, ...]:
        """Name the new peers of messages that are named after the old ones."""
        old, names = self.old, dict.fromkeys(self.old.names)
        place = {name: at for at, name in enumerate(names)}
        sides = (
            (OpKind.SEND, "send to", old.messages.target, messages.target),
            (OpKind.RECV, "recv from", old.messages.source, messages.source),
        )
        for kind, verb, before, now in sides:
            ops = np.flatnonzero(columns["kind"] == kind)
            was, peer = before[old.item[self.source[ops]]], now[columns["item"][ops]]
            world = int(max(was.max(initial=0), peer.max(initial=0))) + 1
            code = (columns["name"][ops] * world + was) * world + peer
            codes, of = np.unique(code, return_inverse=True)
            named = codes // world**2
            for at, known in enumerate(codes.tolist()):
                one, other = divmod(known % world**2, world)
                if one != other and old.names[named[at]] == f"{verb} {one}":
                    named[at] = place.setdefault(f"{verb} {other}", len(place))
            columns["name"][ops] = named[of]
        return tuple(place)

    def _batches(self, old: Ints) -> Ints:
        """Return ids of their own for the batches of every lane."""
        batches, ops = old.copy(), np.flatnonzero(old >= 0)
        batches[ops] = _by_appearance(old[ops] * len(self.ranks) + self.lane[ops])[1]
        return batches

    def _dependencies(self) -> tuple[Ints, Ints, Ints]:
        """Return pointers, ops and delays of all dependencies."""
        old, source = self.old, self.source
        # A copy depends on copies of its own class, which stand in the order of the old lane.
        count = np.diff(old.dep_ptr)
        targets = np.repeat(np.arange(len(old)), count)
        astray = np.flatnonzero(old.lane[old.dep_op] != old.lane[targets])
        if astray.size:
            raise ScenarioError(
                f"graph: {old.describe(int(targets[astray[0]]))} depends on another lane's op;"
                " such a graph can not be folded anew."
            )
        pointer = np.concatenate(([0], np.cumsum(count[source])))
        owner = np.repeat(np.arange(len(source)), count[source])
        entry = old.dep_ptr[source[owner]] + _upto(owner) - pointer[owner]
        dep_op = self.begin[self.lane[owner]] + self.place[old.dep_op[entry]]
        return pointer, dep_op, old.dep_delay[entry]

    def _folding(self, pairs: list[Ints], pair: Ints) -> Folding:
        lane = np.full(len(self.fold.stands), -1)
        lane[self.ranks] = np.arange(len(self.ranks))
        _, orbits = _numbered([axis.orbit for axis in self.fold.groups.values()])
        rows = tuple(self.fold.groups[_group(old)].instances(orbit) for old, orbit in orbits)
        return Folding(lane[self.fold.stands], rows, tuple(pairs), pair)


def _group(at: int) -> str:
    return f"group {at}"


def _pair(at: int) -> str:
    return f"pair {at}"


def _upto(like: Ints) -> Ints:
    return np.arange(len(like))


def _numbered(orbits: list[Ints]) -> tuple[list[int], list[tuple[int, int]]]:
    """Number the orbits of all axes: return each axis's first number, and (axis, orbit) of all."""
    counts = [int(orbit.max(initial=-1)) + 1 for orbit in orbits]
    first = np.concatenate(([0], np.cumsum(counts))).astype(np.int64).tolist()
    return first, [(at, orbit) for at, count in enumerate(counts) for orbit in range(count)]


def _by_appearance(keys: Ints) -> tuple[Ints, Ints]:
    """Return the first place of each different key, ascending, and the number of every key."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    number = np.empty(len(first), np.int64)
    number[order] = np.arange(len(first))
    return first[order].astype(np.int64), number[inverse.reshape(-1)]
