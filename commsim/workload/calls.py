"""
The calls of a `program` workload, one class each, as a user writes them.

    - compute: 2ms                              - {compute: {duration: 2ms, stream: side, as: c}}
    - send:  {to: 1, bytes: 64MiB}              - recv:  {from: 0, bytes: 64MiB}
    - isend: {to: 1, bytes: 64MiB, as: s}       - irecv: {from: 0, bytes: 64MiB, as: r}
    - wait: s                                   - wait: [s, r]
    - all_reduce: {bytes: 1MiB, group: pair}    - all_reduce: {bytes: 1MiB, op: avg, as: grads}
    - barrier                                   - synchronize
    - copy_to_host: 64MiB                       - new_group: {name: pair, ranks: [0, 1]}
    - batch_isend_irecv: {ops: [{isend: ...}, {irecv: ...}], as: b}
    - coalesced: {calls: [{all_reduce: ...}, {all_reduce: ...}], as: c}
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from commsim.errors import ScenarioError, did_you_mean
from commsim.graph import CopyDirection
from commsim.sections import Section, decode
from commsim.units import Duration, Size
from commsim.workload.torch_names import OBJECT_CALLS, WORDS

__all__ = [
    "WORLD",
    "Batch",
    "Call",
    "Coalesced",
    "Compute",
    "HostCopy",
    "MessageCall",
    "NewGroup",
    "ObjectCall",
    "ProgramCollective",
    "ProgramWait",
    "Synchronize",
    "read_call",
]

WORLD = "world"
_MESSAGES = ("send", "recv", "isend", "irecv")
_COPIES = {"copy_to_host": CopyDirection.TO_HOST, "copy_from_host": CopyDirection.FROM_HOST}
_BARE = ("barrier", "synchronize")
_CALLS = (
    "compute", *_MESSAGES, "batch_isend_irecv", "wait", "synchronize", *WORDS, *OBJECT_CALLS,
    "coalesced", *_COPIES, "new_group",
)  # fmt: skip

DeviceName = Literal["cuda", "cpu"]


class Compute(Section, frozen=True, kw_only=True):
    """Work that keeps the rank busy; on a stream of its own it returns at once."""

    duration: Duration
    name: str = "compute"
    stream: str | None = None
    as_: str | None = msgspec.field(name="as", default=None)


class _Copy(Section, frozen=True, kw_only=True):
    bytes: Size
    stream: str | None = None
    as_: str | None = msgspec.field(name="as", default=None)


class _Send(Section, frozen=True, kw_only=True):
    to: int
    bytes: Size
    group: str = WORLD
    tag: int = 0
    device: DeviceName = "cuda"


class _Recv(Section, frozen=True, kw_only=True):
    from_: int = msgspec.field(name="from")
    bytes: Size
    group: str = WORLD
    tag: int = 0
    device: DeviceName = "cuda"


class _Isend(_Send, frozen=True, kw_only=True):
    as_: str | None = msgspec.field(name="as", default=None)


class _Irecv(_Recv, frozen=True, kw_only=True):
    as_: str | None = msgspec.field(name="as", default=None)


class ProgramCollective(Section, frozen=True, kw_only=True):
    """A collective; `as` names it and makes it asynchronous, `async` does so without a name.

    `root` (or torch's `src`, `dst`) is a global rank, `group_src` and `group_dst` one of the
    group. `splits` are the bytes that this rank sends to each member, `output_splits` those
    that it gets from each.
    """

    bytes: Size | None = None
    group: str = WORLD
    root: int | None = None
    src: int | None = None
    dst: int | None = None
    group_src: int | None = None
    group_dst: int | None = None
    splits: tuple[Size, ...] | None = None
    output_splits: tuple[Size, ...] | None = None
    op: str = ""
    dtype: str = ""
    device: DeviceName = "cuda"
    as_: str | None = msgspec.field(name="as", default=None)
    async_: bool = msgspec.field(name="async", default=False)


class ObjectCall(Section, frozen=True, kw_only=True):
    """A collective of pickled objects, the largest of them `bytes`; blocks, as in torch."""

    bytes: Size
    group: str = WORLD
    root: int | None = None
    src: int | None = None
    dst: int | None = None
    group_src: int | None = None
    group_dst: int | None = None
    device: DeviceName = "cuda"


class NewGroup(Section, frozen=True, kw_only=True):
    """A group that the program makes; every rank of the world makes it, member or not."""

    name: str
    ranks: tuple[int, ...]
    backend: str = ""


class _Batch(Section, frozen=True, kw_only=True):
    ops: list[Any]
    as_: str | None = msgspec.field(name="as", default=None)


class _Coalesced(Section, frozen=True, kw_only=True):
    calls: list[Any]
    as_: str | None = msgspec.field(name="as", default=None)
    async_: bool = msgspec.field(name="async", default=False)


class MessageCall(msgspec.Struct, frozen=True):
    """A send or receive; isend and irecv are those that return at once, maybe with a handle."""

    sends: bool
    returns: bool
    peer: int
    size: int
    group: str
    tag: int
    device: str = "cuda"
    handle: str | None = None

    @property
    def verb(self) -> str:
        """What the call is named in a program: send, recv, isend or irecv."""
        return f"{'i' if self.returns else ''}{'send' if self.sends else 'recv'}"


class HostCopy(msgspec.Struct, frozen=True):
    """A copy between the rank's GPU and host memory; on a stream it returns at once."""

    way: CopyDirection
    size: int
    stream: str | None
    handle: str | None


class ProgramWait(msgspec.Struct, frozen=True):
    """Wait for calls that returned at once, by their names."""

    names: tuple[str, ...]


class Synchronize(msgspec.Struct, frozen=True):
    """Wait for all that the rank has issued, on whatever stream (torch.cuda.synchronize)."""


class Batch(msgspec.Struct, frozen=True):
    """Sends and receives that are issued as one, and return at once."""

    calls: tuple[MessageCall, ...]
    handle: str | None


class Coalesced(msgspec.Struct, frozen=True):
    """Collectives of one kind and group that are run as one."""

    word: str
    calls: tuple[ProgramCollective, ...]
    handle: str | None
    returns: bool


Call = (
    Compute
    | HostCopy
    | MessageCall
    | ProgramCollective
    | ObjectCall
    | ProgramWait
    | Synchronize
    | Batch
    | Coalesced
    | NewGroup
)


def read_call(data: Any, *, where: str) -> tuple[str, Call]:
    """Return the name of one call and its typed form.

    Raises:
        ScenarioError: not a call, an unknown one, or wrong settings, with their path.
    """
    if isinstance(data, str) and data in _BARE:
        data = {data: {}}
    if not isinstance(data, dict) or len(data) != 1:
        hint = did_you_mean(data, _BARE) if isinstance(data, str) else ""
        raise ScenarioError(
            f"{where}: {data!r} is not a call.{hint} Write one, like {{compute: 2ms}}."
        )
    [(name, settings)] = data.items()
    if name not in _CALLS:
        raise ScenarioError(
            f"{where}: no call {name!r}.{did_you_mean(str(name), _CALLS)}"
            f" Known: {', '.join(_CALLS)}."
        )
    return name, _read(name, settings, f"{where}.{name}")


def _read(name: str, settings: Any, where: str) -> Call:
    if name == "compute":
        settings = settings if isinstance(settings, dict) else {"duration": settings}
        return _with_stream(decode(settings, Compute, where), where)
    if name in _COPIES:
        copy = decode(settings if isinstance(settings, dict) else {"bytes": settings}, _Copy, where)
        return HostCopy(_COPIES[name], copy.bytes, copy.stream, copy.as_)
    if name == "wait":
        names = [settings] if isinstance(settings, str) else settings
        wait = ProgramWait(decode(names, tuple[str, ...], where))
        if not wait.names:
            raise ScenarioError(f"{where}: the list is empty. Name a call to wait for.")
        return wait
    settings = {} if settings is None else settings
    if name == "synchronize":
        decode(settings, Section, where)
        return Synchronize()
    if name in _MESSAGES:
        return _message(name, settings, where)
    if name == "batch_isend_irecv":
        return _batch(settings, where)
    if name == "coalesced":
        return _coalesced(settings, where)
    if name == "new_group":
        return decode(settings, NewGroup, where)
    if name in OBJECT_CALLS:
        return decode(settings, ObjectCall, where)
    return decode(settings, ProgramCollective, where)


def _with_stream(call: Compute, where: str) -> Compute:
    if call.as_ is not None and call.stream is None:
        raise ScenarioError(
            f"{where}.as: compute on the main stream blocks: there is nothing to wait for. Give it"
            " a stream, like stream: side."
        )
    return call


def _message(name: str, settings: Any, where: str) -> MessageCall:
    if isinstance(settings, dict):
        settings = _renamed(settings, "dst" if name in ("send", "isend") else "src", where)
    if name in ("send", "isend"):
        send = decode(settings, _Isend if name == "isend" else _Send, where)
        handle = send.as_ if isinstance(send, _Isend) else None
        _check_tag(send.tag, where)
        ends = (True, name == "isend", send.to, send.bytes, send.group, send.tag, send.device)
        return MessageCall(*ends, handle)
    recv = decode(settings, _Irecv if name == "irecv" else _Recv, where)
    handle = recv.as_ if isinstance(recv, _Irecv) else None
    _check_tag(recv.tag, where)
    ends = (False, name == "irecv", recv.from_, recv.bytes, recv.group, recv.tag, recv.device)
    return MessageCall(*ends, handle)


def _check_tag(tag: int, where: str) -> None:
    if tag < 0:
        raise ScenarioError(f"{where}.tag: {tag}: a tag is 0 or more.")


def _renamed(settings: dict[Any, Any], torch_name: str, where: str) -> dict[Any, Any]:
    """Return settings with torch's name of the peer (dst, src) replaced by ours (to, from)."""
    ours = {"dst": "to", "src": "from"}[torch_name]
    if torch_name not in settings:
        return settings
    if ours in settings:
        raise ScenarioError(f"{where}.{torch_name}: is the same as {ours}. Give one of them.")
    return {ours if key == torch_name else key: value for key, value in settings.items()}


def _batch(settings: Any, where: str) -> Batch:
    batch = decode({"ops": settings} if isinstance(settings, list) else settings, _Batch, where)
    if not batch.ops:
        raise ScenarioError(f"{where}: the list is empty. Give at least one isend or irecv.")
    found = []
    for index, data in enumerate(batch.ops):
        name, call = read_call(data, where=f"{where}.ops.{index}")
        if not isinstance(call, MessageCall) or not call.returns:
            raise ScenarioError(f"{where}.ops.{index}: {name}: only isend and irecv go in here.")
        if call.handle is not None:
            raise ScenarioError(
                f"{where}.ops.{index}.as: the batch is waited for as a whole. Give it the name."
            )
        found.append(call)
    return Batch(tuple(found), batch.as_)


def _coalesced(settings: Any, where: str) -> Coalesced:
    given = decode(
        {"calls": settings} if isinstance(settings, list) else settings, _Coalesced, where
    )
    found: list[tuple[str, ProgramCollective]] = []
    for index, data in enumerate(given.calls):
        path = f"{where}.calls.{index}"
        name, call = read_call(data, where=path)
        if not isinstance(call, ProgramCollective):
            raise ScenarioError(f"{path}: {name}: only collectives are coalesced.")
        if call.as_ is not None or call.async_:
            raise ScenarioError(f"{path}: as and async belong to the coalesced call as a whole.")
        found.append((name, call))
    words = list(dict.fromkeys(name for name, _ in found))
    if len(words) != 1:
        listed = ", ".join(words) or "nothing"
        raise ScenarioError(f"{where}: {listed}: give calls of one kind, at least one.")
    calls = tuple(call for _, call in found)
    return Coalesced(words[0], calls, given.as_, given.async_ or given.as_ is not None)
