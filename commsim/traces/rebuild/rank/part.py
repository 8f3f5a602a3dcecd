"""
A rank's part of a run, made from its file alone.

It is small compared to the file, so that many ranks can be read in processes of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from commsim.traces.formats import EventKind, ExecutionTrace, KinetoFile, RankRecord
from commsim.traces.rebuild.rank.activity import Activity, activity_of
from commsim.traces.rebuild.rank.calls import RankCollectives
from commsim.traces.rebuild.rank.causes import RankWork
from commsim.traces.rebuild.rank.collectives import collectives_of
from commsim.traces.rebuild.rank.fragment import Fragment, fragment_of
from commsim.traces.rebuild.rank.gloo_waits import unsure_waits
from commsim.traces.rebuild.rank.host_account import HostAccount
from commsim.traces.rebuild.rank.issue_order import issue_order
from commsim.traces.rebuild.rank.own_account import OwnAccount, own_account, window_of
from commsim.traces.rebuild.rank.pace import RankPace, pace_of
from commsim.traces.rebuild.rank.streams import cross_stream
from commsim.traces.rebuild.rank.suspects import Suspect, suspects_of
from commsim.traces.rebuild.rank.threads import pieces_of
from commsim.units import format_time

__all__ = ["RankPart", "rank_part"]

_WORTH_SAYING = 1_000_000_000  # ps: less than a millisecond changes no conclusion


class RankPart(msgspec.Struct, frozen=True, eq=False):
    """A rank's calls and its part of the graph; `zero_ns` is where its clock begins.

    `steps` are the profiled steps by name in ps, `window` the last of them (the whole recording
    without one) on the file's clock. `rank` and `world_size` are -1 if the file does not say.
    `step` is the profiled step in ps, -1 without one; `how` says how its streams were tied, ""
    if there are none; `account` is what its events add up to, None without GPU and Gloo;
    `pace` is how fast its kernels ran, step by step;
    `unsure` is how long its threads waited for Gloo or worked, nobody knows which, in ps;
    `suspects` are kernels that may communicate, of no known library.
    """

    name: str
    rank: int
    world_size: int
    zero_ns: int
    groups: Mapping[str, tuple[int, ...]]
    calls: RankCollectives
    fragment: Fragment
    step: int
    steps: tuple[tuple[str, int], ...]
    window: tuple[int, int]
    how: str
    account: OwnAccount | HostAccount | None
    pace: RankPace
    notes: tuple[str, ...]
    unsure: int = 0
    suspects: tuple[Suspect, ...] = ()


def rank_part(
    file: KinetoFile,
    *,
    rank: int,
    trace: ExecutionTrace | None = None,
    dump: RankRecord | None = None,
    gaps_are_work: bool = False,
) -> RankPart:
    """Cut a rank's recording into calls and work.

    `trace` and `dump` are the Execution Trace and the flight recorder's dump of the same process;
    `gaps_are_work` takes for work what may be waiting for Gloo.

    Raises:
        TraceError: the file has no CPU events.
    """
    activity = activity_of(file, rank, dump)
    calls = collectives_of(activity, trace, dump, gaps_are_work=gaps_are_work)
    issue = issue_order(activity)
    waits, how = cross_stream(activity, issue, calls)
    pieces = pieces_of(activity, issue, gaps_are_work=gaps_are_work)
    work, unsure = RankWork(activity, pieces, waits), unsure_waits(activity)
    return RankPart(
        name=file.name,
        rank=rank,
        world_size=file.world_size,
        zero_ns=file.zero_ns,
        groups=file.groups,
        calls=calls,
        fragment=fragment_of(work, calls),
        step=activity.step.end - activity.step.start if activity.step else -1,
        steps=tuple((event.name, event.end - event.start) for event in activity.steps),
        window=window_of(activity),
        account=own_account(activity),
        pace=pace_of(activity),
        how=how if not activity.gpu.is_gloo.all() else "",
        notes=(
            *file.notes,
            *_lost_end(activity),
            *activity.notes,
            *calls.notes,
            *_unsure(rank, unsure),
        ),
        unsure=unsure,
        suspects=suspects_of(activity),
    )


def _lost_end(activity: Activity) -> Iterator[str]:
    """Yield a note on the end of a step of which a file that was cut has no events left."""
    events, step = activity.file.events, activity.step
    if not activity.file.cut or step is None:
        return
    within = events.take((events.kind != EventKind.ANNOTATION) & (events.start < step.end))
    last = max(int(within.end.max(initial=0)), step.start)
    if step.end - last > _WORTH_SAYING:
        length, until = format_time(step.end - step.start), format_time(last - step.start)
        yield (
            f"rank {activity.rank}: cut off {until} into its step of {length}: the rest counts as"
            " its work, whatever it was."
        )


def _unsure(rank: int, unsure: int) -> Iterator[str]:
    """Yield a note on gaps next to async calls of Gloo, which may be waiting or work."""
    if unsure > _WORTH_SAYING:
        yield (
            f"rank {rank}: {format_time(unsure)} without an event beside async calls of"
            " Gloo are taken for waiting; if they were work, a what-if of host work is off by up to"
            " that much. Record with_stack=True to tell."
        )
