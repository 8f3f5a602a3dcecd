"""
Matching of collectives: which calls on different ranks are one.

Groups are told apart by (ranks, name); within one, calls are matched by their sequence number
if the trace has one, else the k-th with the k-th in the order of issue. Where a trace does
not say who is in a group, `communicators` infers it, and the collective says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from commsim.errors import TraceError
from commsim.ops import ROOTED
from commsim.traces.rebuild.communicators import GroupKey, Numbered, RankCalls, inferred_groups
from commsim.traces.rebuild.rank import CollectiveCall, RankCollectives
from commsim.units import format_size

__all__ = ["MatchedCollective", "match"]

_FROM_ROOT = ("broadcast", "scatter")  # what no member has without the root


class MatchedCollective(msgspec.Struct, frozen=True):
    """One collective: `calls` by rank. `group_ranks` are all members, recorded or not.

    `numbers` are the places of the calls among those of their ranks. `inferred`: no file says
    which ranks are members. `alone`: one rank's call with unknown partners. `lost`: members
    that are recorded, but not this call of theirs.
    """

    group: str
    group_ranks: tuple[int, ...]
    calls: Mapping[int, CollectiveCall]
    numbers: Mapping[int, int]
    inferred: bool = False
    alone: bool = False
    lost: tuple[int, ...] = ()

    @property
    def first(self) -> CollectiveCall:
        """Return the call of the lowest rank, for what all calls share."""
        return self.calls[min(self.calls)]

    @property
    def op(self) -> str:
        """What the collective does; "" if no file says."""
        return self.first.op

    @property
    def dtype(self) -> str:
        """The type of the elements, "" if no file says."""
        return next((call.dtype for call in self.calls.values() if call.dtype), "")

    @property
    def size(self) -> int:
        """S of nccl-tests, in bytes: the most that any rank holds; -1 if unknown."""
        return max(call.size for call in self.calls.values())


def match(
    ranks: Mapping[int, RankCollectives],
    world: tuple[int, ...],
    known: Mapping[int, Mapping[str, tuple[int, ...]]],
    zeros: Mapping[int, int],
) -> tuple[list[MatchedCollective], list[str]]:
    """Return the collectives in an order that every rank agrees with, and notes.

    `known` are the groups that each rank's file lists; `zeros` is each file's zero in ps.

    Raises:
        TraceError: calls at one position differ; both are shown.
    """
    groups: dict[GroupKey, RankCalls] = {}
    unplaced: RankCalls = {}
    kept: list[MatchedCollective] = []
    for rank, collectives in sorted(ranks.items()):
        for number, call in enumerate(collectives.calls):
            if call.alone:
                kept.append(_alone(rank, number, call, call.group or "unknown"))
            elif call.op == "messages":
                continue
            elif call.ranks:
                of_group = groups.setdefault((call.ranks, call.group), {})
                of_group.setdefault(rank, []).append((number, call))
            else:
                unplaced.setdefault(rank, []).append((number, call))
    whole = frozenset(rank for rank, of_rank in ranks.items() if not of_rank.cut)
    inferred = inferred_groups(unplaced, known, zeros, world, whole)
    names = _names({**groups, **inferred})
    found: list[tuple[int, int, MatchedCollective]] = []
    notes: list[str] = []
    rootless = 0
    every = [(key, calls, False) for key, calls in groups.items()]
    every += [(key, calls, True) for key, calls in inferred.items()]
    for order, (key, calls, guessed) in enumerate(every):
        latest = 0
        if guessed and len(calls) == 1 < len(ranks):
            # No file states the other members, and no other rank has the same calls.
            ((rank, own),) = calls.items()
            kept += [_alone(rank, number, call, names[key]) for number, call in own]
            continue
        placed = _places(calls, {r for r in calls if ranks[r].cut}, zeros)
        kept += [
            _alone(rank, number, call, names[key])
            for rank, own in calls.items()
            for number, call in own
            if all(number != one[0] for _, one in placed[rank])
        ]
        for one in _match_group(names[key], key[0], placed, notes, inferred=guessed):
            if _root_is_absent(one):
                kept += [
                    _alone(rank, one.numbers[rank], call, names[key])
                    for rank, call in one.calls.items()
                ]
                rootless += len(one.calls)
                continue
            lost = tuple(rank for rank in key[0] if rank in ranks and rank not in one.calls)
            collective = replace(one, lost=lost)
            # In the order of the group, whatever the ranks' clocks say.
            latest = max(latest, min(call.start for call in collective.calls.values()))
            found.append((latest, order, collective))
    found += [(one.first.start, len(every) + at, one) for at, one in enumerate(kept)]
    matched = [collective for _, _, collective in sorted(found, key=lambda item: item[:2])]
    _note_unknown(matched, ranks, notes, rootless)
    return matched, notes


def _root_is_absent(collective: MatchedCollective) -> bool:
    """Say whether members of Gloo wait for a root that is not recorded, and for no other."""
    first = collective.first
    place = max(call.root for call in collective.calls.values())
    known = first.op in _FROM_ROOT and 0 <= place < len(collective.group_ranks)
    return (
        known and first.library == "gloo" and collective.group_ranks[place] not in collective.calls
    )


def _alone(rank: int, number: int, call: CollectiveCall, group: str) -> MatchedCollective:
    return MatchedCollective(group, (rank,), {rank: call}, {rank: number}, alone=True)


def _names(groups: Mapping[GroupKey, object]) -> dict[GroupKey, str]:
    """Name each group; two with the same name get their ranks after it."""
    plain = {key: key[1] or "world" for key in groups}
    twice = {name for name in plain.values() if list(plain.values()).count(name) > 1}
    return {key: f"{name} {list(key[0])}" if name in twice else name for key, name in plain.items()}


_Placed = dict[int, list[tuple[int, Numbered]]]


def _places(calls: RankCalls, cut: set[int], zeros: Mapping[int, int]) -> _Placed:
    """Give each call of a group its place: its number if all have one, else that in the order.

    Of a rank whose file was cut any call may be missing: each is put next to the next call of a
    whole rank that it agrees with, one that ran at the same time if there is any.
    """
    if all(call.sequence >= 0 for of_rank in calls.values() for _, call in of_rank):
        return {r: [(one[1].sequence, one) for one in of] for r, of in calls.items()}
    whole = next((rank for rank in calls if rank not in cut), -1)
    return {
        rank: list(enumerate(own))
        if rank not in cut or whole < 0
        else list(_beside(own, calls[whole], zeros[rank] - zeros[whole]))
        for rank, own in calls.items()
    }


def _beside(
    own: Sequence[Numbered], reference: Sequence[Numbered], ahead: int
) -> Iterator[tuple[int, Numbered]]:
    """Yield the calls of a cut file with their places in the order of another rank.

    Where the clocks agree (some call ran beside its like) every call must have.
    """
    clocks_agree = any(
        _same(call, other) and _at_once(call, other, ahead)
        for _, call in own
        for _, other in reference
    )
    following = 0
    for one in own:
        place = next(
            (
                place
                for place in range(following, len(reference))
                if _same(one[1], reference[place][1])
                and (not clocks_agree or _at_once(one[1], reference[place][1], ahead))
            ),
            None,
        )
        if place is not None:
            following = place + 1
            yield place, one


def _at_once(one: CollectiveCall, other: CollectiveCall, ahead: int) -> bool:
    return one.start + ahead <= other.end and other.start <= one.end + ahead


def _same(one: CollectiveCall, other: CollectiveCall) -> bool:
    """Say whether two calls could be the two sides of one collective."""
    same_size = one.size == other.size or "all_to_all" in one.op or one.op in ROOTED
    same_dtype = one.dtype == other.dtype or not (one.dtype and other.dtype)
    return one.op == other.op and same_dtype and same_size


def _match_group(
    name: str, ranks: tuple[int, ...], placed: _Placed, notes: list[str], *, inferred: bool
) -> list[MatchedCollective]:
    at: dict[int, dict[int, CollectiveCall]] = {}
    numbers: dict[int, dict[int, int]] = {}
    for rank, of_rank in placed.items():
        for place, (number, call) in of_rank:
            at.setdefault(place, {})[rank] = call
            numbers.setdefault(place, {})[rank] = number
    found = []
    for position, together in sorted(at.items()):
        _check_same(name, position, together)
        found.append(MatchedCollective(name, ranks, together, numbers[position], inferred))
        if len({call.size for call in together.values()}) > 1 and found[-1].op == "all_to_all":
            notes.append(
                f"group {name!r}, call {position}: the ranks of an all_to_all send different"
                " amounts, and the trace has no splits; the largest is taken, evenly split."
            )
    return found


def _check_same(name: str, position: int, together: Mapping[int, CollectiveCall]) -> None:
    """Op, type and (if all ranks hold the same) size must agree."""
    ranks = sorted(together)
    first = together[ranks[0]]
    for rank in ranks[1:]:
        call = together[rank]
        if not _same(first, call):
            raise TraceError(
                f"call {position} on group {name!r} differs between ranks:\n"
                f"  rank {ranks[0]}: {_show(first)}\n"
                f"  rank {rank}: {_show(call)}\n"
                "Are these files of one run, and of the same steps?"
            )


def _show(call: CollectiveCall) -> str:
    size = format_size(call.size) if call.size >= 0 else "unknown size"
    return f"{call.op or 'unknown op'} of {size}" + (f", {call.dtype}" if call.dtype else "")


def _note_unknown(
    found: list[MatchedCollective],
    ranks: Mapping[int, RankCollectives],
    notes: list[str],
    rootless: int,
) -> None:
    if rootless:
        notes.append(
            f"{rootless} calls of Gloo wait for a root that is not recorded: they keep the time"
            " that was recorded, waits included."
        )
    gone: dict[int, int] = {}
    for collective in found:
        for rank in collective.lost:
            gone[rank] = gone.get(rank, 0) + 1
    for rank, count in sorted(gone.items()):
        notes.append(
            f"rank {rank}: {count} collectives of its groups are not in its recording"
            f"{', which was cut' if ranks[rank].cut else ''}: they are replayed without it, and"
            " what others waited for it counts as transfer."
        )
    unsized = sum(c.size < 0 and not c.alone for c in found)
    if unsized:
        notes.append(
            f"{unsized} of {len(found)} collectives have no known size: the trace has no"
            " arguments for them, and no Execution Trace of the same run was given."
        )
    nameless = sum(c.alone and c.first.library in ("nccl", "gloo") for c in found) - rootless
    if nameless:
        notes.append(
            f"{nameless} communication kernels do not say what they do or with whom: they keep the"
            " time that was recorded, waits included."
        )
    inferred = [collective for collective in found if collective.inferred]
    if inferred:
        names = dict.fromkeys(collective.group for collective in inferred)
        notes.append(
            f"{len(inferred)} of {len(found)} collectives do not say which ranks form their group:"
            f" inferred from streams, order and times ({len(names)} groups: "
            f"{', '.join([*names][:6])}{', ...' if len(names) > 6 else ''})."
        )
