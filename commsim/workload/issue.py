"""
From the calls of one rank to ops: which stream each runs on, and what it waits for.

Blocking calls stand in the rank's main stream. What returns at once runs on another stream and
starts when the main stream has come to it; `wait` holds the main stream until it has ended.
Which stream that is, is the library's: NCCL has one per group, and one per pair of ranks for
sends and receives outside a batch; Gloo hands collectives to worker threads, and matches
messages by tag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from commsim.errors import ScenarioError, did_you_mean
from commsim.graph import Device, GraphBuilder
from commsim.workload.calls import (
    Batch,
    Call,
    Coalesced,
    Compute,
    HostCopy,
    MessageCall,
    NewGroup,
    ObjectCall,
    ProgramCollective,
    ProgramWait,
    Synchronize,
)
from commsim.workload.collective_calls import Meaning, coalesced, meaning, object_meanings
from commsim.workload.program_groups import GroupSection, ranks_text
from commsim.workload.split_check import SplitCheck

__all__ = ["Issuer", "Rank"]

MAIN = "main"
_THREADS = 8  # streams for a Gloo group's ops in flight: the library lets two of them run at once


class Rank(msgspec.Struct):
    """The rank whose calls are being issued.

    `last` is its last main op (or none), `handles` the ops behind each name, `streams` the last
    op of each other stream, `issued` counts its asynchronous ops by group.
    """

    rank: int
    lane: int
    last: list[int] = msgspec.field(default_factory=list)
    handles: dict[str, list[int]] = msgspec.field(default_factory=dict)
    streams: dict[str, int] = msgspec.field(default_factory=dict)
    issued: dict[str, int] = msgspec.field(default_factory=dict)


class Issuer:
    """Turns calls into ops. `library` is that of the groups which name none."""

    def __init__(self, groups: Mapping[str, GroupSection], library: str) -> None:
        self.build = GraphBuilder()
        self._groups = groups
        self._library = {name: group.library or library for name, group in groups.items()}
        self._ids = {
            name: self.build.group(name, group.ranks, library=self._library[name])
            for name, group in groups.items()
        }
        self._splits = SplitCheck(groups)

    def finish(self) -> None:
        """Check what can only be seen once all ranks have issued their calls."""
        self._splits.finish()

    def call(self, state: Rank, name: str, call: Call, where: str) -> None:
        """Add the ops of one call and remember what the next one follows."""
        if isinstance(call, Compute):
            self._compute(state, call)
        elif isinstance(call, HostCopy):
            self._copy(state, call)
        elif isinstance(call, ProgramWait):
            self._wait(state, call, where)
        elif isinstance(call, Synchronize):
            self._join(state, list(state.streams.values()), "synchronize")
        elif isinstance(call, MessageCall):
            op = self._message(state, call, where)
            self._issued(state, [op], returns=call.returns, handle=call.handle)
        elif isinstance(call, Batch):
            self._batch(state, call, where)
        elif isinstance(call, ProgramCollective):
            ranks = self._members(state, call.group, where)
            one = meaning(name, call, ranks, where)
            returns = call.async_ or call.as_ is not None
            self._collective(state, call.group, one, where, returns=returns, handle=call.as_)
        elif isinstance(call, Coalesced):
            group = call.calls[0].group
            one = coalesced(call, self._members(state, group, where), where)
            self._collective(state, group, one, where, returns=call.returns, handle=call.handle)
        elif isinstance(call, ObjectCall):
            for one in object_meanings(name, call, self._members(state, call.group, where), where):
                self._collective(state, call.group, one, where, returns=False, handle=None)
        else:
            assert isinstance(call, NewGroup)  # made before any call is issued; takes no time

    def _compute(self, state: Rank, call: Compute) -> None:
        stream = call.stream or MAIN
        op = self.build.compute(
            state.lane,
            call.duration,
            name=call.name,
            stream=stream,
            after=state.last if call.stream else (),
        )
        self._on(state, stream, op)
        self._issued(state, [op], returns=call.stream is not None, handle=call.as_)

    def _copy(self, state: Rank, call: HostCopy) -> None:
        stream = call.stream or MAIN
        op = self.build.host_copy(
            state.lane,
            call.size,
            way=call.way,
            stream=stream,
            after=state.last if call.stream else (),
        )
        self._on(state, stream, op)
        self._issued(state, [op], returns=call.stream is not None, handle=call.handle)

    def _wait(self, state: Rank, call: ProgramWait, where: str) -> None:
        for name in call.names:
            if name not in state.handles:
                raise ScenarioError(
                    f"{where}: rank {state.rank} has nothing called {name!r} to wait for."
                    f"{did_you_mean(name, state.handles)} A call gets a name by as: {name}."
                )
        after = [op for name in call.names for op in state.handles[name]]
        self._join(state, after, f"wait {', '.join(call.names)}")

    def _join(self, state: Rank, after: list[int], name: str) -> None:
        """Hold the main stream until some ops have ended."""
        state.last = [self.build.compute(state.lane, 0, name=name, stream=MAIN, after=after)]

    def _batch(self, state: Rank, call: Batch, where: str) -> None:
        """Add sends and receives that NCCL runs as one; Gloo runs each by itself."""
        batch, ops = self.build.batch(), []
        for index, one in enumerate(call.calls):
            path = f"{where}.ops.{index}.{one.verb}"
            grouped = self._library.get(one.group) != "gloo"
            ops.append(self._message(state, one, path, batch=batch if grouped else -1))
        self._issued(state, ops, returns=True, handle=call.handle)

    def _message(self, state: Rank, call: MessageCall, where: str, *, batch: int = -1) -> int:
        ranks = self._members(state, call.group, where)
        peer_field = "to" if call.sends else "from"
        if call.peer == state.rank:
            raise ScenarioError(f"{where}.{peer_field}: rank {state.rank} names itself.")
        if call.peer not in ranks:
            raise ScenarioError(
                f"{where}.{peer_field}: rank {call.peer} is not in group {call.group!r}"
                f" {ranks_text(ranks)}."
            )
        stream = self._message_stream(call, batched=batch >= 0) if call.returns else MAIN
        add = self.build.send if call.sends else self.build.recv
        op = add(
            state.lane,
            call.peer,
            call.size,
            group=self._ids[call.group],
            stream=stream,
            name=f"{call.verb} {'to' if call.sends else 'from'} {call.peer}",
            tag=call.tag,
            batch=batch,
            after=state.last if call.returns else (),
            device=Device[call.device.upper()],
        )
        self._on(state, stream, op)
        return op

    def _message_stream(self, call: MessageCall, *, batched: bool) -> str:
        """Name the stream of an isend or irecv: what its library keeps in order."""
        library = self._library[call.group]
        inside = "" if call.group == "world" else f" {call.group}"
        if batched:
            return f"batch{inside}"
        if library == "nccl":  # one communicator of two ranks for both directions
            return f"p2p {call.peer}{inside}"
        stream = f"{call.verb} {call.peer}{inside}"
        return f"{stream} tag {call.tag}" if library == "gloo" else stream

    def _collective(
        self,
        state: Rank,
        group: str,
        one: Meaning,
        where: str,
        *,
        returns: bool,
        handle: str | None,
    ) -> None:
        self._splits.add(group, state.rank, one, where)
        stream = self._collective_stream(state, group) if returns else MAIN
        try:
            op = self.build.collective(
                state.lane,
                self._ids[group],
                one.op,
                one.size,
                stream=stream,
                root=one.root,
                dtype=one.dtype,
                redop=one.redop,
                splits=one.splits,
                after=state.last if returns else (),
                device=Device[one.device.upper()],
            )
        except ScenarioError as error:
            raise ScenarioError(f"{where}: {error}") from None
        self._on(state, stream, op)
        self._issued(state, [op], returns=returns, handle=handle)

    def _collective_stream(self, state: Rank, group: str) -> str:
        stream = f"group {group}"
        if self._library[group] != "gloo":
            return stream
        number = state.issued.get(group, 0)
        state.issued[group] = number + 1
        return f"{stream} {number % _THREADS}"

    def _members(self, state: Rank, name: str, where: str) -> Sequence[int]:
        """Return the ranks of the group that a call names, which must include the caller."""
        if name not in self._groups:
            raise ScenarioError(
                f"{where}.group: no group {name!r}.{did_you_mean(name, self._groups)}"
                f" Known: {', '.join(self._groups)}."
            )
        ranks = self._groups[name].ranks
        if state.rank not in ranks:
            raise ScenarioError(
                f"{where}.group: rank {state.rank} is not in group {name!r} {ranks_text(ranks)}."
            )
        return ranks

    def _on(self, state: Rank, stream: str, op: int) -> None:
        if stream != MAIN:
            state.streams[stream] = op

    def _issued(self, state: Rank, ops: list[int], *, returns: bool, handle: str | None) -> None:
        """Let a blocking call hold what follows; remember one that returned by its handle."""
        if not returns:
            state.last = ops
        elif handle is not None:
            state.handles[handle] = ops
