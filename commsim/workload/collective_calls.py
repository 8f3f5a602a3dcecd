"""
What one rank's collective call means: its op, its size, its root and its splits, all checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from commsim.errors import ScenarioError, did_you_mean
from commsim.ops import COLLECTIVES, ROOTED
from commsim.workload.calls import Coalesced, ObjectCall, ProgramCollective
from commsim.workload.torch_names import OBJECT_CALLS, WORDS, check_dtype, check_redop

__all__ = ["ROOTED", "Meaning", "check_call", "coalesced", "meaning", "object_meanings"]

_ENDS = ("root", "src", "dst", "group_src", "group_dst")


class Meaning(NamedTuple):
    """A collective as the graph has it: `root` is a global rank or -1."""

    op: str
    size: int
    root: int = -1
    splits: tuple[int, ...] | None = None
    output_splits: tuple[int, ...] | None = None
    dtype: str = ""
    redop: str = ""
    device: str = "cuda"


def meaning(word: str, call: ProgramCollective, ranks: Sequence[int], where: str) -> Meaning:
    """Return what a call means among the members `ranks`.

    Raises:
        ScenarioError: the field that is missing, out of place, or does not fit the others.
    """
    known = WORDS[word]
    root = _root(word, known.ends, call, ranks, where)
    splits = call.splits
    op = "all_to_all_v" if splits is not None and known.splits else known.op
    check_redop(call.op, word, reduces=known.reduces, where=where)
    if op == "all_to_all_v" and word != op and splits is not None:
        _check_sum(call, splits, where)
        size = None
    else:
        size = call.bytes
    check_call(op, size=size, root=root, has_splits=splits is not None, ranks=ranks, where=where)
    _check_splits(call, len(ranks), where)
    total = sum(splits) if splits is not None else (call.bytes or 0)
    check_dtype(call.dtype, total, where)
    return Meaning(
        op,
        total,
        -1 if root is None else root,
        splits,
        call.output_splits,
        call.dtype,
        call.op,
        call.device,
    )


def object_meanings(word: str, call: ObjectCall, ranks: Sequence[int], where: str) -> list[Meaning]:
    """Return the collectives of an object word, in their order."""
    ends, steps = OBJECT_CALLS[word]
    root = _root(word, ends, call, ranks, where)
    if ends and root is None:
        raise ScenarioError(
            f"{where}: {word} needs a {ends[0]}: the global rank of one of {list(ranks)}."
        )
    return [
        Meaning(
            step.op,
            step.size(len(ranks), call.bytes),
            -1 if root is None or step.op not in ROOTED else root,
            device=call.device,
        )
        for step in steps
    ]


def coalesced(call: Coalesced, ranks: Sequence[int], where: str) -> Meaning:
    """Return the one collective that coalesced calls become: their bytes together.

    Raises:
        ScenarioError: calls that differ in more than their bytes, or have splits.
    """
    found = [
        meaning(call.word, one, ranks, f"{where}.calls.{index}.{call.word}")
        for index, one in enumerate(call.calls)
    ]
    for index, one in enumerate(found):
        if one.splits is not None:
            raise ScenarioError(f"{where}.calls.{index}: calls with splits are not coalesced.")
        if one._replace(size=0) != found[0]._replace(size=0):
            raise ScenarioError(
                f"{where}.calls.{index}: differs from the first call in more than its bytes."
                " Coalesced calls have one root, op, dtype and device."
            )
    if any(one.group != call.calls[0].group for one in call.calls):
        raise ScenarioError(f"{where}: the calls name several groups. Coalesce each by itself.")
    return found[0]._replace(size=sum(one.size for one in found))


def check_call(
    op: str,
    *,
    size: int | None,
    root: int | None,
    has_splits: bool,
    ranks: Sequence[int],
    where: str,
) -> None:
    """Check what one collective needs and must not have.

    Raises:
        ScenarioError: the field that is missing, out of place or outside the group.
    """
    if op not in COLLECTIVES:
        raise ScenarioError(
            f"{where}.op: no collective {op!r}.{did_you_mean(op, COLLECTIVES)}"
            f" Known: {', '.join(COLLECTIVES)}."
        )
    if op in ROOTED and root is None:
        raise ScenarioError(f"{where}: {op} needs a root: the global rank of one of {list(ranks)}.")
    if op not in ROOTED and root is not None:
        raise ScenarioError(f"{where}.root: {op} has no root. Leave it out.")
    if root is not None and root not in ranks:
        raise ScenarioError(f"{where}.root: rank {root} is not in the group {list(ranks)}.")
    if has_splits != (op == "all_to_all_v"):
        raise ScenarioError(
            f"{where}.splits: {op} has no splits; all_to_all_v has. Leave it out."
            if has_splits
            else f"{where}: all_to_all_v needs splits: the bytes from each member to each."
        )
    if op in ("barrier", "all_to_all_v") and size is not None:
        reason = "moves no bytes" if op == "barrier" else "takes its bytes from splits"
        raise ScenarioError(f"{where}.bytes: {op} {reason}. Leave it out.")
    if op not in ("barrier", "all_to_all_v") and size is None:
        raise ScenarioError(f"{where}: the setting 'bytes' is missing, like bytes: 64MiB.")


def _root(
    word: str,
    ends: tuple[str, ...],
    call: ProgramCollective | ObjectCall,
    ranks: Sequence[int],
    where: str,
) -> int | None:
    """Return the global rank that a call names as its root, None if it names none."""
    given = [name for name in _ENDS if getattr(call, name) is not None]
    wrong = [name for name in given if name not in ends]
    if wrong:
        instead = f" It has {' or '.join(ends)}." if ends else " Leave it out."
        raise ScenarioError(f"{where}.{wrong[0]}: {word} has no {wrong[0]}.{instead}")
    if len(given) > 1:
        raise ScenarioError(f"{where}: {' and '.join(given)} say the same. Give one of them.")
    if not given:
        return None
    value: int = getattr(call, given[0])
    if not given[0].startswith("group_"):
        if value not in ranks:
            raise ScenarioError(
                f"{where}.{given[0]}: rank {value} is not in the group {list(ranks)}."
            )
        return value
    if not 0 <= value < len(ranks):
        raise ScenarioError(
            f"{where}.{given[0]}: {value}: the group has {len(ranks)} members, 0 to"
            f" {len(ranks) - 1}."
        )
    return ranks[value]


def _check_sum(call: ProgramCollective, splits: Sequence[int], where: str) -> None:
    if call.bytes is not None and call.bytes != sum(splits):
        raise ScenarioError(
            f"{where}.splits: they sum to {sum(splits)} bytes, bytes says {call.bytes}."
            " Make them agree, or leave bytes out."
        )


def _check_splits(call: ProgramCollective, members: int, where: str) -> None:
    for field in ("splits", "output_splits"):
        given = getattr(call, field)
        if given is not None and len(given) != members:
            raise ScenarioError(
                f"{where}.{field}: {len(given)} sizes for the {members} members of group"
                f" {call.group!r}."
            )
    if call.output_splits is not None and call.splits is None:
        raise ScenarioError(f"{where}.output_splits: go with splits: what this rank sends to each.")
