"""
A program: what each rank calls, in order, as with torch.distributed.

Blocking calls and compute stand in the rank's main stream. isend and irecv return at once and
run on a stream of their own per peer and direction; an asynchronous collective runs on its
group's stream. Both start when the main stream has come to them, and a `wait` holds the main
stream until they have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from commsim.errors import ScenarioError, did_you_mean
from commsim.graph import GraphBuilder
from commsim.sections import Section
from commsim.workload.calls import (
    WORLD,
    CollectiveCall,
    Compute,
    MessageCall,
    Wait,
    read_call,
)
from commsim.workload.collectives import check_call
from commsim.workload.result import Workload

__all__ = ["GroupSection", "ProgramSection", "build_program"]

MAIN = "main"


class GroupSection(Section, frozen=True, kw_only=True):
    """A group that names its library; `library` "" is the scenario's."""

    ranks: tuple[int, ...]
    library: str = ""


class ProgramSection(Section, frozen=True, kw_only=True):
    """What a user writes under `program`.

    `ranks` maps a rank to its calls; "all" holds the calls of every rank that has no list of
    its own. The group "world" is all ranks.
    """

    ranks: dict[int | str, list[Any]]
    groups: dict[str, tuple[int, ...] | GroupSection] = {}


@dataclass(slots=True)
class _Rank:
    """The rank whose calls are being issued: its last main op (or none) and open handles."""

    rank: int
    lane: int
    last: list[int] = field(default_factory=list)
    handles: dict[str, int] = field(default_factory=dict)


def build_program(
    section: ProgramSection, *, world_size: int | None = None, where: str = "program"
) -> Workload:
    """Return the graph of the program.

    `world_size` is the cluster's; without one it is the highest rank that the program names,
    plus one. A program in which ranks wait for each other builds: it deadlocks when it runs.

    Raises:
        ScenarioError: an unknown call, group or handle, a rank outside the world, ranks that
            issue different collectives, ... with the path of the call.
    """
    calls = _read_ranks(section, where)
    groups = {name: _group(entry) for name, entry in section.groups.items()}
    world = world_size if world_size is not None else _highest_rank(calls, groups) + 1
    groups = {WORLD: GroupSection(ranks=tuple(range(world))), **groups}
    _check_groups(groups, world, where)
    issue = _Issuer(groups)
    for rank, source, listed in _programs(calls, world, where):
        state = _Rank(rank, issue.build.lane(rank))
        for index, (name, call) in enumerate(listed):
            issue.call(state, name, call, f"{where}.ranks.{source}[{index}].{name}")
    try:
        return Workload("program", issue.build.build())
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None


class _Issuer:
    """Turns calls into ops."""

    def __init__(self, groups: dict[str, GroupSection]) -> None:
        self.build = GraphBuilder()
        self.groups = groups
        self.ids = {
            name: self.build.group(name, group.ranks, library=group.library)
            for name, group in groups.items()
        }

    def call(self, state: _Rank, name: str, call: Any, where: str) -> None:
        """Add the op of one call and remember what the next one follows."""
        if isinstance(call, Compute):
            op = self.build.compute(state.lane, call.duration, name=call.name, stream=MAIN)
            state.last = [op]
        elif isinstance(call, Wait):
            self._wait(state, call, where)
        elif isinstance(call, MessageCall):
            self._message(state, call, where)
        else:
            self._collective(state, name, call, where)

    def _wait(self, state: _Rank, call: Wait, where: str) -> None:
        for name in call.names:
            if name not in state.handles:
                raise ScenarioError(
                    f"{where}: rank {state.rank} has nothing called {name!r} to wait for."
                    f"{did_you_mean(name, state.handles)} A call gets a name by as: {name}."
                )
        after = [state.handles[name] for name in call.names]
        label = f"wait {', '.join(call.names)}"
        state.last = [self.build.compute(state.lane, 0, name=label, stream=MAIN, after=after)]

    def _message(self, state: _Rank, call: MessageCall, where: str) -> None:
        group = self._group_of(state, call.group, where)
        peer_field = "to" if call.sends else "from"
        if call.peer == state.rank:
            raise ScenarioError(f"{where}.{peer_field}: rank {state.rank} names itself.")
        if call.peer not in group.ranks:
            raise ScenarioError(
                f"{where}.{peer_field}: rank {call.peer} is not in group {call.group!r}"
                f" {_ranks(group.ranks)}."
            )
        add = self.build.send if call.sends else self.build.recv
        op = add(
            state.lane,
            call.peer,
            call.size,
            group=self.ids[call.group],
            stream=_message_stream(call, group) if call.returns else MAIN,
            name=f"{call.verb} {'to' if call.sends else 'from'} {call.peer}",
            tag=call.tag,
            after=state.last if call.returns else (),
        )
        self._issued(state, op, returns=call.returns, handle=call.handle)

    def _collective(self, state: _Rank, name: str, call: CollectiveCall, where: str) -> None:
        group = self._group_of(state, call.group, where)
        check_call(
            name,
            size=call.bytes,
            root=call.root,
            has_splits=call.splits is not None,
            ranks=group.ranks,
            where=where,
        )
        if call.splits is not None and len(call.splits) != len(group.ranks):
            raise ScenarioError(
                f"{where}.splits: {len(call.splits)} sizes for the {len(group.ranks)} members of"
                f" group {call.group!r}."
            )
        returns = call.async_ or call.as_ is not None
        try:
            op = self.build.collective(
                state.lane,
                self.ids[call.group],
                name,
                sum(call.splits) if call.splits is not None else (call.bytes or 0),
                stream=f"group {call.group}" if returns else MAIN,
                root=-1 if call.root is None else call.root,
                dtype=call.dtype,
                splits=call.splits,
                after=state.last if returns else (),
            )
        except ScenarioError as error:
            raise ScenarioError(f"{where}: {error}") from None
        self._issued(state, op, returns=returns, handle=call.as_)

    def _group_of(self, state: _Rank, name: str, where: str) -> GroupSection:
        if name not in self.groups:
            raise ScenarioError(
                f"{where}.group: no group {name!r}.{did_you_mean(name, self.groups)}"
                f" Known: {', '.join(self.groups)}."
            )
        group = self.groups[name]
        if state.rank not in group.ranks:
            raise ScenarioError(
                f"{where}.group: rank {state.rank} is not in group {name!r} {_ranks(group.ranks)}."
            )
        return group

    def _issued(self, state: _Rank, op: int, *, returns: bool, handle: str | None) -> None:
        """Let a blocking call hold what follows; remember one that returned by its handle."""
        if not returns:
            state.last = [op]
        elif handle is not None:
            state.handles[handle] = op


def _message_stream(call: MessageCall, group: GroupSection) -> str:
    """Name the stream of an isend or irecv: what one communicator keeps in order.

    Gloo matches by tag, so messages of different tags may overtake each other there.
    """
    stream = f"{call.verb} {call.peer}"
    if call.group != WORLD:
        stream += f" {call.group}"
    return f"{stream} tag {call.tag}" if group.library == "gloo" else stream


Calls = dict[int | str, list[tuple[str, Any]]]


def _read_ranks(section: ProgramSection, where: str) -> Calls:
    """Return the typed calls of each rank, and those of "all"."""
    if not section.ranks:
        raise ScenarioError(f"{where}.ranks: no rank calls anything.")
    calls: Calls = {}
    for key, listed in section.ranks.items():
        path = f"{where}.ranks.{key}"
        rank = int(key) if isinstance(key, str) and key.isdecimal() else key
        if (isinstance(rank, str) and rank != "all") or (isinstance(rank, int) and rank < 0):
            raise ScenarioError(f"{path}: {key!r} is not a rank. Write a number, or all.")
        if rank in calls:
            raise ScenarioError(f"{path}: rank {rank} is listed twice.")
        calls[rank] = [
            read_call(call, where=f"{path}[{index}]") for index, call in enumerate(listed)
        ]
    return calls


def _programs(
    calls: Calls, world: int, where: str
) -> list[tuple[int, int | str, list[tuple[str, Any]]]]:
    """Return (rank, the key it is listed under, its calls), by rank."""
    outside = [rank for rank in calls if isinstance(rank, int) and rank >= world]
    if outside:
        raise ScenarioError(
            f"{where}.ranks.{outside[0]}: no such rank: there are {world} ranks (0..{world - 1})."
        )
    keys = [(rank, rank if rank in calls else "all") for rank in range(world)]
    return [(rank, key, calls[key]) for rank, key in keys if key in calls]


def _highest_rank(calls: Calls, groups: dict[str, GroupSection]) -> int:
    named = [rank for rank in calls if isinstance(rank, int)]
    named += [rank for group in groups.values() for rank in group.ranks]
    listed = [call for calls_of in calls.values() for _, call in calls_of]
    named += [call.peer for call in listed if isinstance(call, MessageCall)]
    return max(named, default=0)


def _check_groups(groups: dict[str, GroupSection], world: int, where: str) -> None:
    for name, group in groups.items():
        outside = [rank for rank in group.ranks if not 0 <= rank < world]
        if outside:
            raise ScenarioError(
                f"{where}.groups.{name}: no rank {outside[0]}: there are {world} ranks"
                f" (0..{world - 1})."
            )
        if not group.ranks or len(set(group.ranks)) < len(group.ranks):
            raise ScenarioError(
                f"{where}.groups.{name}: give at least one rank, and each only once."
            )


def _group(entry: Sequence[int] | GroupSection) -> GroupSection:
    return entry if isinstance(entry, GroupSection) else GroupSection(ranks=tuple(entry))


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:16])
    return f"[{shown}{', ...' if len(ranks) > 16 else ''}]"
