"""
The calls of a `program` workload, one class each, as a user writes them.

    - compute: 2ms                              - {compute: {duration: 2ms, name: fwd}}
    - send:  {to: 1, bytes: 64MiB}              - recv:  {from: 0, bytes: 64MiB}
    - isend: {to: 1, bytes: 64MiB, as: s}       - irecv: {from: 0, bytes: 64MiB, as: r}
    - wait: s                                   - wait: [s, r]
    - all_reduce: {bytes: 1MiB, group: pair}    - all_reduce: {bytes: 1MiB, as: grads}
    - barrier
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from commsim.errors import ScenarioError, did_you_mean
from commsim.graph import COLLECTIVES
from commsim.sections import Section, decode
from commsim.units import Duration, Size

__all__ = ["WORLD", "CollectiveCall", "Compute", "MessageCall", "Wait", "read_call"]

WORLD = "world"
_MESSAGES = ("send", "recv", "isend", "irecv")
_CALLS = ("compute", *_MESSAGES, "wait", *COLLECTIVES)


class Compute(Section, frozen=True, kw_only=True):
    """Work that keeps the rank busy."""

    duration: Duration
    name: str = "compute"


class _Send(Section, frozen=True, kw_only=True):
    to: int
    bytes: Size
    group: str = WORLD
    tag: int = 0


class _Recv(Section, frozen=True, kw_only=True):
    from_: int = msgspec.field(name="from")
    bytes: Size
    group: str = WORLD
    tag: int = 0


class _Isend(_Send, frozen=True, kw_only=True):
    as_: str | None = msgspec.field(name="as", default=None)


class _Irecv(_Recv, frozen=True, kw_only=True):
    as_: str | None = msgspec.field(name="as", default=None)


class CollectiveCall(Section, frozen=True, kw_only=True):
    """A collective; `as` names it and makes it asynchronous, `async` does so without a name.

    `splits`, for all_to_all_v, are the bytes that this rank sends to each member.
    """

    bytes: Size | None = None
    group: str = WORLD
    root: int | None = None
    splits: tuple[Size, ...] | None = None
    dtype: str = ""
    as_: str | None = msgspec.field(name="as", default=None)
    async_: bool = msgspec.field(name="async", default=False)


@dataclass(frozen=True, slots=True)
class MessageCall:
    """A send or receive; isend and irecv are those that return at once, maybe with a handle."""

    sends: bool
    returns: bool
    peer: int
    size: int
    group: str
    tag: int
    handle: str | None = None

    @property
    def verb(self) -> str:
        """What the call is named in a program: send, recv, isend or irecv."""
        return f"{'i' if self.returns else ''}{'send' if self.sends else 'recv'}"


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for calls that returned at once, by their names."""

    names: tuple[str, ...]


Call = Compute | MessageCall | CollectiveCall | Wait


def read_call(data: Any, *, where: str) -> tuple[str, Call]:
    """Return the name of one call and its typed form.

    Raises:
        ScenarioError: not a call, an unknown one, or wrong settings, with their path.
    """
    if data == "barrier":
        data = {"barrier": {}}
    if not isinstance(data, dict) or len(data) != 1:
        raise ScenarioError(f"{where}: {data!r} is not a call. Write one, like {{compute: 2ms}}.")
    [(name, settings)] = data.items()
    if name not in _CALLS:
        raise ScenarioError(
            f"{where}: no call {name!r}.{did_you_mean(str(name), _CALLS)}"
            f" Known: {', '.join(_CALLS)}."
        )
    where = f"{where}.{name}"
    if name == "compute":
        settings = settings if isinstance(settings, dict) else {"duration": settings}
        return name, decode(settings, Compute, where)
    if name == "wait":
        names = [settings] if isinstance(settings, str) else settings
        return name, Wait(decode(names, tuple[str, ...], where))
    settings = {} if settings is None else settings
    if name in _MESSAGES:
        return name, _message(name, settings, where)
    return name, decode(settings, CollectiveCall, where)


def _message(name: str, settings: Any, where: str) -> MessageCall:
    if name in ("send", "isend"):
        send = decode(settings, _Isend if name == "isend" else _Send, where)
        handle = send.as_ if isinstance(send, _Isend) else None
        return MessageCall(True, name == "isend", send.to, send.bytes, send.group, send.tag, handle)
    recv = decode(settings, _Irecv if name == "irecv" else _Recv, where)
    handle = recv.as_ if isinstance(recv, _Irecv) else None
    return MessageCall(False, name == "irecv", recv.from_, recv.bytes, recv.group, recv.tag, handle)
