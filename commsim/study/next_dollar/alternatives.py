"""
Settings that cost nothing, beside halves and doubles: larger microbatches, another degree of tensor
parallelism with as many GPUs, its overlap, and layers moved between pipeline stages.

A change is made of texts as `--set` takes them, so that anybody can run it again.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from commsim.models import build_model
from commsim.scenario import ScenarioFile
from commsim.study.run import Result
from commsim.workload import TrainingSection, divide_layers, with_defaults

__all__ = ["Alternative", "SettingChange", "balanced", "setting_changes"]

_PATH = "workload.training"
_MICRO = (2, 4, 8)  # times


class SettingChange(msgspec.Struct, frozen=True):
    """Settings to change together, by name and as `--set` takes them."""

    title: str
    sets: tuple[str, ...]


class Alternative(msgspec.Struct, frozen=True):
    """Settings to change together, and what a run with them says: the step (s), what it saves
    (below zero: longer), whether it fits in memory (None: not known).

    All are None where it cannot run: `error`.
    """

    title: str
    sets: tuple[str, ...]
    step_time_s: float | None = None
    saved_s: float | None = None
    fits: bool | None = None
    error: str | None = None


def setting_changes(file: ScenarioFile, base: Result, where: str) -> list[SettingChange]:
    """Return what to try on a training step; nothing for other work."""
    training, cluster = file.workload.training, base.cluster
    if training is None or cluster is None:
        return []
    per_node = int(np.bincount(cluster.node_of).max())
    return [
        *_microbatches(training),
        *_tensor(training, per_node),
        *_overlap(training, where),
        *_layers(training, base, where),
    ]


def _microbatches(training: TrainingSection) -> Iterator[SettingChange]:
    batch = training.batch
    each = batch.global_ // training.parallel.dp
    for times in _MICRO:
        if each % (batch.micro * times) == 0:
            micro = batch.micro * times
            yield SettingChange(f"micro {micro}", (f"{_PATH}.batch.micro={micro}",))


def _tensor(training: TrainingSection, per_node: int) -> Iterator[SettingChange]:
    """Yield half and twice the degree of tensor parallelism; replicas make up for it."""
    parallel = training.parallel
    if parallel.ep > 1:
        return  # which ranks hold the experts changes with it
    if parallel.tp % 2 == 0:
        tp, dp = parallel.tp // 2, parallel.dp * 2
        alone = (f"{_PATH}.parallel.sequence_parallel=false",) if tp == 1 else ()
        yield SettingChange(f"tp {tp}, dp {dp}", (*_degrees(tp, dp), *alone))
    if parallel.dp % 2 == 0 and 2 * parallel.tp <= per_node:
        tp, dp = parallel.tp * 2, parallel.dp // 2
        first = (f"{_PATH}.parallel.sequence_parallel=true",) if parallel.tp == 1 else ()
        yield SettingChange(f"tp {tp}, dp {dp}", (*_degrees(tp, dp), *first))


def _degrees(tp: int, dp: int) -> tuple[str, str]:
    return f"{_PATH}.parallel.tp={tp}", f"{_PATH}.parallel.dp={dp}"


def _overlap(training: TrainingSection, where: str) -> Iterator[SettingChange]:
    parallel = with_defaults(training, where=where)[0].parallel
    if parallel.tp == 1 or parallel.tp_overlap not in ("none", "weight"):
        return
    with_it = () if parallel.sequence_parallel else (f"{_PATH}.parallel.sequence_parallel=true",)
    title = "tp_overlap ring" + (", sequence_parallel" if with_it else "")
    yield SettingChange(title, (f"{_PATH}.parallel.tp_overlap=ring", *with_it))


def _layers(training: TrainingSection, base: Result, where: str) -> Iterator[SettingChange]:
    """Yield layers moved from stages that compute longest to those that compute shortest."""
    parallel = training.parallel
    spent: dict[int | None, list[float]] = {}
    for rank in base.metrics.ranks:
        spent.setdefault(rank.stage, []).append(rank.compute_s)
    if parallel.pp == 1 or set(spent) != set(range(parallel.pp)) or parallel.virtual_stages > 1:
        return
    model = build_model(training.model, where=where)
    ranges = divide_layers(
        model.shape.layers, parallel.pp, 1, parallel.layers_per_stage, where=where
    )
    layers = [len(one) for one in ranges]
    busy = [sum(spent[stage]) / len(spent[stage]) for stage in range(parallel.pp)]
    moved = balanced(layers, busy)
    if moved != layers:
        told = ",".join(str(one) for one in moved)
        yield SettingChange(
            f"layers_per_stage {told}", (f"{_PATH}.parallel.layers_per_stage=[{told}]",)
        )


def balanced(layers: list[int], busy: list[float]) -> list[int]:
    """Return the layers of each stage after moving as many, one by one, from the stage that works
    longest to the one that works shortest as that makes the longest shorter.

    A layer takes what it takes on the stage that spends least on each.
    """
    counts, times = list(layers), list(busy)
    each = min(time / count for time, count in zip(busy, layers, strict=True) if count)
    while True:
        longest, shortest = times.index(max(times)), times.index(min(times))
        if counts[longest] < 2 or times[shortest] + each >= times[longest]:
            return counts
        counts[longest], counts[shortest] = counts[longest] - 1, counts[shortest] + 1
        times[longest], times[shortest] = times[longest] - each, times[shortest] + each
