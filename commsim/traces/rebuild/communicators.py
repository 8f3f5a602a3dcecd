"""
Inferred communicators: which calls on which ranks share one, if no file says.

NCCL without process-group arguments: each process group has a stream of its own, so a stream of
a rank is a communicator of it. Streams of two ranks are the same communicator if their calls
agree one by one and end together. Gloo without a flight recorder: the file lists the groups of
its rank; calls of one op and size are taken to be of the largest group whose members all made
them, and could have run them together, each before any of them left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median

import msgspec

from commsim.ops import ROOTED
from commsim.traces.rebuild.rank import CollectiveCall

__all__ = ["GroupKey", "Numbered", "RankCalls", "inferred_groups"]

GroupKey = tuple[tuple[int, ...], str]
Numbered = tuple[int, CollectiveCall]
RankCalls = dict[int, list[Numbered]]
_Signature = tuple[str, int, str, int]

_SCATTER = 200_000_000  # ps: members of one collective leave within this, on hosts apart too
_SCATTER_SHARE = 0.1  # or within this share of the call's own length
_MISFITS = 0.1  # share of calls that may leave early (a thread that was not scheduled)


class _Stream(msgspec.Struct, frozen=True):
    """The calls of one stream of one rank that do not say their group."""

    rank: int
    number: int
    calls: list[Numbered]


def inferred_groups(
    unplaced: Mapping[int, Sequence[Numbered]],
    known: Mapping[int, Mapping[str, tuple[int, ...]]],
    zeros: Mapping[int, int],
    world: tuple[int, ...],
    whole: Collection[int] = (),
) -> dict[GroupKey, RankCalls]:
    """Return the calls of every rank by the group that they are taken to be of.

    `known` are the groups that each rank's file lists, `zeros` each file's zero in ps, `whole` the
    ranks whose files do not end in the middle: they have their part in every call.
    """
    found: dict[GroupKey, RankCalls] = {}
    gloo: RankCalls = {}
    streams: list[_Stream] = []
    for rank, calls in unplaced.items():
        by_stream: dict[int, list[Numbered]] = {}
        for number, call in calls:
            if call.library == "gloo" and len(known.get(rank, ())) > 1:
                gloo.setdefault(rank, []).append((number, call))
            else:
                stream = call.stream if call.library != "gloo" else 0
                by_stream.setdefault(stream, []).append((number, call))
        streams += [_Stream(rank, n, found) for n, found in by_stream.items()]
    for key, calls_of in (
        *_by_stream(streams, world),
        *_by_known_groups(gloo, known, zeros, whole),
    ):
        found.setdefault(key, {}).update(
            {rank: [*found.get(key, {}).get(rank, ()), *calls] for rank, calls in calls_of.items()}
        )
    return {key: {r: sorted(c) for r, c in of.items()} for key, of in found.items()}


def _by_stream(
    streams: Iterable[_Stream], world: tuple[int, ...]
) -> Iterable[tuple[GroupKey, RankCalls]]:
    """Yield the communicators that streams stand for, those of one number compared first."""
    classes: list[tuple[_Stream, RankCalls]] = []  # the first stream, and the calls of all
    for stream in streams:
        candidates = [one for one in classes if stream.rank not in one[1]]
        candidates.sort(key=lambda one: one[0].number != stream.number)
        alike = (c for first, c in candidates if _one_communicator(first.calls, stream.calls))
        home = next(alike, None)
        if home is None:
            classes.append((stream, {stream.rank: stream.calls}))
        else:
            home[stream.rank] = stream.calls
    recorded = {rank for _, calls in classes for rank in calls}
    names: dict[str, int] = {}
    for first, calls in classes:
        whole = set(calls) == recorded
        name = "world" if len(classes) == 1 else f"stream {first.number}"
        names[name] = names.get(name, 0) + 1
        label = name if names[name] == 1 else f"{name} of rank {first.rank}"
        yield (world if whole else tuple(sorted(calls)), label), calls


def _one_communicator(one: Sequence[Numbered], other: Sequence[Numbered]) -> bool:
    """Say whether two ranks' calls could be the two sides of the same collectives."""
    pairs = [(a, b) for (_, a), (_, b) in zip(one, other, strict=False)]
    if not all(_agree(a, b) for a, b in pairs):
        return False
    together = [(a, b) for a, b in pairs if a.op not in ROOTED]
    if len(together) < 2:
        return True  # one end fits any offset between two clocks
    apart = [a.end - b.end for a, b in together]
    middle = median(apart)
    length = median(min(a.end - a.start, b.end - b.start) for a, b in together)
    scatter = median(abs(lead - middle) for lead in apart)
    return scatter <= max(_SCATTER, _SCATTER_SHARE * length)


def _agree(one: CollectiveCall, other: CollectiveCall) -> bool:
    if one.library != other.library or one.op != other.op:
        return False
    if one.dtype and other.dtype and one.dtype != other.dtype:
        return False
    same_size = one.size < 0 or other.size < 0 or one.size == other.size
    return same_size or one.op in ROOTED or one.op.startswith("all_to_all")


def _by_known_groups(
    unplaced: RankCalls,
    known: Mapping[int, Mapping[str, tuple[int, ...]]],
    zeros: Mapping[int, int],
    whole: Collection[int],
) -> Iterable[tuple[GroupKey, RankCalls]]:
    """Yield the calls of each listed group, one op and size at a time."""
    by_signature: dict[_Signature, RankCalls] = {}
    for rank, calls in unplaced.items():
        for number, call in calls:
            signature = (call.op, call.size, call.dtype, call.members)
            by_signature.setdefault(signature, {}).setdefault(rank, []).append((number, call))
    for signature, calls_of in by_signature.items():
        candidates = _candidates(signature, calls_of, known, whole)
        yield from _placed(calls_of, candidates, zeros)


def _candidates(
    signature: _Signature,
    calls_of: RankCalls,
    known: Mapping[int, Mapping[str, tuple[int, ...]]],
    whole: Collection[int],
) -> dict[GroupKey, tuple[int, int]]:
    """Return the groups that could run calls of this op and size, in the order they are tried in.

    First those with the fewest members that made no such call, though their files are whole; of
    these the largest. The values are that order.
    """
    members = signature[3]
    listed = dict.fromkeys(
        (ranks, name)
        for rank in calls_of
        for name, ranks in known[rank].items()
        if len(ranks) > 1 and (members <= 0 or len(ranks) == members)
    )
    lacking = set(whole) - set(calls_of)
    order = {key: (len(lacking.intersection(key[0])), -len(key[0])) for key in listed}
    return dict(sorted(order.items(), key=lambda item: item[1]))


def _placed(
    calls_of: RankCalls, candidates: Mapping[GroupKey, tuple[int, int]], zeros: Mapping[int, int]
) -> Iterable[tuple[GroupKey, RankCalls]]:
    """Yield calls by group: all of a rank's calls in one group if that is possible."""
    fits = {key: _fit(key, calls_of, zeros) for key in candidates}
    left = dict(calls_of)
    possible = [key for key in candidates if fits[key][0] <= _MISFITS]
    for key in sorted(possible, key=lambda key: (candidates[key], fits[key][1])):
        members = [rank for rank in key[0] if rank in calls_of]
        if all(rank in left for rank in members):
            yield key, {rank: left.pop(rank) for rank in members}
    yield from _one_by_one(left, tuple(candidates), zeros)


def _fit(key: GroupKey, calls_of: RankCalls, zeros: Mapping[int, int]) -> tuple[float, int]:
    """Return the share of calls that cannot be of this group, and how far their ends scatter."""
    mine = {rank: calls_of[rank] for rank in key[0] if rank in calls_of}
    counts = {len(calls) for calls in mine.values()}
    if len(mine) < 2 or len(counts) > 1:
        return 1.0, 0
    misfits, scatter = 0, 0
    for at in range(counts.pop()):
        spread = _spread({rank: calls[at][1] for rank, calls in mine.items()}, zeros)
        misfits += spread < 0
        scatter += max(0, spread)
    return misfits / len(next(iter(mine.values()))), scatter


def _spread(together: Mapping[int, CollectiveCall], zeros: Mapping[int, int]) -> int:
    """Return how far apart the members leave, in ps; -1 if one left before another came."""
    starts = [zeros[rank] + call.start for rank, call in together.items()]
    ends = [zeros[rank] + call.end for rank, call in together.items()]
    return max(ends) - min(ends) if min(ends) >= max(starts) else -1


def _one_by_one(
    left: RankCalls, candidates: Sequence[GroupKey], zeros: Mapping[int, int]
) -> Iterable[tuple[GroupKey, RankCalls]]:
    """Yield calls of one op and size that are of several groups, each if its next calls fit."""
    queues = {rank: list(calls) for rank, calls in left.items()}
    found: dict[GroupKey, RankCalls] = {}
    while any(queues.values()):
        key = _next_group(queues, candidates, zeros)
        for rank in key[0]:
            if queues.get(rank):
                found.setdefault(key, {}).setdefault(rank, []).append(queues[rank].pop(0))
    yield from found.items()


def _next_group(
    queues: RankCalls, candidates: Sequence[GroupKey], zeros: Mapping[int, int]
) -> GroupKey:
    """Return the largest group whose members' next calls can be one; else one of the first rank."""
    for key in candidates:
        members = [rank for rank in key[0] if rank in queues]
        if len(members) > 1 and all(queues[rank] for rank in members):
            heads = {rank: queues[rank][0][1] for rank in members}
            if _spread(heads, zeros) >= 0:
                return key
    first = min(
        (rank for rank in queues if queues[rank]),
        key=lambda rank: zeros[rank] + queues[rank][0][1].start,
    )
    own = [key for key in candidates if first in key[0]]
    return own[-1] if own else ((first,), "unknown")
