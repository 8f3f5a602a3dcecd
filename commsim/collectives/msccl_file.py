"""
MSCCL's XML as it stands in the file: GPUs, their thread blocks, and the steps of each.

The format is what msccl-tools writes and MSCCL and RCCL load: `algo` holds one `gpu` per rank,
a `gpu` its `tb`s (thread blocks: one peer to send to, one to receive from, a channel), a `tb`
its `step`s in order. Attributes that only tell a GPU how to run (nthreads, hasdep) are ignored.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from commsim.errors import ScenarioError, did_you_mean

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

__all__ = ["COLLECTIVES", "MscclAlgorithm", "MscclStep", "ThreadBlock", "Where", "read_msccl"]

COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
"""MSCCL's names of collectives and ours."""

STEPS = ("s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop")
"""send; receive; receive + copy/reduce + send; local copy, local reduce; wait only."""

_BUFFERS = ("i", "o", "s")
_MOST_GPUS = 1024
_MOST_CHUNKS = 1 << 16


class Where(msgspec.Struct, frozen=True):
    """The first of some chunks: buffer i (input), o (output) or s (scratch), and the offset."""

    buffer: str
    offset: int


class MscclStep(msgspec.Struct, frozen=True):
    """One step; `number` is its `s`, `after` the (thread block, step) that it waits for."""

    number: int
    kind: str
    source: Where
    target: Where
    count: int
    after: tuple[int, int] | None

    @property
    def sends(self) -> bool:
        """Whether it sends to the block's peer."""
        return self.kind in ("s", "rcs", "rrs", "rrcs")

    @property
    def receives(self) -> bool:
        """Whether it receives from the block's peer."""
        return self.kind in ("r", "rcs", "rrs", "rrc", "rrcs")


class ThreadBlock(msgspec.Struct, frozen=True):
    """A thread block of a GPU; `send` and `receive` are ranks, -1 for none."""

    gpu: int
    number: int
    send: int
    receive: int
    channel: int
    steps: tuple[MscclStep, ...]


class MscclAlgorithm(msgspec.Struct, frozen=True):
    """A whole file. `chunks`: nchunksperloop, how many chunks the larger buffer is cut into."""

    name: str
    op: str
    n: int
    chunks: int
    channels: int
    protocol: str
    in_place: bool
    root: int
    least: int
    most: int
    scratch: tuple[int, ...]
    blocks: tuple[ThreadBlock, ...]


def read_msccl(path: str | Path) -> MscclAlgorithm:
    """Read an MSCCL XML file.

    Raises:
        ScenarioError: no such file, not XML, or not what MSCCL could load; says where.
    """
    from commsim.collectives.msccl_xml import read_tree  # loads Python's reader of XML

    path = Path(path)
    root = read_tree(path)
    try:
        return _algorithm(root)
    except _FileError as wrong:
        raise ScenarioError(f"{path}: {wrong}") from None


class _FileError(Exception):
    """Says what is wrong in a file, and where in it."""


def _algorithm(root: Element) -> MscclAlgorithm:
    if root.tag != "algo":
        raise _FileError(f"the root element is <{root.tag[:40]}>, not <algo>.")
    coll = _text(root, "coll", "algo")
    if coll not in COLLECTIVES:
        raise _FileError(
            f"algo: coll={coll[:40]!r} is not supported.{did_you_mean(coll, COLLECTIVES)}"
            f" Supported: {', '.join(COLLECTIVES)}."
        )
    n = _number(root, "ngpus", "algo", least=1, most=_MOST_GPUS)
    gpus = _children(root, "gpu", "algo", "id", n)
    if len(gpus) != n:
        missing = next(i for i in range(n) if i not in gpus)
        raise _FileError(f"algo: ngpus={n}, but gpu {missing} is missing.")
    blocks = [
        _block(gpu, number, tb, n)
        for gpu in range(n)
        for number, tb in _children(gpus[gpu], "tb", f"gpu {gpu}", "id", 1 << 16).items()
    ]
    used = 1 + max((block.channel for block in blocks), default=0)
    return MscclAlgorithm(
        name=root.get("name") or "msccl",
        op=COLLECTIVES[coll],
        n=n,
        chunks=_number(root, "nchunksperloop", "algo", least=1, most=_MOST_CHUNKS),
        channels=max(used, _number(root, "nchannels", "algo", least=0, most=1024, default=used)),
        protocol=root.get("proto") or "",
        in_place=_in_place(root),
        root=_number(root, "root", "algo", least=0, most=n - 1, default=0),
        least=_number(root, "minBytes", "algo", least=0, most=1 << 62, default=0),
        most=_number(root, "maxBytes", "algo", least=0, most=1 << 62, default=0),
        scratch=tuple(
            _number(gpus[gpu], "s_chunks", f"gpu {gpu}", least=0, most=_MOST_CHUNKS, default=0)
            for gpu in range(n)
        ),
        blocks=tuple(blocks),
    )


def _in_place(root: Element) -> bool:
    """Return whether input and output share a buffer; a file for both ways must work in place."""
    if "inplace" not in root.attrib and "outofplace" not in root.attrib:
        return False
    return _number(root, "inplace", "algo", least=0, most=1, default=0) == 1


def _block(gpu: int, number: int, tb: Element, n: int) -> ThreadBlock:
    where = f"gpu {gpu}, tb {number}"
    send, receive = (_number(tb, side, where, least=-1, most=n - 1) for side in ("send", "recv"))
    if gpu in (send, receive):
        raise _FileError(f"{where}: sends to or receives from its own GPU.")
    steps = tuple(
        _step(s, element, f"{where}, step {s}")
        for s, element in _children(tb, "step", where, "s", 1 << 20).items()
    )
    numbers = [step.number for step in steps]
    if numbers != sorted(numbers):
        raise _FileError(f"{where}: its steps are not in ascending order.")
    for step in steps:
        if step.sends and send < 0 or step.receives and receive < 0:
            side = "send" if step.sends and send < 0 else "recv"
            raise _FileError(
                f"{where}, step {step.number}: {step.kind!r}, but the block has no {side}."
            )
    channel = _number(tb, "chan", where, least=0, most=1023)
    return ThreadBlock(gpu, number, send, receive, channel, steps)


def _step(number: int, element: Element, where: str) -> MscclStep:
    kind = _text(element, "type", where)
    if kind not in STEPS:
        raise _FileError(f"{where}: type={kind[:40]!r} is none of {', '.join(STEPS)}.")
    waits = _number(element, "depid", where, least=-1, most=1 << 20, default=-1)
    after = None
    if waits >= 0:
        after = (waits, _number(element, "deps", where, least=0, most=1 << 20))
    if kind == "nop":
        nowhere = Where("i", 0)
        return MscclStep(number, kind, nowhere, nowhere, 0, after)
    ends = [
        Where(
            _buffer(element, f"{end}buf", where),
            _number(element, f"{end}off", where, least=-1, most=_MOST_CHUNKS),
        )
        for end in ("src", "dst")
    ]
    count = _number(element, "cnt", where, least=1, most=_MOST_CHUNKS, default=1)
    return MscclStep(number, kind, ends[0], ends[1], count, after)


def _buffer(element: Element, name: str, where: str) -> str:
    value = _text(element, name, where)
    if value not in _BUFFERS:
        raise _FileError(f"{where}: {name}={value[:40]!r} is none of i, o, s.")
    return value


def _children(parent: Element, tag: str, where: str, key: str, end: int) -> dict[int, Element]:
    """Return the children `tag` of an element by their number; they have no other kind."""
    found: dict[int, Element] = {}
    for child in parent:
        if child.tag != tag:
            raise _FileError(f"{where}: <{str(child.tag)[:40]}> where <{tag}> belongs.")
        number = _number(child, key, f"{where}: <{tag}>", least=0, most=end - 1)
        if number in found:
            raise _FileError(f"{where}: there are two <{tag}> with {key}={number}.")
        found[number] = child
    return found


def _text(element: Element, name: str, where: str) -> str:
    value = element.get(name)
    if value is None:
        raise _FileError(f"{where}: the attribute {name!r} is missing.")
    return value


def _number(
    element: Element, name: str, where: str, *, least: int, most: int, default: int | None = None
) -> int:
    if default is not None and name not in element.attrib:
        return default
    text = _text(element, name, where)
    digits = text.strip()
    if (
        len(digits) > 20
        or not digits.removeprefix("-").isascii()
        or not digits.removeprefix("-").isdigit()
    ):
        raise _FileError(f"{where}: {name}={text[:40]!r} is not a whole number.")
    if not least <= int(digits) <= most:
        raise _FileError(f"{where}: {name}={digits} is not between {least} and {most}.")
    return int(digits)
