"""
When nothing fits: how far off the closest layout is, and which change would fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from commsim.cluster import Cluster, build_cluster
from commsim.errors import CommsimError
from commsim.libraries import Ideal
from commsim.models import build_model, memory_text
from commsim.scenario import Scenario
from commsim.study.advise.judge import Judge, Judged
from commsim.workload import TrainingSection
from commsim.workload.training import with_stack

__all__ = ["nothing_fits"]

_MOST_TIMES = 64  # as many nodes: beyond that more GPUs are no advice
_SHORTEST = 256  # tokens


def nothing_fits(scenario: Scenario, judged: Sequence[Judged], layouts: int) -> str:
    """Return an error message: the closest layout with its arithmetic, and what would fit.

    `judged` are those that need least of so many `layouts`.
    """
    closest = min(judged, key=lambda one: (one.use.total, one.candidate))
    need = memory_text(closest.use, closest.capacity, stage=closest.stage)
    changes = list(_changes(scenario, judged))
    advice = " or ".join(changes) if changes else ("a smaller model, or GPUs with more memory")
    return (
        f"{scenario.where}: none of {layouts} layouts fits. The closest,"
        f" {closest.candidate.name}: {need}. Would fit: {advice}."
    )


def _changes(scenario: Scenario, judged: Sequence[Judged]) -> Iterator[str]:
    assert scenario.file.workload.training is not None
    assert scenario.file.cluster is not None
    section = with_stack(scenario.file.workload.training)
    cluster = build_cluster(scenario.file.cluster, scenario.where)
    yield from _offload(judged)
    yield from _nodes(scenario, section)
    yield from _shorter(section, cluster)


def _offload(judged: Sequence[Judged]) -> Iterator[str]:
    """Yield the least that a layout holds which keeps its optimizer on the host, if it fits."""
    zero = [one for one in judged if one.candidate.shard in ("zero-1", "zero-2")]
    if not zero:
        return
    best = min(zero, key=lambda one: (one.use.total - one.use.optimizer, one.candidate))
    held = best.use.total - best.use.optimizer
    if held <= best.capacity:
        yield (
            f"data_parallel: {{kind: zero, stage: {best.candidate.shard[-1]}, offload: cpu}} with"
            f" {best.candidate.name} ({held / 2**30:.1f} GiB; advise does not try offload)"
        )


def _nodes(scenario: Scenario, section: TrainingSection) -> Iterator[str]:
    """Yield the least doubling of nodes that fits."""
    given = scenario.file.cluster
    assert given is not None
    count, times = given.nodes, 2
    while isinstance(count, int) and times <= _MOST_TIMES:
        try:
            more = msgspec.structs.replace(given, nodes=count * times)
            cluster = build_cluster(more, scenario.where)
        except CommsimError:  # a machine that has no network
            return
        if _least(section, cluster) is not None:
            yield f"{count * times} nodes instead of {count}"
            return
        times *= 2


def _shorter(section: TrainingSection, cluster: Cluster) -> Iterator[str]:
    """Yield the longest sequence that fits, of halves."""
    length = whole = build_model(section.model, where="model").seq_len
    while length > _SHORTEST:
        length //= 2
        model = msgspec.structs.replace(section.model, seq_len=length)
        if _least(msgspec.structs.replace(section, model=model), cluster) is not None:
            yield f"model.seq_len {length} instead of {whole}"
            return


def _least(section: TrainingSection, cluster: Cluster) -> Judged | None:
    """Return a layout that fits among those that need least, None if none does."""
    judge = Judge(section, cluster, Ideal())
    for degrees in judge.degrees():
        shard = "fsdp" if degrees.dp * degrees.cp > 1 else "ddp"
        found = judge.least(degrees, shard, "full")
        if found is not None and found.fits:
            return found
    return None
