"""
From what a section leaves to chance to faults at places: the same seed and number, the same faults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from commsim.arrays import Floats
from commsim.cluster import Cluster
from commsim.engine.faults.section import FaultsSection, JitterSection, SlowLinkSection
from commsim.errors import ScenarioError, did_you_mean
from commsim.units import LEAST_BANDWIDTH, MOST_PICOSECONDS, Duration

__all__ = [
    "DrawnFaults",
    "Noise",
    "SlowGpu",
    "SlowLink",
    "check_faults",
    "draw_dead",
    "draw_faults",
]

_DEAD, _OTHERS = 0, 1  # streams of chance
_MOST_DRAWS = 100_000  # repetitions of a flapping link


class SlowGpu(msgspec.Struct, frozen=True):
    """A rank whose compute takes `factor` times as long, from `start` to `end` ps or always."""

    rank: int
    factor: float
    start: int | None = None
    end: int = MOST_PICOSECONDS


class SlowLink(msgspec.Struct, frozen=True):
    """Links of which the share `left` stays: always, or within `windows` of (start, end) ps."""

    links: tuple[int, ...]
    left: float
    windows: tuple[tuple[int, int], ...] | None = None


class Noise(msgspec.Struct, frozen=True):
    """Jitter: of all ranks if `ranks` is None; `pool` has measured factors, if any."""

    spread: float
    distribution: str
    ranks: tuple[int, ...] | None
    pool: Floats | None = None


class DrawnFaults(msgspec.Struct, frozen=True):
    """The faults of one run on a cluster without its dead NICs; `seed` draws the jitter."""

    slow_gpus: tuple[SlowGpu, ...] = ()
    slow_links: tuple[SlowLink, ...] = ()
    noise: tuple[Noise, ...] = ()
    seed: tuple[int, int] = (0, 0)

    def __bool__(self) -> bool:
        return bool(self.slow_gpus or self.slow_links or self.noise)


def draw_dead(
    section: FaultsSection, cluster: Cluster, sample: int, *, where: str
) -> tuple[tuple[int, int], ...]:
    """Return the NICs that are dead in run number `sample`, as (node, number on it).

    Raises:
        ScenarioError: as `draw_faults` does.
    """
    random = np.random.default_rng((section.seed, sample, _DEAD))
    found: dict[tuple[int, int], None] = {}
    for at, one in enumerate(section.dead_nics):
        path, given = f"{where}.dead_nics.{at}", None
        if one.node is not None or one.nic is not None:
            place = (one.node or 0, one.nic or 0)
            numbers = {(nic.node, nic.index): n for n, nic in enumerate(cluster.nics)}
            given = numbers.get(place)
            if given is None:
                raise ScenarioError(f"{path}: there is no NIC {place[1]} on node {place[0]}.")
        for nic in _chosen(given, one, len(cluster.nics), random, path, "node and nic"):
            found[cluster.nics[nic].node, cluster.nics[nic].index] = None
    return tuple(found)


def draw_faults(
    section: FaultsSection,
    cluster: Cluster,
    sample: int,
    *,
    where: str,
    pool: Callable[[str], Floats],
) -> DrawnFaults:
    """Return the faults of run number `sample`, but for the NICs that `draw_dead` took.

    `where` names the section in errors, `pool` returns the factors of jitter that a trace shows.

    Raises:
        ScenarioError: a rank, NIC or link that is not there; two ways to choose, or none.
    """
    random = np.random.default_rng((section.seed, sample, _OTHERS))
    gpus = [
        SlowGpu(rank, one.factor, start, MOST_PICOSECONDS if one.end is None else int(one.end))
        for at, one in enumerate(section.slow_gpus)
        for start in (_start(one.start, one.end),)
        for rank in _chosen(
            one.rank, one, cluster.world_size, random, f"{where}.slow_gpus.{at}", "rank"
        )
    ]
    links = [
        SlowLink(ids, one.left, _windows(one, at_path))
        for at, one in enumerate(section.slow_links)
        for at_path in (f"{where}.slow_links.{at}",)
        for ids in _links(one, cluster, random, at_path)
    ]
    for one in links:
        left = cluster.links.bandwidth[list(one.links)] * one.left
        if one.windows is None and (left < LEAST_BANDWIDTH).any():
            raise ScenarioError(
                f"{where}.slow_links: a link of which nothing is left for good ends the run. Give"
                " `down` and `every`, an `end`, or list the NIC under dead_nics."
            )
    noise = [
        _noise(one, cluster, f"{where}.jitter.{at}", pool) for at, one in enumerate(section.jitter)
    ]
    return DrawnFaults(
        tuple(gpus),
        tuple(links),
        tuple(noise),
        (section.seed, sample),
    )


def check_faults(
    section: FaultsSection, cluster: Cluster, *, where: str, pool: Callable[[str], Floats]
) -> None:
    """Refuse what some run's draw would refuse, before the first: any NIC may become slow.

    Raises:
        ScenarioError: as `draw_faults` does.
    """
    draw_dead(section, cluster, 0, where=where)
    draw_faults(section, cluster, 0, where=where, pool=pool)
    every = tuple(
        replace(one, share=1.0, count=None) if one.share or one.count else one
        for one in section.slow_links
    )
    draw_faults(FaultsSection(slow_links=every), cluster, 0, where=where, pool=pool)


def _start(start: Duration | None, end: Duration | None) -> int | None:
    return None if start is None and end is None else int(start or 0)


def _chosen(
    given: int | None, one: Any, count: int, random: np.random.Generator, where: str, what: str
) -> list[int]:
    """Return the numbers (of ranks, of NICs) that an entry means."""
    ways = [way for way in (given, one.count, one.share) if way is not None]
    if len(ways) != 1:
        raise ScenarioError(f"{where}: give exactly one of {what}, count and share.")
    if given is not None:
        if given >= count:
            raise ScenarioError(f"{where}.{what}: there is no {given}: {count} are counted from 0.")
        return [given]
    if one.count is not None:
        if one.count > count:
            raise ScenarioError(f"{where}.count: {one.count} of {count} cannot be.")
        found: list[int] = sorted(random.choice(count, one.count, replace=False).tolist())
        return found
    hit: list[int] = np.flatnonzero(random.random(count) < one.share).tolist()
    return hit


def _windows(one: SlowLinkSection, where: str) -> tuple[tuple[int, int], ...] | None:
    if (one.down is None) != (one.every is None):
        raise ScenarioError(f"{where}: `down` and `every` go together.")
    start = _start(one.start, one.end)
    if one.down is None or one.every is None:
        end = MOST_PICOSECONDS if one.end is None else int(one.end)
        return None if start is None else ((start, end),)
    if not 0 < one.down < one.every:
        raise ScenarioError(f"{where}.every: must be longer than `down`, and that above zero.")
    if one.end is None:
        raise ScenarioError(f"{where}: a link that flaps needs an `end`, like end: 1s.")
    begins = range(int(one.start or 0), int(one.end), int(one.every))
    if len(begins) > _MOST_DRAWS:
        raise ScenarioError(f"{where}: flaps {len(begins):,} times, more than {_MOST_DRAWS:,}.")
    return tuple((at, min(at + int(one.down), int(one.end))) for at in begins)


def _links(
    one: SlowLinkSection, cluster: Cluster, random: np.random.Generator, where: str
) -> Iterator[tuple[int, ...]]:
    """Yield the links of each thing that an entry means."""
    if one.link is not None:
        if one.count is not None or one.share is not None:
            raise ScenarioError(f"{where}: give exactly one of link, count and share.")
        yield _named(one.link, cluster, where)
        return
    for nic in _chosen(None, one, len(cluster.nics), random, where, "link"):
        if not len(cluster.fabric.nic_links):
            raise ScenarioError(
                f"{where}: the cluster has no fabric, so its NICs have no links to one. Name a link"
                " inside the node with `link`, or give cluster.fabric."
            )
        link = cluster.fabric.nic_link(nic)
        yield link, link + 1


def _named(name: str, cluster: Cluster, where: str) -> tuple[int, ...]:
    """Return a link by its name, or the links of what is so called: of a NIC to the network."""
    links = cluster.links
    exact = tuple(at for at, one in enumerate(links.names) if one == name)
    if exact:
        return exact
    ends = [at for at in range(len(links)) if name in (links.source[at], links.target[at])]
    network = [at for at in ends if links.kinds[at] == "network"]
    if not ends:
        known = list(dict.fromkeys((*links.names, *links.source)))
        raise ScenarioError(
            f"{where}.link: there is no {name!r}.{did_you_mean(name, known)} `commsim topo` and"
            " the report name links, like node0/nic0->leaf0, and their ends, like node0/nic0."
        )
    return tuple(network or ends)


def _noise(
    one: JitterSection, cluster: Cluster, where: str, pool: Callable[[str], Floats]
) -> Noise:
    if (one.spread is None) == (one.trace is None):
        raise ScenarioError(f"{where}: give exactly one of spread and trace.")
    for rank in one.ranks or ():
        if rank >= cluster.world_size:
            raise ScenarioError(f"{where}.ranks: there is no rank {rank}.")
    measured = None if one.trace is None else pool(one.trace)
    return Noise(one.spread or 0.0, one.distribution, one.ranks, measured)
