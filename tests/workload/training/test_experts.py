"""Experts in a step: who sends how much, what is dropped, and what cannot be asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.toy_cluster import SMALL
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.engine import simulate
from commsim.errors import ScenarioError
from commsim.libraries import Ideal
from commsim.models import GpuWork
from commsim.sections import decode
from commsim.study.run import run
from commsim.workload import TrainingSection, build_training
from commsim.workload.training import plan_training
from commsim.workload.training.axes import Axes
from commsim.workload.training.expert_routing import ExpertRouting
from commsim.workload.training.plan import TrainingPlan
from commsim.workload.training.work_items import WorkList

EXPERTS = {"experts": 16, "top_k": 4, "expert_ffn": 256}
MODEL = {**SMALL, "hidden": 256, "heads": 8, "seq_len": 512, "experts": EXPERTS}


def section(**settings: Any) -> TrainingSection:
    base = {
        "model": MODEL, "batch": {"global": 16, "micro": 1}, "parallel": {"dp": 16, "ep": 16},
    }  # fmt: skip
    return decode({**base, **settings}, TrainingSection, "x")


def planned(**settings: Any) -> TrainingPlan:
    return plan_training(section(**settings), Cluster.preset("dgx-h100", nodes=2), where="x")


def sent(**parallel: Any) -> list[int]:
    """Return the sizes of the all-to-alls of a layer's forward on rank 0: there and back."""
    made = section(parallel={"dp": 16, "ep": 16, **parallel})
    graph = build_training(made, Cluster.preset("dgx-h100", nodes=2)).graph
    return [
        int(graph.size[op])
        for op in range(len(graph))
        if graph.lane[op] == 0 and graph.names[graph.name[op]] == "all_to_all F layer 0"
    ][:2]


def test_the_nodes_of_an_expert_group() -> None:
    assert planned().split.ep_nodes == 2
    assert planned(parallel={"dp": 16, "ep": 8}).split.ep_nodes == 1
    assert planned(parallel={"dp": 8, "tp": 2, "ep": 8}).split.ep_nodes == 2
    rack = Cluster.preset("gb200-nvl72", nodes=4)
    assert plan_training(section(), rack, where="x").split.ep_nodes == 1


def test_every_copy_or_a_token_once_per_node() -> None:
    """Two nodes hold 8 of 16 experts each: 4 copies meet 1.92 of them in the mean."""
    n = 2 * 512 * 256
    assert sent(dispatcher="alltoall") == [4 * n, 4 * n]
    once = sent(dispatcher="deepep")
    assert once == pytest.approx([1.9231 * n] * 2, rel=1e-4)
    there, back = sent(dispatcher="deepep-fp8")
    assert [2 * there, back] == pytest.approx(once, abs=1)
    assert sent(dispatcher="alltoall", expert_capacity=1.5) == [6 * n, 6 * n]


def test_the_stack_says_who_dispatches() -> None:
    plan = planned(compute={"stack": "nemo"})
    assert (plan.split.dispatcher, plan.section.compute.cuda_graph) == ("deepep", "experts")
    assert plan.taken.settings[-2:] == ("dispatcher deepep", "cuda_graph experts")
    assert planned(compute={"stack": "nemo-2025"}).split.dispatcher == "alltoall"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": SMALL, "parallel": {"dp": 16, "expert_capacity": 1.0}}, "has no experts"),
        ({"compute": {"cuda_graph": "full"}}, r"cuda_graph: full: the host must learn"),
        (
            {"parallel": {"dp": 16, "ep": 16, "expert_skew": 2, "expert_capacity": 1.0}},
            r"expert_skew: with expert_capacity every expert takes the same",
        ),
        ({"parallel": {"dp": 16, "dispatcher": "deepep"}}, r"dispatcher: changes nothing"),
    ],
)
def test_what_does_not_go_together(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        planned(**settings)


def test_a_whole_step_is_one_graph_with_a_capacity() -> None:
    parallel = {"dp": 16, "ep": 16, "expert_capacity": 1.0}
    plan = planned(parallel=parallel, compute={"cuda_graph": "full"})
    assert plan.split.capacity == 1.0


def ops_of(
    layout: dict[str, Any], *, unit: str, model: dict[str, Any] = MODEL, stack: str = "megatron"
) -> list[tuple[str, int]]:
    """Return kind and size of a layer's collectives on rank 0, of a microbatch's pass."""
    made = section(
        model=model, parallel=layout, compute={"stack": stack}, batch={"global": 8, "micro": 1}
    )
    graph = build_training(made, Cluster.preset("dgx-h100", nodes=2)).graph
    names = [graph.names[name] for name in graph.name]
    return [
        (name.split()[0], int(graph.size[op]))
        for op, name in enumerate(names)
        if graph.lane[op] == 0 and graph.step[op] == 0 and name.split()[1:] == unit.split()
        if name.split()[0] in ("all_gather", "reduce_scatter", "all_to_all")
    ]


WHOLE = {"dp": 8, "tp": 2, "sequence_parallel": True, "ep": 16, "etp": 1}


def test_whole_experts_get_each_ranks_own_tokens() -> None:
    """A stage's 16 ranks hold 16 experts; tensor parallelism is around attention alone."""
    n = 2 * 512 * 256
    there_and_back = ["all_gather", "reduce_scatter", "all_to_all", "all_to_all"]
    found = ops_of(WHOLE, unit="F layer 0")
    assert [kind for kind, _ in found] == there_and_back
    assert [size for _, size in found] == [n, n, 4 * n // 2, 4 * n // 2]
    backward = [kind for kind, _ in ops_of(WHOLE, unit="B layer 0")]
    assert backward == ["all_to_all", "all_to_all", "all_gather", "all_gather", "reduce_scatter"]


def test_a_shared_expert_is_divided_as_the_rest() -> None:
    model = {**MODEL, "experts": {**EXPERTS, "shared_expert_ffn": 256}}
    kinds = [kind for kind, _ in ops_of(WHOLE, unit="F layer 0", model=model)]
    around = ["all_gather", "reduce_scatter"]
    assert kinds == [*around, *around, "all_to_all", "all_to_all"]


@pytest.mark.parametrize("layout", [{"dp": 16, "ep": 16}, WHOLE, {**WHOLE, "ep": 8, "etp": 2}])
def test_shared_experts_run_while_tokens_travel(layout: dict[str, Any]) -> None:
    """The same work and messages; each part of them is hidden, or hides its all-to-all, under which
    a backward gathers the router's input too, no longer next to the shared experts."""
    exposed = 0
    model = {**MODEL, "experts": {**EXPERTS, "shared_expert_ffn": 512}}
    cluster, found = Cluster.preset("dgx-h100", nodes=2), []
    hidden = 0
    for beside in (False, True):
        made = section(
            model=model, parallel={**layout, "shared_overlap": beside},
            compute={"efficiency": 0.4}, batch={"global": layout["dp"], "micro": 1},
        )  # fmt: skip
        graph = build_training(made, cluster).graph
        own = graph.lane == 0
        timeline = simulate(graph, cluster, library=Ideal())
        took = (timeline.end - timeline.start)[own]
        messages = [size for size in graph.size[own].tolist() if size > 0]
        names = [graph.names[name] for name in graph.name[own]]
        for at, name in enumerate(names):
            if name.endswith(" shared"):
                assert names[at - 1].startswith("all_to_all")
                hidden += int(min(took[at], took[at - 1]))
            if name == "B layer 0 router" and not beside:
                exposed = max(0, int(took[at - 1] - took[at]))
        found.append((int(timeline.end.max()), graph.flops[own].sum(), sorted(messages)))
    (after, flops, sizes), (beside_it, same_flops, same_sizes) = found
    assert same_flops == pytest.approx(flops, rel=1e-9)
    assert same_sizes == sizes
    assert hidden > 0
    gathers = 2 * MODEL["layers"] * exposed if "tp" in layout else 0
    assert after - beside_it == pytest.approx(hidden + gathers, rel=1e-3)


@pytest.mark.parametrize(
    ("gated", "forward", "backward"),
    [(False, (3.0, 3.0), (3.0, 3.0)), (True, (4.0, 2.0), (2.0, 4.0))],
)
def test_shared_experts_run_by_their_products_before_and_after(
    gated: bool, forward: tuple[float, float], backward: tuple[float, float]
) -> None:
    """Of 6 us: two products of three with a gate run before, one of two without; and W last."""
    plan = planned()
    shape = replace(plan.model.shape, gated=gated)
    for back, parts in ((False, forward), (True, backward)):
        made, routing = WorkList(), ExpertRouting(shape, plan.split, 2, 1.5, False, False)
        routing.write(made, GpuWork(2e-6), shared=GpuWork(6e-6, 60.0), backward=back)
        taken = [(one.kind, one.duration / 1e6) for one in made.items if one.kind == "compute"]
        assert taken == [("compute", parts[0]), ("compute", 3.0), ("compute", parts[1])]
        flops = [one.flops for one in made.items if one.flops]
        assert flops == pytest.approx([10 * part for part in parts])


@pytest.mark.parametrize("ep", [1, 2])
@pytest.mark.parametrize("shared", [0.0, 1e-6])
@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("copied", [False, True])
def test_the_items_of_routed_experts_in_order(
    ep: int, shared: float, skewed: bool, backward: bool, copied: bool
) -> None:
    plan = planned()
    split = replace(plan.split, ep=ep, tp=2)
    routing = ExpertRouting(plan.model.shape, split, 2, 1.5, skewed, copied)
    made, beside = WorkList(), shared > 0
    routing.write(made, GpuWork(2e-6), shared=GpuWork(shared), backward=backward)
    copies = 4 * 2 * 512 * 256  # of every token's two bytes an entry
    there, back = ("to_skewed", "from_skewed") if skewed else ("all_to_all", "all_to_all")
    first, last = (back, there) if backward else (there, back)
    own = [("compute", 0, False)] if beside else []
    expected = [
        *([(first, copies, beside)] if ep > 1 else []),
        *own,
        *([("all_gather", 3 * copies, False)] if copied else []),
        ("compute", 0, False),
        *([("reduce_scatter", 3 * copies, False)] if copied else []),
        *([(last, copies, beside)] if ep > 1 else []),
        *own,
    ]
    assert [(one.kind, one.size, one.beside) for one in made.items] == expected


def test_only_a_forward_s_dispatch_has_a_byte_per_entry() -> None:
    plan = planned(parallel={"dp": 16, "ep": 16, "dispatcher": "deepep-fp8"})
    for backward in (False, True):
        made = WorkList()
        routing = ExpertRouting(plan.model.shape, replace(plan.split, tp=2), 2, 1.0, False, True)
        routing.write(made, GpuWork(2e-6), backward=backward)
        first, gathered, _, scattered, last = (one.size for one in made.items)
        assert gathered == scattered == 2 * last
        assert first == (last if backward else pytest.approx(last / 2, abs=1))


def test_divided_experts_meet_all_copies_under_megatron() -> None:
    """Tokens are routed by their own ranks, and gathered with all copies behind the all-to-all."""
    n, divided = 2 * 512 * 256, {**WHOLE, "ep": 8, "etp": 2}
    found = ops_of(divided, unit="F layer 0")
    assert found[2:] == [("all_to_all", 2 * n), ("all_gather", 4 * n), ("reduce_scatter", 4 * n),
                         ("all_to_all", 2 * n)]  # fmt: skip
    assert ops_of({**divided, "etp": None}, unit="F layer 0") == found


def test_torchtitan_gathers_each_token_once() -> None:
    """In front of the router, so that a rank sends its part of them."""
    n = 2 * 512 * 256
    found = ops_of({**WHOLE, "ep": 8, "etp": 2}, unit="F layer 0", stack="torchtitan")
    assert found[2:] == [("all_gather", n), ("all_to_all", 2 * n), ("all_to_all", 2 * n),
                         ("reduce_scatter", n)]  # fmt: skip


def test_whole_and_divided_experts_compute_and_hold_the_same() -> None:
    """A rank has one whole expert of 16, or halves of two; both meet as many FLOPs."""
    layouts = WHOLE, {**WHOLE, "ep": 8, "etp": 2}
    plans = [planned(parallel=layout) for layout in layouts]
    assert [plan.split.expert_tp for plan in plans] == [1, 2]
    assert [plan.expert_sharers for plan in plans] == [1, 1]
    matrices = 2 * MODEL["layers"] * 256 * 256
    for plan in plans:
        assert sum(unit.entries(expert=True) for unit in plan.stages[0].units) == matrices
    cluster, flops = Cluster.preset("dgx-h100", nodes=2), []
    for layout in layouts:
        graph = build_training(section(parallel=layout), cluster).graph
        flops.append(float(graph.flops[graph.lane == 0].sum()))
    assert flops[0] == pytest.approx(flops[1], rel=1e-6)


def test_the_groups_of_whole_experts_go_over_tensor_parallel_neighbours() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=2)
    plan = planned(parallel={**WHOLE, "ep": 4})
    groups = Axes(plan, cluster).groups
    assert groups["ep"].tolist() == np.arange(16).reshape(4, 4).tolist()
    assert groups["edp"].tolist() == np.arange(16).reshape(4, 4).T.tolist()
    assert plan.expert_sharers == 4
    assert planned(parallel={**WHOLE, "ep": 8}).split.ep_nodes == 1


@pytest.mark.parametrize(
    ("parallel", "words"),
    [
        ({**WHOLE, "etp": 3}, r"etp: 3 divides experts by neither 1 nor tp=2"),
        ({**WHOLE, "sequence_parallel": False}, r"etp: 1 sends each rank's own tokens"),
        ({**WHOLE, "ep": 32}, r"ep=32 does not divide tp=2 × dp=8 × cp=1 = 16 ranks"),
        ({"dp": 16, "ep": 16, "etp": 1}, r"etp: changes nothing where tp is 1"),
        ({"dp": 16, "ep": 16, "shared_overlap": True}, r"the model has no shared experts"),
        ({"dp": 16, "shared_overlap": True}, r"shared_overlap: changes nothing where ep is 1"),
    ],
)
def test_degrees_of_experts_that_do_not_go_together(parallel: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        planned(parallel=parallel)


def test_one_replica_of_each_expert_leaves_the_rest_to_reduce() -> None:
    """With ep = dp no expert has a second copy; attention and embeddings have as many as ranks."""
    work = {"model": MODEL, "batch": {"global": 8, "micro": 1}, "parallel": {"dp": 8, "ep": 8}}
    graph = run({"cluster": {"preset": "dgx-h100"}, "workload": {"training": work}}).timeline.graph
    table = graph.collectives
    reduced = {
        graph.groups[group].axis
        for group, kind in zip(table.group.tolist(), table.kind, strict=True)
        if kind in ("all_reduce", "reduce_scatter")
    }
    assert "dp" in reduced
    assert "edp" not in reduced


@pytest.mark.parametrize(
    ("parallel", "data", "names"),
    [
        ({"dp": 16}, {}, ["dp"]),
        ({"dp": 16, "ep": 16}, {}, ["dp", "ep"]),
        ({"dp": 16, "ep": 8}, {}, ["dp", "ep", "edp"]),
        ({"dp": 4, "tp": 2, "pp": 2, "ep": 2}, {}, ["tp", "pp", "dp", "ep", "edp"]),
        ({"dp": 16}, {"kind": "hsdp", "shard": 8}, ["dp", "shard", "replicate"]),
    ],
)
def test_a_layout_has_the_groups_of_what_it_divides(
    parallel: dict[str, int], data: dict[str, Any], names: list[str]
) -> None:
    data = {"data_parallel": data} if data else {}
    axes = Axes(planned(parallel=parallel, **data), Cluster.preset("dgx-h100", nodes=2))
    assert list(axes.groups) == names
    assert all(group.shape[1] > 1 for group in axes.groups.values())
