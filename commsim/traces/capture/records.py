"""
What a captured rank did, as its process writes it and `assemble` reads it.

Records stand in the order of issue. Streams are numbers, 0 the default stream; `events` of a
stream are what CUDA events are: a later wait for one waits for all that the stream held then.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from commsim.errors import TraceError
from commsim.files import write_bytes

__all__ = [
    "CapturedCall",
    "CapturedMemory",
    "CapturedMessage",
    "CapturedWork",
    "Mark",
    "Product",
    "Recording",
    "Sync",
    "Waited",
    "WaitsFor",
    "load_recording",
    "reason_file",
    "save_recording",
]


class Product(msgspec.Struct, frozen=True, array_like=True):
    """A matrix product [m, k] x [k, n] of `batch`, or the like of one: `kind` says which.

    matmul; attention (m queries, n keys, k the head width, batch heads) and attention_backward,
    under a `causal` mask or not; other.
    """

    kind: str
    m: int
    n: int
    k: int
    batch: int
    dtype: str
    causal: bool = False


class CapturedWork(msgspec.Struct, frozen=True, array_like=True, tag="work"):
    """A compute op: FLOPs, bytes read and written, bytes of memory taken before and left after.

    `phase` is a `commsim.graph.Phase`; `again` marks work that recomputes activations; `launches`
    are the kernels that it is on a GPU.
    """

    op: str
    stream: int
    flops: float
    traffic: int
    product: Product | None = None
    phase: int = 0
    again: bool = False
    stage: int = -1
    microbatch: int = -1
    alloc: int = 0
    free: int = 0
    launches: int = 1


class CapturedCall(msgspec.Struct, frozen=True, array_like=True, tag="call"):
    """This rank's part in a collective; `size` is S of nccl-tests in bytes.

    `internal`: it runs on a stream of its group, and the caller's stream goes on; else on `stream`.
    `root` is a global rank; `splits` are bytes to each member, or none if they are even.
    """

    op: str
    group: int
    size: int
    stream: int
    id: int
    internal: bool
    dtype: str = ""
    redop: str = ""
    root: int = -1
    splits: tuple[int, ...] = ()
    phase: int = 0
    stage: int = -1
    microbatch: int = -1
    alloc: int = 0
    free: int = 0


class CapturedMessage(msgspec.Struct, frozen=True, array_like=True, tag="message"):
    """A send or a receive; `peer` is a global rank. `batch` joins those issued as one."""

    sends: bool
    peer: int
    group: int
    size: int
    stream: int
    id: int
    batch: int = -1
    tag: int = 0
    phase: int = 0
    stage: int = -1
    microbatch: int = -1
    alloc: int = 0
    free: int = 0


class Waited(msgspec.Struct, frozen=True, array_like=True, tag="waited"):
    """`stream` waits for the call or message `id`."""

    id: int
    stream: int


class Mark(msgspec.Struct, frozen=True, array_like=True, tag="event"):
    """An event is recorded on `stream`."""

    event: int
    stream: int


class WaitsFor(msgspec.Struct, frozen=True, array_like=True, tag="waits"):
    """`stream` waits for an event."""

    event: int
    stream: int


class Sync(msgspec.Struct, frozen=True, array_like=True, tag="sync"):
    """The program waits until `stream` has run dry (-1: all streams) before it issues more."""

    stream: int


Record = CapturedWork | CapturedCall | CapturedMessage | Waited | Mark | WaitsFor | Sync


class CapturedMemory(msgspec.Struct, frozen=True):
    """Bytes at the start of the step by what holds them, and the most held during it."""

    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    other: int = 0
    peak: int = 0


class GroupMade(msgspec.Struct, frozen=True, array_like=True):
    """A process group that the program made: its ranks in order, and how torch describes it."""

    ranks: tuple[int, ...]
    description: str


class Recording(msgspec.Struct, frozen=True):
    """One step of one rank. `groups` are all that the program made, of any ranks."""

    rank: int
    world: int
    torch: str
    groups: tuple[GroupMade, ...]
    streams: tuple[str, ...]
    records: tuple[Record, ...]
    memory: CapturedMemory
    parameters: int = 0
    notes: tuple[str, ...] = ()


def reason_file(output: str) -> Path:
    """Return where the reason goes why a recording could not be made."""
    return Path(f"{output}.reason")


def save_recording(recording: Recording, path: Path) -> None:
    """Write a recording as JSON, gzipped if the name ends in .gz."""
    import gzip

    data = msgspec.json.encode(recording)
    write_bytes(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def load_recording(path: Path) -> Recording:
    """Read what `save_recording` wrote. Raises TraceError if it is something else."""
    import gzip

    data = path.read_bytes()
    try:
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        return msgspec.json.decode(data, type=Recording)
    except (OSError, EOFError, msgspec.DecodeError) as error:
        raise TraceError(f"{path}: is not a recording of a captured rank ({error}).") from None
