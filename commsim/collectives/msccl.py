"""
Custom algorithms: an MSCCL XML file as a chunk program, proven right before it is used.

What a thread block does is cut into events: receiving, working locally, sending. An event comes
after the one before it in its block, after the step that it waits for (`depid`, `deps`), and a
receive after its send. A send leaves its data in a buffer of the connection, as NCCL's do, so
it does not wait for the receiver. Local copies and sums take no time here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.collectives.checker import check
from commsim.collectives.msccl_file import MscclAlgorithm, MscclStep, ThreadBlock, Where, read_msccl
from commsim.collectives.msccl_places import Places
from commsim.collectives.program import Program
from commsim.errors import ScenarioError
from commsim.input_files import is_stream

__all__ = ["Custom", "is_msccl_file", "load_msccl"]


_MOST_STATE = 1 << 27  # counters that the proof may take
_MOST_EVENTS = 20_000  # above, races are not looked for: that takes their square in bits
_SHOWN = 4
_SUB = 4  # steps of a program per level: local copy, then transfer


class Custom(msgspec.Struct, frozen=True, eq=False):
    """A custom algorithm: its program, and what its file says of it. Sizes in bytes."""

    name: str
    program: Program
    channels: int
    protocol: str
    least: int
    most: int


def is_msccl_file(algorithm: str) -> bool:
    """Say whether an algorithm is given by an MSCCL file (.xml, or a pipe), and not by name."""
    return algorithm.endswith(".xml") or is_stream(algorithm)


def load_msccl(path: str | Path) -> Custom:
    """Read an MSCCL XML file and prove that it does what its collective promises.

    Raises:
        ScenarioError: the file cannot be read, its steps wait for each other in a circle, two
            steps race for a chunk, or the algorithm is wrong; says which rank and chunk.
    """
    algorithm = read_msccl(path)
    try:
        translation = _Translation(algorithm)
        program = translation.program()
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None
    problems, race = check(program)[:_SHOWN], translation.race()
    if problems:
        told = " ".join([*problems, *race])
        raise ScenarioError(f"{path}: not a correct {algorithm.op}. {told}")
    if race:
        raise ScenarioError(f"{path}: {race[0]}")
    return Custom(
        algorithm.name,
        program,
        algorithm.channels,
        algorithm.protocol,
        algorithm.least,
        algorithm.most,
    )


class _Event(msgspec.Struct):
    """What one step does at one moment: "receive", "send" or "local"."""

    block: ThreadBlock
    step: MscclStep
    what: str
    before: list[int]
    level: int = -1
    needs: dict[tuple[int, int], int] | None = None  # last message needed, per (source, channel)

    @property
    def where(self) -> str:
        return f"gpu {self.block.gpu}, tb {self.block.number}, step {self.step.number}"


class _Message(msgspec.Struct, frozen=True):
    """A message, or a copy within a rank: rows of (place there, place here)."""

    step: int
    source: int
    target: int
    adds: bool
    rows: tuple[list[int], list[int]]
    event: int
    connection: tuple[int, int, int, int] | None = None  # source, target, channel, position


class _Translation:
    """Turns a file's steps into events, gives them levels, and the levels into a program."""

    def __init__(self, algorithm: MscclAlgorithm) -> None:
        self._algorithm = algorithm
        self._places = Places(algorithm)
        self._events: list[_Event] = []
        self._pair: dict[int, int] = {}  # receive -> send
        self._position: dict[int, tuple[int, int, int, int]] = {}  # receive -> connection
        self._stored: dict[int, list[int]] = {}  # send -> places that its data is in
        self._make_events()
        self._match()
        self._order = self._levels()

    def program(self) -> Program:
        """Return the chunk program, steps renumbered without gaps."""
        self._check_size()
        messages = self._messages()
        messages.sort(key=lambda m: m.step)
        rows = [len(m.rows[0]) for m in messages]
        steps = np.unique([m.step for m in messages], return_inverse=True)[1].reshape(-1)
        places = self._places.total
        return Program(
            op=self._algorithm.op,
            algorithm=self._algorithm.name,
            n=self._algorithm.n,
            root=self._places.root,
            share=np.full(places, 1 / self._algorithm.chunks),
            message=np.repeat(np.arange(len(messages)), rows),
            chunk=_flat([m.rows[0] for m in messages]),
            step=steps.astype(np.int64),
            source=np.array([m.source for m in messages], dtype=np.int64),
            target=np.array([m.target for m in messages], dtype=np.int64),
            reduce=np.array([m.adds for m in messages], dtype=np.bool_),
            phase=np.zeros(len(messages), dtype=np.int64),
            into=_flat([m.rows[1] for m in messages]),
            layout=self._places.layout(),
            needs=self._needs(messages),
        )

    def _check_size(self) -> None:
        n = self._algorithm.n
        if n * n * self._places.total > _MOST_STATE:
            raise ScenarioError(
                f"{n} GPUs with {self._places.total} chunks each are too many to prove it right."
            )

    def _make_events(self) -> None:
        last: dict[tuple[int, int, int], int] = {}  # (gpu, block, step) -> its last event
        for block in self._algorithm.blocks:
            before: list[int] = []
            for step in block.steps:
                for what in _parts(step):
                    self._events.append(_Event(block, step, what, before))
                    before = [len(self._events) - 1]
                last[block.gpu, block.number, step.number] = len(self._events) - 1
        first: set[tuple[int, int, int]] = set()
        for event in self._events:
            key = (event.block.gpu, event.block.number, event.step.number)
            if event.step.after is None or key in first:
                continue
            first.add(key)
            awaited = (event.block.gpu, *event.step.after)
            if awaited not in last:
                raise ScenarioError(
                    f"{event.where}: waits for tb {awaited[1]}, step {awaited[2]}, which is not"
                    " there."
                )
            event.before = [*event.before, last[awaited]]

    def _match(self) -> None:
        """Pair the sends and receives of each connection in their order."""
        sends: dict[tuple[int, int, int], list[int]] = {}
        receives: dict[tuple[int, int, int], list[int]] = {}
        owner: dict[tuple[str, int, int, int], int] = {}
        for number, event in enumerate(self._events):
            block = event.block
            if event.what == "local":
                continue
            ends = (block.gpu, block.send) if event.what == "send" else (block.receive, block.gpu)
            connection = (*ends, block.channel)
            if owner.setdefault((event.what, *connection), block.number) != block.number:
                raise ScenarioError(
                    f"{event.where}: another thread block already {event.what}s between gpu"
                    f" {ends[0]} and gpu {ends[1]} on channel {block.channel}."
                )
            (sends if event.what == "send" else receives).setdefault(connection, []).append(number)
        for connection in dict.fromkeys((*sends, *receives)):
            self._pair_up(connection, sends.get(connection, []), receives.get(connection, []))

    def _pair_up(
        self, connection: tuple[int, int, int], sent: list[int], received: list[int]
    ) -> None:
        a, b, channel = connection
        if len(sent) != len(received):
            raise ScenarioError(
                f"on channel {channel} gpu {a} sends {len(sent)} times to gpu {b}, which receives"
                f" {len(received)} times."
            )
        for position, (send, receive) in enumerate(zip(sent, received, strict=True)):
            counts = self._events[send].step.count, self._events[receive].step.count
            if counts[0] != counts[1]:
                raise ScenarioError(
                    f"{self._events[send].where} sends {counts[0]} chunks,"
                    f" {self._events[receive].where} receives {counts[1]} of them."
                )
            self._pair[receive] = send
            self._position[receive] = (a, b, channel, position)

    def _levels(self) -> list[int]:
        """Give every event one more than the highest level before it; return them in order."""
        after: list[list[int]] = [[] for _ in self._events]
        waits = [0] * len(self._events)
        for number, event in enumerate(self._events):
            for earlier in self._before(number, event):
                after[earlier].append(number)
                waits[number] += 1
        ready = [number for number, count in enumerate(waits) if count == 0]
        for number in ready:  # grows as events become ready
            event = self._events[number]
            event.level = 1 + max(
                (self._events[e].level for e in self._before(number, event)), default=-1
            )
            for later in after[number]:
                waits[later] -= 1
                if waits[later] == 0:
                    ready.append(later)
        if len(ready) < len(self._events):
            stuck = [e.where for e, count in zip(self._events, waits, strict=True) if count]
            shown = "; ".join(list(dict.fromkeys(stuck))[:_SHOWN])
            raise ScenarioError(f"steps wait for each other in a circle: {shown}.")
        return ready

    def _before(self, number: int, event: _Event) -> list[int]:
        return [*event.before, self._pair[number]] if number in self._pair else event.before

    def _messages(self) -> list[_Message]:
        """Return the messages of all events; note what each send carries, and from where."""
        found: list[_Message] = []
        for number in self._order:
            event = self._events[number]
            if event.what == "local":
                found += self._local(number, event)
            elif event.what == "send":
                self._stored.setdefault(number, self._at(event, event.step.source))
            else:
                found += self._received(number, event)
        return self._keep_in_flight(found)

    def _at(self, event: _Event, where: Where) -> list[int]:
        return self._places.of(event.block.gpu, where, event.step.count, event.where)

    def _local(self, number: int, event: _Event) -> Iterator[_Message]:
        if event.step.kind in ("cpy", "re"):
            gpu = event.block.gpu
            rows = (self._at(event, event.step.source), self._at(event, event.step.target))
            adds = event.step.kind == "re"
            yield _Message(event.level * _SUB, gpu, gpu, adds, rows, number)

    def _received(self, number: int, event: _Event) -> Iterator[_Message]:
        step, gpu = event.step, event.block.gpu
        adds = step.kind in ("rrs", "rrc", "rrcs")
        into = (
            self._places.spare(gpu, step.count)
            if step.kind == "rrs"
            else self._at(event, step.target)
        )
        if adds:
            own = self._at(event, step.source)
            if own != into:
                yield _Message(event.level * _SUB, gpu, gpu, False, (own, into), number)
        if step.sends:
            self._stored[number + 1] = into  # its send is the next event
        send = self._pair[number]
        rows = (self._stored[send], into)
        source = self._events[send].block.gpu
        yield _Message(
            event.level * _SUB + 1, source, gpu, adds, rows, number, self._position[number]
        )

    def _keep_in_flight(self, messages: list[_Message]) -> list[_Message]:
        """Copy aside what is overwritten at its source between being sent and being received."""
        written: dict[tuple[int, int], list[int]] = {}
        for message in messages:
            for place in message.rows[1]:
                written.setdefault((message.target, place), []).append(message.step)
        found: list[_Message] = []
        for message in messages:
            if message.connection is not None:
                send = self._pair[message.event]
                left = self._events[send].level * _SUB
                if any(
                    left <= step < message.step
                    for place in message.rows[0]
                    for step in written.get((message.source, place), ())
                ):
                    aside = self._places.spare(message.source, len(message.rows[0]))
                    found.append(
                        _Message(
                            left,
                            message.source,
                            message.source,
                            False,
                            (message.rows[0], aside),
                            send,
                        )
                    )
                    message = _Message(
                        message.step,
                        message.source,
                        message.target,
                        message.adds,
                        (aside, message.rows[1]),
                        message.event,
                        message.connection,
                    )
            found.append(message)
        return found

    def _needs(self, messages: list[_Message]) -> tuple[Ints, Ints]:
        """Return as CSR the messages that must have arrived before each message may leave.

        Messages of a connection arrive in order, so the last of each is enough.
        """
        done: list[dict[tuple[int, int], int]] = [{} for _ in self._events]
        for number in self._order:
            event = self._events[number]
            needed: dict[tuple[int, int], int] = {}
            for earlier in event.before:
                for key, position in done[earlier].items():
                    needed[key] = max(needed.get(key, -1), position)
            event.needs = needed
            done[number] = dict(needed)
            if number in self._position:
                source, _, channel, position = self._position[number]
                done[number][source, channel] = position
        index = {m.connection: i for i, m in enumerate(messages) if m.connection is not None}
        ptr, dep = [0], []
        for message in messages:
            leaving = self._pair[message.event] if message.connection else message.event
            gpu, needs = message.source, self._events[leaving].needs or {}
            dep += sorted(index[s, gpu, channel, at] for (s, channel), at in needs.items())
            ptr.append(len(dep))
        return np.array(ptr, dtype=np.int64), np.array(dep, dtype=np.int64)

    def race(self) -> list[str]:
        """Say which two steps touch a chunk in no fixed order, one of them writing it, if any."""
        if len(self._events) > _MOST_EVENTS:
            return []
        past = [0] * len(self._events)
        for number in self._order:
            for earlier in self._before(number, self._events[number]):
                past[number] |= past[earlier] | 1 << earlier
        touched: dict[tuple[int, int], list[tuple[int, bool]]] = {}
        for number, event in enumerate(self._events):
            for place, writes in self._touches(number, event):
                touched.setdefault((event.block.gpu, place), []).append((number, writes))
        for (_, place), accesses in touched.items():
            for (a, writes_a), (b, writes_b) in combinations(accesses, 2):
                ordered = a == b or past[b] >> a & 1 or past[a] >> b & 1
                if (writes_a or writes_b) and not ordered:
                    return [
                        f"{self._events[a].where} and {self._events[b].where} both touch"
                        f" {self._places.name(place)}, one of them writing it, in no fixed"
                        " order. Let one wait for the other (depid, deps)."
                    ]
        return []

    def _touches(self, number: int, event: _Event) -> Iterator[tuple[int, bool]]:
        step = event.step
        if event.what == "send":
            yield from ((place, False) for place in self._stored[number])
            return
        if step.kind in ("cpy", "re", "rrs", "rrc", "rrcs"):
            yield from ((place, False) for place in self._at(event, step.source))
        if step.kind in ("cpy", "re", "r", "rcs", "rrc", "rrcs"):
            yield from ((place, True) for place in self._at(event, step.target))


def _parts(step: MscclStep) -> list[str]:
    """Return what a step does, one after the other."""
    parts = ["receive"] if step.receives else []
    parts += ["send"] if step.sends else []
    return parts or ["local"]


def _flat(rows: list[list[int]]) -> Ints:
    return np.array([place for some in rows for place in some], dtype=np.int64)
