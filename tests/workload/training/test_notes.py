"""What the notes of a training run say of each setting, word for word."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.toy_cluster import SMALL, training

from commsim.workload.layout import make_layout


def note(begin: str, n: int = 4, **settings: Any) -> str:
    """Return the one note that begins so, without its beginning."""
    found = [one for one in training(n, **settings).notes if one.startswith(begin)]
    assert len(found) < 2
    return found[0].removeprefix(begin) if found else ""


LIVE = (
    "{}, at most {} microbatches live on a stage; sends do not hold compute, receives are posted"
    " one action ahead"
)


@pytest.mark.parametrize(
    ("schedule", "most"),
    [("1f1b", "4"), ("gpipe", "8"), ("naive", "1"), ("zb_h1", "4")],
)
def test_a_pipelines_live_microbatches(schedule: str, most: str) -> None:
    """1F1B keeps one per stage on the first, GPipe all 8; ZB-H1 as many as 1F1B."""
    told = note(f"pipeline: {schedule}", parallel={"pp": 4, "schedule": schedule})
    assert told == LIVE.format("", most)


def test_a_run_without_a_pipeline_says_nothing_of_one() -> None:
    assert not any(one.startswith("pipeline") for one in training(4).notes)


@pytest.mark.parametrize(
    ("layers", "told"),
    [(4, ""), (5, "1 + 2 x 2 + 0"), (6, "1 + 2 x 2 + 1"), (8, ""), (10, "2 + 2 x 3 + 2")],
)
def test_layers_that_do_not_divide_are_laid_around_embedding_and_head(
    layers: int, told: str
) -> None:
    """Embedding and head are a layer each, and the first stages have what is left over."""
    notes = training(4, parallel={"pp": 4}, model={**SMALL, "layers": layers}).notes
    lines = [one.removeprefix("pipeline: ") for one in notes if " layers, as " in one]
    assert [
        line.split(" layers, as embedding and head count as one each")[0] for line in lines
    ] == ([told] if told else [])
    listed = {"pp": 4, "layers_per_stage": [layers - 3, 1, 1, 1]}
    given = training(4, parallel=listed, model={**SMALL, "layers": layers}).notes
    assert not any(" layers, as " in one for one in given)


def test_tensor_parallelism_says_what_its_collectives_hold() -> None:
    def told(**parallel: Any) -> str:
        return note("tensor parallel: ", parallel={"tp": 2, "dp": 2} | parallel)

    around = "all-reduce around attention and MLP; its "
    assert told(tp_overlap="none") == f"{around}collectives hold compute"
    weight = "backward collectives run beside the weight gradients"
    assert told(tp_overlap="weight") == f"{around}{weight}"
    assert told(tp_overlap="full").endswith("run beside a block's products, as if split finely")
    assert told(tp_overlap="ring").endswith("but for the last quarter of a forward's reduction")
    divided = told(tp_overlap="none", sequence_parallel=True)
    assert divided.startswith("all-gather and reduce-scatter around attention and MLP")
    piped = {"tp": 2, "dp": 1, "pp": 2, "tp_overlap": "weight"}
    assert told(**piped, schedule="zb_h1") == (
        f"{around}collectives hold compute: zb_h1 runs weight gradients apart, so that tp_overlap"
        " weight finds none to run beside"
    )
    assert told(**piped) == f"{around}{weight}"
    assert note("tensor parallel: ") == ""


def test_data_parallelism_says_when_gradients_are_reduced() -> None:
    def told(**data: Any) -> str:
        return note("data parallel: ", data_parallel=data)

    buckets = (
        "gradients of 2 bytes in buckets of 25 MiB (the first 1 MiB) in reverse parameter order,"
        " {} overlapped with backward of {}; a unit's gradients are ready when all of it is done"
    )
    assert told() == buckets.format("all-reduced", "the last microbatch")
    assert told(kind="zero", stage=1) == buckets.format(
        "reduce-scattered (ZeRO-1)", "the last microbatch"
    )
    assert told(kind="zero", stage=2) == buckets.format(
        "reduce-scattered (ZeRO-2)", "every microbatch"
    )
    assert told(no_sync=False) == buckets.format("all-reduced", "every microbatch")
    assert "all-reduced after backward of the last microbatch" in told(overlap=False)
    assert told(gradients="fp32").startswith("gradients of 4 bytes in")
    assert "done; gradients go to the host, whose CPUs update" in told(
        kind="zero", stage=1, offload="cpu"
    )
    assert told(kind="dataparallel").startswith("torch DataParallel; Python's interpreter lock")


def test_sharded_parameters_say_how_they_are_gathered() -> None:
    def told(**data: Any) -> str:
        return note("data parallel: parameters sharded over ", data_parallel=data)

    every = "gradients scattered in every microbatch"
    assert told(kind="fsdp", prefetch=1) == (
        f"all replicas, gathered unit by unit 1 ahead; {every}"
    )
    assert told(kind="hsdp", shard=2, prefetch=0) == (
        f"groups of 2, gathered unit by unit 0 ahead; {every}"
    )
    assert told(kind="zero", stage=3, prefetch=2) == (
        f"all replicas, gathered unit by unit 2 ahead; {every}"
    )
    assert "once per step; " in told(kind="fsdp", reshard="step")
    assert told(kind="fsdp", no_sync=True).endswith("scattered behind the last microbatch")


@pytest.mark.parametrize(("servers", "workers"), [(None, 3), (2, 2)])
def test_a_parameter_server_counts_its_workers(servers: int | None, workers: int) -> None:
    data: dict[str, Any] = {"kind": "parameter_server"} | ({"servers": servers} if servers else {})
    how = (
        "parameter server, {}; servers: {}, the first ranks; workers: {}; pushed and pulled whole,"
    )
    batch = {"global": 6, "micro": 1}
    assert note("data parallel: ", data_parallel=data, batch=batch) == (
        f"{how.format('synchronous', servers or 1, workers)} after backward"
    )
    apart = note("data parallel: ", data_parallel=data | {"sync": False}, batch=batch)
    assert apart.startswith("parameter server, asynchronous;")


def test_context_and_experts_say_how_they_divide() -> None:
    assert note("context parallel: ", parallel={"cp": 2, "dp": 2}).startswith("ring; the causal")
    assert note("context parallel: ") == ""
    experts = {**SMALL, "experts": {"experts": 4, "top_k": 2, "expert_ffn": 16}}
    for skew, told in ((1, "evenly"), (1.5, "with 1.5 times the mean on the busiest rank")):
        parallel = {"dp": 4, "ep": 2, "expert_skew": skew}
        found = note("experts: tokens are spread ", model=experts, parallel=parallel)
        assert found == f"{told}; no capacity limit, none dropped"
    assert note("experts: tokens", model=experts) == ""


def test_a_tied_embedding_is_reduced_between_the_ends() -> None:
    """32 tokens of 8 entries, 2 bytes each: 512 bytes."""
    tied = {**SMALL, "tied_embeddings": True}
    assert "(512 B)" in note("embeddings: tied", model=tied, parallel={"pp": 4})
    assert note("embeddings: tied", model=tied) == ""


def test_holders_of_experts_are_neighbours_on_tensor_parallelism_first() -> None:
    """tp 2, dp 2, pp 2: a stage has ranks 0 to 3, replicas 0 and 2, and 1 and 3."""
    degrees = {"tp": 2, "cp": 1, "dp": 2, "pp": 2}
    layout = make_layout(degrees, ("tp", "cp", "dp", "pp"), where="x")
    replicas = layout.replicas()
    assert replicas.tolist() == [[0, 2], [4, 6], [1, 3], [5, 7]]
    assert layout.holders(replicas, whole=False).tolist() == replicas.tolist()
    assert layout.holders(replicas, whole=True).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert layout.same_experts(2, whole=True).tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert layout.same_experts(2, whole=False).tolist() == [[0], [2], [4], [6], [1], [3], [5], [7]]
    assert layout.same_experts(1, whole=False).tolist() == replicas.tolist()
    assert layout.rank({"tp": 1, "pp": 1}) == 5
    assert layout.rank({}) == 0
