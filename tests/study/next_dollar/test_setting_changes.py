"""Which other settings are tried on a training step: of sections and compute times made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from commsim.sections import decode
from commsim.study.next_dollar.alternatives import balanced, setting_changes
from commsim.workload import TrainingSection

MODEL = {"layers": 8, "hidden": 1024, "heads": 16, "vocab": 32000, "seq_len": 1024}
PARALLEL, BATCH = "workload.training.parallel", "workload.training.batch"


def tried(
    *, per_node: int = 8, spent: Any = (), batch: Any = (), cluster: bool = True, **parallel: Any
) -> dict[str, tuple[str, ...]]:
    """Return the settings by title; `spent` are stages with the seconds that a rank computes."""
    data = {"model": MODEL, "parallel": parallel, "batch": {"global": 8, "micro": 1} | dict(batch)}
    training = decode(data, TrainingSection, "x")
    file: Any = SimpleNamespace(workload=SimpleNamespace(training=training))
    nodes = np.repeat([0, 1, 2], [1, per_node, 1])
    ranks = [SimpleNamespace(stage=stage, compute_s=time) for stage, time in spent]
    base: Any = SimpleNamespace(
        cluster=SimpleNamespace(node_of=nodes) if cluster else None,
        metrics=SimpleNamespace(ranks=ranks),
    )
    return {one.title: one.sets for one in setting_changes(file, base, "x")}


def degrees(tp: int, dp: int) -> tuple[str, str]:
    return f"{PARALLEL}.tp={tp}", f"{PARALLEL}.dp={dp}"


def test_microbatches_twice_four_and_eight_times_as_large_that_divide_a_replicas_batch() -> None:
    def micro(**settings: Any) -> list[str]:
        return [sets[0] for title, sets in tried(**settings).items() if title.startswith("micro")]

    assert micro(batch={"global": 16, "micro": 1}) == [f"{BATCH}.micro={n}" for n in (2, 4, 8)]
    assert micro(dp=4, batch={"global": 16, "micro": 1}) == [f"{BATCH}.micro={n}" for n in (2, 4)]
    assert micro(dp=2, batch={"global": 24, "micro": 3}) == [f"{BATCH}.micro={n}" for n in (6, 12)]
    assert micro(dp=2, batch={"global": 6, "micro": 1}) == []


@pytest.mark.parametrize(
    ("parallel", "told"),
    [
        ({"dp": 4}, {"tp 2, dp 2": (*degrees(2, 2), f"{PARALLEL}.sequence_parallel=true")}),
        ({"tp": 2}, {"tp 1, dp 2": (*degrees(1, 2), f"{PARALLEL}.sequence_parallel=false")}),
        ({"tp": 4}, {"tp 2, dp 2": degrees(2, 2)}),
        ({"tp": 3}, {}),
        ({"dp": 3}, {}),
        ({"tp": 4, "dp": 2}, {"tp 2, dp 4": degrees(2, 4), "tp 8, dp 1": degrees(8, 1)}),
        ({"tp": 8, "dp": 2}, {"tp 4, dp 4": degrees(4, 4)}),
        ({"dp": 4, "ep": 2}, {}),
    ],
)
def test_half_and_twice_the_tensor_parallelism_within_a_node(
    parallel: dict[str, Any], told: dict[str, tuple[str, ...]]
) -> None:
    found = {title: sets for title, sets in tried(**parallel).items() if title.startswith("tp ")}
    assert found == told


def test_twice_the_tensor_parallelism_fits_the_largest_node_just_so() -> None:
    twice = "tp 4, dp 1"
    assert twice in tried(tp=2, dp=2, per_node=4)
    assert twice not in tried(tp=2, dp=2, per_node=3)
    assert "tp 2, dp 1" in tried(dp=2, per_node=2)
    assert "tp 8, dp 1" not in tried(tp=4, dp=2, per_node=7)


@pytest.mark.parametrize(
    ("parallel", "told"),
    [
        ({"tp": 1}, None),
        ({"tp": 2, "sequence_parallel": True}, ("tp_overlap ring", ())),
        ({"tp": 2, "sequence_parallel": False}, ("tp_overlap ring, sequence_parallel",
                                                 (f"{PARALLEL}.sequence_parallel=true",))),
        ({"tp": 2, "sequence_parallel": True, "tp_overlap": "weight"}, ("tp_overlap ring", ())),
        ({"tp": 2, "sequence_parallel": True, "tp_overlap": "ring"}, None),
    ],
)  # fmt: skip
def test_the_ring_overlaps_tensor_parallelism(
    parallel: dict[str, Any], told: tuple[str, tuple[str, ...]] | None
) -> None:
    settings = {"tp_overlap": "none"} | parallel
    found = [(title, sets) for title, sets in tried(**settings).items() if "overlap" in title]
    first = f"{PARALLEL}.tp_overlap=ring"
    assert found == ([] if told is None else [(told[0], (first, *told[1]))])


LONG = [(0, 4.0), (0, 6.0), (1, 1.0), (1, 1.0)]
"""Two ranks to a stage: 5 s for four layers, 1.25 each, and 1 s."""


def test_layers_move_from_where_it_computes_longest() -> None:
    """A layer is 0.25 s on the second stage: 4 moves of it leave 5 - 0.75 = 4.25 for one layer."""
    assert tried(pp=2, spent=LONG)["layers_per_stage 1,7"] == (
        f"{PARALLEL}.layers_per_stage=[1,7]",
    )
    even = [(0, 4.0), (1, 4.4)]  # to move one of 1 s would make the other 5 s
    uneven = [(0, 3.0), (0, 3.0), (1, 3.5)]  # in the mean of its ranks
    for settings in (
        {"pp": 2, "spent": even}, {"pp": 2, "spent": uneven},
        {"pp": 1, "spent": [(0, 3.0)]}, {"pp": 2, "spent": LONG[:2]},
        {"pp": 2, "spent": [*LONG, (None, 1.0)]}, {"pp": 2, "spent": LONG, "virtual_stages": 2},
    ):  # fmt: skip
        assert not any("layers_per_stage" in title for title in tried(**settings))  # type: ignore[arg-type]


def test_layers_move_from_what_the_file_says() -> None:
    given = [(0, 6.0), (1, 2.0)]  # a second each; 4 and 4 are even
    found = tried(pp=2, layers_per_stage=[6, 2], spent=given)
    assert "layers_per_stage 4,4" in found


def test_nothing_is_tried_without_training_or_a_cluster() -> None:
    assert tried(dp=4, cluster=False) == {}
    file: Any = SimpleNamespace(workload=SimpleNamespace(training=None))
    base: Any = SimpleNamespace(cluster=SimpleNamespace(node_of=np.zeros(8, int)))
    assert setting_changes(file, base, "x") == []


def test_the_last_layer_of_a_stage_stays_and_a_tie_moves_nothing() -> None:
    assert balanced([2, 2], [9.0, 2.0]) == [1, 3]
    assert balanced([1, 3], [9.0, 3.0]) == [1, 3]
    assert balanced([2, 2], [3.0, 2.0]) == [2, 2]  # 2 + 1 would be as long as 3
    assert balanced([3, 2], [3.1, 2.0]) == [2, 3]
    assert balanced([0, 4], [0.0, 8.0]) == [2, 2]  # a stage without layers has none to go by
