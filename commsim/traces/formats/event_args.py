"""
The arguments of a Kineto event: as the file writes them, and as the rest of commsim reads them.

Of most events nothing is decoded, of launches and GPU work what ties them (`TieArgs`), and of those
that communicate all that is known (`FileArgs`). `EventArgs` is the typed record that they carry.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from commsim.traces.formats.files import BAD_JSON
from commsim.traces.formats.values import FAR, dtype_of, integer, numbers_of, uneven_op

__all__ = ["NO_ARGS", "NO_STREAM", "EventArgs", "TieArgs", "event_args", "tie_args", "wait_args"]

_MAX_RANKS = 1_000_000
_ABSENT = msgspec.Raw()
NO_STREAM = -FAR
"""What stands for the stream of an event that does not say one."""
_Number = Annotated[int, msgspec.Meta(ge=-FAR, le=FAR)]


class TieArgs(msgspec.Struct, gc=False):
    """What ties a call to what it launched, and work to its stream."""

    correlation: _Number = -1
    stream: _Number = NO_STREAM
    wait_on_stream: Any = None
    wait_on_record: Any = msgspec.field(name="wait_on_cuda_event_record_corr_id", default=None)
    collective: Any = msgspec.field(name="Collective name", default=None)
    bytes: Any = None


class _LooseTieArgs(TieArgs):
    correlation: Any = None
    stream: Any = None


class FileArgs(msgspec.Struct, gc=False):
    """What communicates says, as torch.profiler writes it: numbers, or text."""

    record_function: Any = msgspec.field(name="Record function id", default=None)
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_ABSENT)
    types: msgspec.Raw = msgspec.field(name="Input type", default=_ABSENT)
    concrete: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=_ABSENT)
    collective: Any = msgspec.field(name="Collective name", default=None)
    in_elements: Any = msgspec.field(name="In msg nelems", default=None)
    out_elements: Any = msgspec.field(name="Out msg nelems", default=None)
    dtype: Any = None
    in_splits: Any = msgspec.field(name="In split size", default=None)
    group_name: Any = msgspec.field(name="Process Group Name", default=None)
    group_ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    group_size: Any = msgspec.field(name="Group size", default=None)
    rank_start: Any = msgspec.field(name="Global rank start", default=None)
    rank_stride: Any = msgspec.field(name="Global rank stride", default=None)
    source: Any = msgspec.field(name="Src Rank", default=None)
    target: Any = msgspec.field(name="Dst Rank", default=None)
    sequence: Any = msgspec.field(name="Seq", default=None)
    bytes: Any = None


class EventArgs(msgspec.Struct, frozen=True, gc=False):
    """What an event says besides its name; -1, "" and () if it does not say.

    `call` is torch's name of a collective and `op` commsim's; `elements` and `out_elements` are
    what it sends and receives, `splits` the elements per member of an uneven all-to-all.
    `inputs` are the elements of the first two inputs of a c10d op, the tensors of a list added
    up, and `numbers` its inputs that are integers, -1 for the others. `ranks` and the peers
    `source` and `target` are global ranks. `waits_for` is the correlation of a cudaEventRecord.
    """

    call: str = ""
    op: str = ""
    dtype: str = ""
    itemsize: int = -1
    elements: int = -1
    out_elements: int = -1
    inputs: tuple[int, int] = (-1, -1)
    numbers: tuple[int, ...] = ()
    splits: tuple[int, ...] = ()
    group: str = ""
    ranks: tuple[int, ...] = ()
    source: int = -1
    target: int = -1
    sequence: int = -1
    record_function: int = -1
    bytes: int = -1
    waits_for: int = -1
    waits_for_stream: int = -1

    @property
    def most_elements(self) -> int:
        """The larger of what is sent and received."""
        return max(self.elements, self.out_elements)


NO_ARGS = EventArgs()
_TIES = msgspec.json.Decoder(list[TieArgs | None])
_LOOSE_TIES = msgspec.json.Decoder(list[_LooseTieArgs | None])
_OF_CALL = msgspec.json.Decoder(FileArgs | None)
_NOT_WRITTEN = TieArgs()


def tie_args(texts: Iterable[msgspec.Raw]) -> list[TieArgs]:
    """Decode what ties some events; what is no number counts as not written."""
    text = b"[" + b",".join(texts) + b"]"
    try:
        return [written or _NOT_WRITTEN for written in _TIES.decode(text)]
    except BAD_JSON:
        found = [written or TieArgs() for written in _decoded(_LOOSE_TIES, text) or ()]
    for written in found:
        written.correlation = integer(written.correlation)
        written.stream = integer(written.stream, NO_STREAM)
    return found


def _decoded(decoder: msgspec.json.Decoder[Any], text: bytes | msgspec.Raw) -> Any:
    """Decode a text, in which a name that is no UTF-8 is a name all the same."""
    try:
        return decoder.decode(text)
    except UnicodeDecodeError:
        return decoder.decode(bytes(text).decode("utf-8", "replace"))


def event_args(text: msgspec.Raw) -> EventArgs:
    """Return the arguments of an event that communicates.

    Raises:
        msgspec.DecodeError: they are no arguments.
    """
    written = _decoded(_OF_CALL, text) or FileArgs()
    dims, types, concrete = (_list(x) for x in (written.dims, written.types, written.concrete))
    dtype, itemsize = dtype_of(written.dtype or (types[0] if types else None))
    call = "" if written.collective is None else str(written.collective)
    return EventArgs(
        call=call,
        op=uneven_op(call, listed=written.in_splits != "[]"),
        dtype=dtype,
        itemsize=itemsize,
        elements=integer(written.in_elements),
        out_elements=integer(written.out_elements),
        inputs=(_elements(dims[:1]), _elements(dims[1:2])),
        numbers=tuple(integer(value) for value in concrete),
        splits=numbers_of(written.in_splits),
        group="" if written.group_name is None else str(written.group_name),
        ranks=_ranks(written),
        source=integer(written.source),
        target=integer(written.target),
        sequence=integer(written.sequence),
        record_function=integer(written.record_function),
        bytes=integer(written.bytes),
    )


def wait_args(written: TieArgs) -> EventArgs:
    """Return the arguments of a copy or of a synchronisation."""
    return EventArgs(
        bytes=integer(written.bytes),
        waits_for=integer(written.wait_on_record),
        waits_for_stream=integer(written.wait_on_stream),
    )


def _list(written: msgspec.Raw) -> list[Any]:
    if not len(memoryview(written)):
        return []
    try:
        return msgspec.json.decode(written, type=list[Any])
    except BAD_JSON:
        return []


def _elements(shapes: list[Any]) -> int:
    """Return the elements of a shape, the sum of a list of shapes; -1 if one is not known."""
    shape = shapes[0] if shapes else None
    if not isinstance(shape, list) or not shape:
        return -1
    if all(isinstance(inner, list) for inner in shape):
        counts = [_elements([inner]) for inner in shape]
        return sum(counts) if min(counts) >= 0 else -1
    extents = [integer(extent) for extent in shape]
    return math.prod(extents) if min(extents) >= 0 else -1


def _ranks(written: FileArgs) -> tuple[int, ...]:
    """Return a group's ranks: as listed, else (a list is cut at 30) by start, stride and size."""
    listed = numbers_of(written.group_ranks)
    if listed:
        return listed
    start, stride, size = (
        integer(v) for v in (written.rank_start, written.rank_stride, written.group_size)
    )
    if start < 0 or stride < 1 or not 0 < size <= _MAX_RANKS:
        return ()
    return tuple(range(start, start + stride * size, stride))
