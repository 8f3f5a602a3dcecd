"""
A lower bound on the time of a collective on a cluster, whatever the algorithm.

n members, S bytes (nccl-tests' S), a set X of devices with a of the members in it, C the bytes
per second of the links that leave it (or enter it). What must cross:

    op                      out of X                        into X
    all_reduce              S                               S
    all_gather              a S/n                           (n - a) S/n
    reduce_scatter          (n - a) S/n                     a S/n
    all_to_all              a (n - a) S/n                   the same
    broadcast, scatter      S, (n - a) S/n if root in X     S, a S/n if not
    reduce, gather          S, a S/n if root not in X       S, (n - a) S/n if it is
    send_recv               S per member whose peer is outside

Time is at least bytes / C and the least latency of those links. Switches may add and multicast
and these bounds still hold. Where they do not (`in_network` false), every message goes from one
part to one other, and cutting the group into k parts at once bounds more tightly: an element of an
all-reduce needs 2 (k - 1) messages between parts (one-way gossip among k takes 2k - 2: Harary
and Schwenk 1974, "The communication problem on graphs and digraphs"), one of the other ops
k - 1, all of them over the links that leave the parts.

All of this is proven, none of it assumes an algorithm. Software costs are not in it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from commsim.arrays import Bools, Floats, Ints
from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.metrics.bound_cuts import HOST_LEVELS, Level, Partition, cuts_of, slowest_link
from commsim.ops import COLLECTIVES, ROOTED
from commsim.units import MOST_BYTES

__all__ = ["Bound", "bound", "slowest"]

Splits = Sequence[Sequence[int]]

_MESSAGES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "broadcast": 1, "reduce": 1}
"""Messages between k parts for each byte of S, divided by k - 1, where nothing adds on the way."""

_ONE_WAY = frozenset({"broadcast", "reduce"})
"""Ops whose iterations in a loop run one behind the other: only their bytes bound the pace."""

_known: WeakKeyDictionary[Cluster, dict[Hashable, Any]] = WeakKeyDictionary()
"""Cuts and lines of a cluster's groups."""


class _Lines(msgspec.Struct, frozen=True, eq=False):
    """What every cut of a group needs for an op of S bytes: `slope` S + `latency` seconds.

    The first `cuts` stand whatever the switches do; the others only if they do not add up.
    `names`: a word, and what it goes before, of each next lines.
    """

    slope: Floats
    latency: Floats
    names: tuple[tuple[str, tuple[str, ...]], ...]
    cuts: int

    def name(self, at: int) -> str:
        """Return the name of a line's cut."""
        for word, names in self.names:
            if at < len(names):
                return f"{word}{names[at]}"
            at -= len(names)
        raise IndexError(at)


class Bound(msgspec.Struct, frozen=True):
    """A least time in seconds, what kind of statement that is, and the cut that sets it.

    `latency` is the part of it that no bytes need.
    """

    seconds: float
    kind: Literal["proven", "best known"]
    cut: str
    latency: float = 0.0


def bound(
    cluster: Cluster,
    op: str,
    size: float,
    gpus: Sequence[int],
    *,
    in_network: bool = False,
    root: int = 0,
    splits: Splits | None = None,
    repeated: bool = False,
    on_host: bool = False,
    every_set: bool = True,
) -> Bound:
    """Return the least time of an op of S = `size` bytes among `gpus` (global indices).

    `in_network`: switches may add and multicast (NVLS, SHARP). `root` is a member index.
    `send_recv` is nccl-tests' ring: each member sends S to the next. `splits[i][j]` are the
    bytes from member i to j of an all_to_all_v. `repeated`: the time per iteration of a loop, in
    which a broadcast or reduce hides its latency behind those before it. `on_host`: the data is in
    host memory. `every_set` looks at all sets of up to 16 devices (see `cuts_of`).

    Raises:
        ScenarioError: no such op, GPU or root, a size below zero, or an all_to_all_v without a
            row of splits for each member.
    """
    if op not in (*COLLECTIVES, "send_recv"):
        raise ScenarioError(f"{op!r} has no bound. Known: {', '.join(COLLECTIVES)}, send_recv.")
    if op == "all_to_all_v" and splits is None:
        raise ScenarioError("all_to_all_v: its bound needs the splits.")
    _check(size, len(gpus), root, splits)
    if len(gpus) < 2:
        return Bound(0.0, "proven", "")
    waits = not (repeated and op in _ONE_WAY)
    at_root = root if op in ROOTED else 0
    key = (op, tuple(gpus), at_root, waits, on_host, every_set)
    kept = _known.setdefault(cluster, {})
    if key not in kept:
        _check_group(cluster, gpus)
    if splits is not None:
        levels, partitions = _cuts(cluster, tuple(gpus), on_host=on_host, every_set=every_set)
        lines = _lines(levels, partitions, op, len(gpus), at_root, splits, waits=waits)
        return _highest(lines, 1.0, in_network=in_network)
    if key not in kept:
        levels, partitions = _cuts(cluster, tuple(gpus), on_host=on_host, every_set=every_set)
        kept[key] = _lines(levels, partitions, op, len(gpus), at_root, None, waits=waits)
    if not size and op == "send_recv":
        return Bound(0.0, "proven", "")
    return _highest(kept[key], size, in_network=in_network)


def _check_group(cluster: Cluster, gpus: Sequence[int]) -> None:
    world = cluster.world_size
    if len(set(gpus)) < len(gpus) or min(gpus) < 0 or max(gpus) >= world:
        raise ScenarioError(f"gpus: give each once, from 0 to {world - 1}: {list(gpus)[:8]}.")


def _check(size: float, n: int, root: int, splits: Splits | None) -> None:
    if not 0 <= size <= MOST_BYTES:
        raise ScenarioError(f"size: {size} bytes: a size is from 0 to 4 EiB.")
    if not 0 <= root < max(n, 1):
        raise ScenarioError(f"root: {root} is no member: give 0 to {n - 1}, a place in the group.")
    if splits is not None and (
        len(splits) != n
        or any(len(row) != n or not all(0 <= one <= MOST_BYTES for one in row) for row in splits)
    ):
        raise ScenarioError(f"splits: give {n} rows of {n} sizes, each from 0 to 4 EiB.")


def slowest(cluster: Cluster, gpus: Sequence[int], found: Bound) -> str:
    """Return the name of the link that sets a bound; "" if no link does."""
    by_latency = found.latency > found.seconds / 2
    return slowest_link(cluster, tuple(gpus), found.cut, by_latency=by_latency)


def _cuts(
    cluster: Cluster, gpus: tuple[int, ...], *, on_host: bool, every_set: bool
) -> tuple[list[Level], list[Partition]]:
    """Return the cuts of a group, every one of its data's way if that is in host memory."""
    kept, key = _known.setdefault(cluster, {}), ("cuts", gpus, every_set)
    if key not in kept:
        kept[key] = cuts_of(cluster, gpus, every_set=every_set)
    levels, partitions = kept[key]
    if not on_host:
        return levels, partitions
    return (
        [level for level in levels if level.what.startswith(HOST_LEVELS)],
        [part for part in partitions if part.what.startswith(HOST_LEVELS)],
    )


def _lines(
    levels: Sequence[Level],
    partitions: Sequence[Partition],
    op: str,
    n: int,
    root: int,
    splits: Splits | None,
    *,
    waits: bool,
) -> _Lines:
    """Return the cuts as lines over S; of an all_to_all_v, whose bytes are given, at S = 1."""
    slopes, latencies = [], []
    names: list[tuple[str, tuple[str, ...]]] = []
    for level in levels:
        cuts = level.cuts
        out, into = _crossing(level, op, 1.0, n, root, splits)
        for way, crossing, capacity, late in (
            ("out of ", out, cuts.out, cuts.late_out),
            ("into ", into, cuts.into, cuts.late_into),
        ):
            nothing = np.isnan(crossing)
            with np.errstate(divide="ignore", invalid="ignore"):
                slope = np.where(crossing > 0, crossing / capacity, 0.0)
            slopes.append(slope)
            latencies.append(np.where(nothing, 0.0, late))
            names.append((way, cuts.name))
    found = sum(len(each) for _, each in names)
    for part in partitions if op in _MESSAGES else ():
        moved = _MESSAGES[op] * (part.parts - 1)
        slopes.append(np.array([moved / part.capacity if part.capacity else np.inf]))
        latencies.append(np.array([part.latency]))
        names.append(("", (part.name,)))
    none = np.zeros(0)
    return _Lines(
        np.concatenate((none, *slopes)),
        np.concatenate((none, *latencies)) * waits,
        tuple(names),
        found,
    )


def _highest(lines: _Lines, size: float, *, in_network: bool) -> Bound:
    """Return the bound of the cut that needs longest; the first of equals."""
    end = lines.cuts if in_network else len(lines.slope)
    times = lines.latency[:end] + (lines.slope[:end] * size if size else 0.0)
    at = int(np.argmax(times)) if end else 0
    if not end or not times[at]:
        return Bound(0.0, "proven", "")
    return Bound(float(times[at]), "proven", lines.name(at), float(lines.latency[at]))


def _crossing(
    level: Level, op: str, size: float, n: int, root: int, splits: Splits | None
) -> tuple[Floats, Floats]:
    """Return the bytes that must leave and enter each cut; NaN if nothing needs to."""
    a = level.cuts.members.astype(np.float64)
    part, nothing = size / n, np.full(len(a), np.nan)
    if op in ROOTED:
        return _rooted(level.inside(root), op, size, a * part, (n - a) * part, nothing)
    if op == "barrier":
        return 0 * a, 0 * a
    if op == "all_reduce":
        return 0 * a + size, 0 * a + size
    if op == "all_gather":
        return a * part, (n - a) * part
    if op == "reduce_scatter":
        return (n - a) * part, a * part
    if op == "all_to_all":
        return a * (n - a) * part, a * (n - a) * part
    source, target, weight = _pairs(op, size, n, splits)
    leaving, entering = (
        level.leaving(weight, x, y) for x, y in ((source, target), (target, source))
    )
    return np.where(leaving > 0, leaving, np.nan), np.where(entering > 0, entering, np.nan)


def _rooted(
    with_root: Bools,
    op: str,
    size: float,
    own: Floats,
    others: Floats,
    nothing: Floats,
) -> tuple[Floats, Floats]:
    """Return what must cross for an op with a root: away from it, or towards it."""
    whole = op in ("broadcast", "reduce")
    near = 0 * own + size if whole else others  # crosses the cut of a set with the root
    far = 0 * own + size if whole else own
    if op in ("broadcast", "scatter"):
        return np.where(with_root, near, nothing), np.where(with_root, nothing, far)
    return np.where(with_root, nothing, far), np.where(with_root, near, nothing)


def _pairs(op: str, size: float, n: int, splits: Splits | None) -> tuple[Ints, Ints, Floats]:
    """Return who sends to whom, and how much."""
    if op == "send_recv":
        member = np.arange(n)
        return member, (member + 1) % n, np.full(n, float(size))
    table = np.asarray(splits, dtype=np.float64)
    source, target = np.nonzero(table)
    return source, target, table[source, target]
