"""
What-ifs of a replay: other compute, another library, more data-parallel ranks.

    commsim replay run --cluster dgx-h100 --comm modelled --set compute.scale=0.5
    commsim replay run ... --set replace.rank=slowest
    commsim replay run ... --set library.version=2.21 --set data_parallel.size=64

Settings that are none of these change the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from commsim.errors import ScenarioError
from commsim.graph import (
    Device,
    Graph,
    Group,
    OpKind,
    replace_rank,
    scale_compute,
    slowest_rank,
)
from commsim.libraries import LibrarySection, Recorded
from commsim.limits import BYTES_PER_CHUNK, check_size
from commsim.scenario import apply_sets
from commsim.sections import Section, decode

__all__ = ["WhatIf", "grown", "split_sets", "with_library"]

_SOUND = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier")
_VERSION = "library.version"
_ROOTS = ("compute", "library", "data_parallel", "replace")


class ComputeChange(Section, frozen=True):
    """`scale`: how much longer compute takes, on GPU and CPU alike: 0.5 is twice as fast."""

    scale: float = 1.0


class DataParallelChange(Section, frozen=True):
    """`size`: how many ranks the data-parallel group has; `group`: its name among several."""

    size: int | None = None
    group: str = ""


class ReplaceChange(Section, frozen=True):
    """`rank`: the one whose GPU is exchanged for one like the others': a number, or slowest."""

    rank: int | str | None = None


class WhatIf(Section, frozen=True):
    """What is to be different from the recording."""

    compute: ComputeChange = msgspec.field(default_factory=ComputeChange)
    library: LibrarySection | None = None
    data_parallel: DataParallelChange = msgspec.field(default_factory=DataParallelChange)
    replace: ReplaceChange = msgspec.field(default_factory=ReplaceChange)

    @property
    def changes_work(self) -> bool:
        """Whether the graph itself becomes another."""
        return (
            self.compute.scale != 1.0
            or self.data_parallel.size is not None
            or self.replace.rank is not None
        )

    def applied(self, graph: Graph) -> tuple[Graph, list[str]]:
        """Return the changed graph, and what was assumed.

        Raises:
            ScenarioError: a scale that is no positive number, or a size that is not sound.
        """
        notes: list[str] = []
        if self.replace.rank is not None:
            graph, note = _replaced(graph, self.replace.rank)
            notes.append(note)
        if self.compute.scale != 1.0:
            graph = scale_compute(graph, self.compute.scale)
            notes.append(
                f"what-if: compute takes {self.compute.scale:g} times as long, on GPU and CPU;"
                " copies and latencies of launches stay."
            )
        if self.data_parallel.size is not None:
            graph, note = grown(graph, self.data_parallel.size, self.data_parallel.group)
            notes.append(note)
        if self.library is not None and self.library.name != "auto":
            graph = with_library(graph, self.library.name)
        if self.data_parallel.size is not None:
            _check_barriers(graph)
        return graph, notes


def _replaced(graph: Graph, asked: int | str) -> tuple[Graph, str]:
    if isinstance(asked, str) and asked != "slowest":
        raise ScenarioError(f"replace.rank: {asked!r}: give a rank's number, or slowest.")
    rank = slowest_rank(graph) if isinstance(asked, str) else asked
    graph, factor = replace_rank(graph, rank)
    return graph, (
        f"what-if: rank {rank} computes {factor:.4g} times as long as it did: as the median of the"
        " others."
    )


def split_sets(sets: Iterable[str]) -> tuple[WhatIf, tuple[str, ...]]:
    """Return the what-ifs among --set words, and the words that change the cluster."""
    mine, others = list[str](), list[str]()
    for word in sets:
        root = word.partition("=")[0].strip().split(".")[0].split("[")[0]
        (mine if root in _ROOTS else others).append(_quoted(word))
    data: Any = apply_sets({}, mine)
    return decode(data, WhatIf, "--set"), tuple(others)


def _quoted(word: str) -> str:
    """Keep a version as it was written: YAML reads 2.20 as the number 2.2."""
    key, equals, value = word.partition("=")
    return f'{key}="{value}"' if key.strip() == _VERSION and value[:1] not in "\"'" else word


def with_library(graph: Graph, name: str) -> Graph:
    """Return `graph` with all groups communicating by library `name`, data if that has it."""
    groups = tuple(
        group if group.library == Recorded.name else replace(group, library=name)
        for group in graph.groups
    )
    device = graph.device.copy()
    if name == "nccl":
        speaks = np.isin(graph.kind, (OpKind.COLLECTIVE, OpKind.SEND, OpKind.RECV))
        device[speaks] = Device.CUDA
    return replace(graph, groups=groups, device=device)


def grown(graph: Graph, size: int, name: str = "") -> tuple[Graph, str]:
    """Return `graph` with its data-parallel group at `size` ranks, and what that assumes.

    Weak scaling: each rank keeps its work and its batch. The new ranks are taken to do what the
    recorded ones do, and never later; the sizes of buffers stay, so that the shard of an
    all-gather or reduce-scatter shrinks as the group grows.

    Raises:
        ScenarioError: if that is not sound, with the reason.
    """
    chosen = _chosen(graph, name)
    members = len(graph.groups[chosen[0]].ranks)
    _check_size(graph, chosen, size, members)
    world = 1 + max(rank for group in graph.groups for rank in group.ranks)
    copies = size // members
    whole = [i for i, group in enumerate(graph.groups) if len(group.ranks) == world]
    _check_ops(graph, [*chosen, *whole])
    groups = list(graph.groups)
    for i in dict.fromkeys([*chosen, *whole]):
        groups[i] = _repeated(groups[i], copies, world)
    return replace(graph, groups=tuple(groups)), (
        f"what-if: {size} data-parallel ranks for {members}, each with the recorded work and batch"
        f" (weak scaling); ranks {world} to {world * copies - 1} are taken to do what the recorded"
        " ones do, and to be never later."
    )


def _chosen(graph: Graph, name: str) -> list[int]:
    """Return the groups to grow: those of the name, else the only kind that there is."""
    used = sorted(set(graph.collectives.group.tolist()))
    if name:
        found = [i for i in used if graph.groups[i].name.split(" [")[0] == name]
        if found:
            return found
        names = dict.fromkeys(graph.groups[i].name.split(" [")[0] for i in used)
        raise ScenarioError(
            f"data_parallel.group: no collective is on a group {name!r}."
            f" Groups: {', '.join(names) or 'none'}."
        )
    if len(used) == 1:
        return used
    names = dict.fromkeys(graph.groups[i].name.split(" [")[0] for i in used)
    raise ScenarioError(
        "data_parallel.size: the trace has several groups, and does not say which is"
        f" data-parallel. Add --set data_parallel.group=NAME: {', '.join(names) or 'none'}."
    )


def _check_size(graph: Graph, chosen: list[int], size: int, members: int) -> None:
    if size <= 0 or size % members:
        raise ScenarioError(
            f"data_parallel.size: {size} is not the recorded {members} or a multiple of it."
            " Recorded ranks cannot be taken away, and each copy of them is whole: record fewer, or"
            " capture the program at that size (commsim capture)."
        )
    if any(len(graph.groups[i].ranks) != members for i in chosen):
        raise ScenarioError("data_parallel.group: its groups have different numbers of ranks.")


def _check_barriers(graph: Graph) -> None:
    """Refuse a barrier of Gloo's too large for memory: a rank tells on whom it has heard from."""
    barriers = np.array(graph.collectives.kind) == "barrier"
    for at in np.unique(graph.collectives.group[barriers]).tolist():
        group = graph.groups[at]
        if group.library == "gloo":
            ranks = len(group.ranks)
            check_size(
                ranks * ranks, BYTES_PER_CHUNK,
                f"data_parallel.size: a barrier of Gloo's among {ranks:,} ranks, of which each"
                f" hears of each: {ranks * ranks:,} chunks",
                "Take fewer ranks, or --set library.name=nccl.",
            )  # fmt: skip


def _check_ops(graph: Graph, groups: list[int]) -> None:
    """Only ops whose work per rank does not depend on the number of ranks may grow."""
    rows = np.flatnonzero(np.isin(graph.collectives.group, groups))
    for row in rows.tolist():
        kind = graph.collectives.kind[row]
        if kind not in _SOUND:
            group = graph.groups[int(graph.collectives.group[row])].name
            raise ScenarioError(
                f"data_parallel.size: group {group!r} runs {kind}: what each rank sends there"
                " depends on how many there are (expert or embedding parallelism), so a recording"
                " cannot say it. Record at that size, or capture the program."
            )


def _repeated(group: Group, copies: int, world: int) -> Group:
    """Return a group with itself repeated, each time a world further on."""
    ranks = tuple(rank + world * copy for copy in range(copies) for rank in group.ranks)
    return replace(group, ranks=ranks)
