"""A stage of one layer between embedding and head, item by item, for every way to divide it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from commsim.models import NOTHING, Block, Experts, GpuWork, ModelShape, Split
from commsim.workload.training.stage_compiler import StageCompiler, StageOps
from commsim.workload.training.stages import EMBEDDING, HEAD, LAYER, Unit
from commsim.workload.training.work_items import WorkItem

UNITS = (Unit(EMBEDDING, -1, ()), Unit(LAYER, 0, ()), Unit(HEAD, -1, ()))
G, R, A = "all_gather tp 64", "reduce_scatter tp 64", "all_reduce tp 64"
LOSS = ["all_reduce tp 32"] * 3
"""Two bytes of a hidden state of 4 for each of 8 tokens; four bytes a token for the loss."""


def us(*each: float) -> list[GpuWork]:
    return [GpuWork(1e-6 * one) for one in each]


class Model:
    """Blocks of as many us as F, B and W, and what runs again: 10, 20, 30 and 11 of attention."""

    gathers_fp8 = False

    def __init__(self, experts: bool = False, apart: bool = False, **stack: Any) -> None:
        usual = {"early_stop": False, "ring": "fused", "experts_gather": "copies"}
        self.stack = SimpleNamespace(**{**usual, **stack})
        self.names = ["attention", *(["router", "experts"] if experts else ["mlp"])]
        if apart:
            self.names.insert(2, "shared")

    def layer(self, shape: ModelShape, split: Split, *, layer: int, recompute: Any) -> Any:
        took = {
            "attention": (10, 20, 30, 11), "mlp": (40, 50, 60, 41), "router": (1, 2, 3, 1.5),
            "shared": (4, 5, 6, 8), "experts": (100, 200, 300, 101),
        }  # fmt: skip
        ends: dict[str, Any] = {
            "ends": (0.2, 0.3), "ends_backward": (0.1, 0.5), "core": 0.5, "core_backward": 0.4,
        }  # fmt: skip
        works = [(name, us(*took[name])) for name in self.names]
        none = recompute == "none"
        return tuple(
            Block(name, f, b, w, NOTHING if none else again, **ends)
            for name, (f, b, w, again) in works
        )

    def embedding(self, shape: ModelShape, split: Split) -> Block:
        return Block(EMBEDDING, us(1)[0], NOTHING, us(2)[0])

    def head(self, shape: ModelShape, split: Split) -> Block:
        forward, backward, weight = us(3, 4, 5)
        return Block(HEAD, forward, backward, weight)

    def microbatch(self) -> GpuWork:
        return us(7)[0]

    def merging(self, entries: float, *, backward: bool) -> GpuWork:
        return NOTHING

    def adding_up(self, size: int, parts: int) -> GpuWork:
        return us(size / 8 + parts)[0]


def spelled(items: Iterable[WorkItem]) -> list[str]:
    """Return each item as "F mlp 40" (us) or "all_gather tp 64", "+" if it joins, "*" if beside."""
    found = []
    for item in items:
        what = f"{item.name.replace('layer 0 ', '')} {round(item.duration / 1e6, 3):g}"
        if item.kind != "compute":
            what = f"{item.kind} {item.axis} {item.size}"
            assert item.name.startswith(f"{item.kind} ")
        found.append("+" * item.joins + what + "*" * item.beside)
    return found


def compiled(
    model: Model | None = None,
    *,
    units: Sequence[Unit] = UNITS,
    split: dict[str, Any] | None = None,
    **how: Any,
) -> StageOps:
    model = model or Model()
    experts = None
    if "experts" in model.names:
        shared = how.pop("shared", "shared" in model.names)
        experts = Experts(experts=2, top_k=1, expert_ffn=8, shared_expert_ffn=shared)
    shape = ModelShape(
        layers=1, hidden=4, heads=2, kv_heads=2, head_dim=2, ffn=8, vocab=32, max_seq=8,
        experts=experts,
    )  # fmt: skip
    divided = Split(1, 8, shared_apart="shared" in model.names, **(split or {}))
    given: Any = model
    return StageCompiler(shape, divided, given, 2, **how).compile(tuple(units))


TP, SP = {"tp": 2}, {"tp": 2, "sequence_parallel": True}
LAYER_ALONE = UNITS[1:2]


def test_one_gpu_computes_alone() -> None:
    found = compiled()
    assert spelled(found.forward) == [
        "F embedding 7", "F embedding 1", "F attention 10", "F mlp 40", "F head 3",
    ]  # fmt: skip
    assert spelled(found.backward) == ["B head 9", "B mlp 110", "B attention 50", "B embedding 2"]
    assert spelled(found.input_backward) == ["B head 4", "B mlp 50", "B attention 20"]
    assert spelled(found.weight) == ["W head 5", "W mlp 60", "W attention 30", "W embedding 2"]
    assert [one.unit for one in found.forward] == [0, 0, 1, 1, 2]
    assert [one.unit for one in found.weight] == [2, 1, 1, 0]
    assert [one.layer for one in found.backward] == [-1, 0, 0, -1]
    assert [round(ps / 1e6) for ps in found.durations] == [61, 74, 97]
    assert compiled(split={"sequence_parallel": True}) == found


def test_a_stage_without_compute_has_an_item_of_no_time() -> None:
    found = compiled(units=UNITS[:1])
    assert spelled(found.input_backward) == ["B embedding 0"]
    assert spelled(compiled(units=UNITS[:1], split=SP).input_backward) == [G, "B embedding 0"]


def test_tensor_parallelism_reduces_after_each_block_and_for_the_loss() -> None:
    found = compiled(split=TP)
    assert spelled(found.forward) == [
        "F embedding 7", "F embedding 1", A, "F attention 10", A, "F mlp 40", A, "F head 3", *LOSS,
    ]  # fmt: skip
    assert spelled(found.backward) == [
        "B head 9", A, "B mlp 110", A, "B attention 50", A, "B embedding 2",
    ]  # fmt: skip
    logits = compiled(split={**TP, "loss_parallel": False}, units=UNITS[2:])
    assert spelled(logits.forward) == ["F head 7", "F head 3", "all_gather tp 512"]


def test_sequence_parallelism_gathers_before_and_scatters_after() -> None:
    found = compiled(split=SP)
    assert spelled(found.forward) == [
        "F embedding 7", "F embedding 1", R, G, "F attention 10", R, G, "F mlp 40", R,
        G, "F head 3", *LOSS,
    ]  # fmt: skip
    again = [f"{G}*", "B head 9", f"+{R}", G, f"{G}*", "B mlp 110", f"+{R}", G, f"{G}*",
             "B attention 50", f"+{R}", G, "B embedding 2"]  # fmt: skip
    assert spelled(found.backward) == again
    kept = compiled(Model(ring="eager"), split=SP)
    assert spelled(kept.backward) == [
        "B head 9", R, G, "B mlp 110", R, G, "B attention 50", R, G, "B embedding 2",
    ]  # fmt: skip
    assert not any(one.axis for one in found.weight)


def test_what_is_gathered_in_a_byte_is_half_as_much_and_what_is_scattered_is_not() -> None:
    model = Model()
    model.gathers_fp8 = True
    found = spelled(compiled(model, split=SP, units=LAYER_ALONE).forward)
    half = "all_gather tp 32"
    assert found == ["F layer 0 7", half, "F attention 10", R, half, "F mlp 40", R]


def test_overlapped_in_full_a_collective_runs_beside_its_product() -> None:
    found = compiled(split=SP, tp_overlap="full", units=LAYER_ALONE)
    assert spelled(found.forward) == [
        "F layer 0 7", f"{G}*", f"{R}*", "F attention 10", f"{G}*", f"{R}*", "+F mlp 40",
    ]  # fmt: skip
    assert spelled(found.backward) == [
        f"{G}*", f"{R}*", f"{G}*", "B mlp 110", f"{G}*", f"{R}*", f"{G}*", "+B attention 50",
    ]  # fmt: skip


def test_a_ring_leaves_a_quarter_of_a_forward_s_reduction_behind_it() -> None:
    found = compiled(split=SP, tp_overlap="ring", units=LAYER_ALONE)
    most, rest = "reduce_scatter tp 48*", "+reduce_scatter tp 16"
    assert spelled(found.forward) == [
        "F layer 0 7", f"{G}*", most, "F attention 10", rest, f"{G}*", most, "F mlp 40", rest,
    ]  # fmt: skip
    assert spelled(found.backward) == [
        f"{G}*", f"{R}*", f"{G}*", "B mlp 110", f"{G}*", f"{R}*", f"{G}*", "+B attention 50",
    ]  # fmt: skip


def test_async_tp_runs_collectives_beside_the_ends_of_a_block_and_adds_up() -> None:
    """Of 10 us 0.2 before and 0.3 after; of 110 backwards 0.1 and 0.5; sums of 64 / 8 + 2 us."""
    found = compiled(Model(ring="eager"), split=SP, tp_overlap="ring")
    assert spelled(found.forward)[3:13] == [
        f"{G}*", "F attention 2", "+F attention 5", f"{R}*", "F attention 3", "+F sum 10",
        f"{G}*", "F mlp 8", "+F mlp 20", f"{R}*",
    ]  # fmt: skip
    assert spelled(found.backward)[:10] == [
        f"{R}*", "B head 9", "+B head sum 10",
        f"{G}*", "B mlp 11", "+B mlp 44", f"{R}*", "B mlp 55", "+B sum 10", f"{G}*",
    ]  # fmt: skip
    assert spelled(found.input_backward)[3:7] == [f"{G}*", f"{R}*", "B mlp 50", "+B sum 10"]
    alone = compiled(Model(ring="eager"), tp_overlap="ring")
    assert spelled(alone.forward) == spelled(compiled().forward)
    full = compiled(Model(ring="eager"), split=SP, tp_overlap="full")
    assert not [one for one in spelled(full.forward) if "sum" in one]


def test_beside_weight_gradients_runs_the_reduction_of_a_whole_backward() -> None:
    found = compiled(split=SP, tp_overlap="weight", units=LAYER_ALONE)
    plain = compiled(split=SP, units=LAYER_ALONE)
    assert spelled(found.forward) == spelled(plain.forward)
    assert spelled(found.backward) == [
        G, f"{G}*", "B mlp 50", f"{R}*", "+B mlp 60",
        f"+{G}", f"{G}*", "B attention 20", f"{R}*", "+B attention 30",
    ]  # fmt: skip
    assert spelled(found.input_backward) == spelled(plain.input_backward)


BACK = [G, f"{G}*", "B mlp 110", f"+{R}", G, f"{G}*", "B attention 50", f"+{R}"]


@pytest.mark.parametrize(
    ("recompute", "again"),
    [
        ("none", []),
        ("full", [G, "B attention 11", R, G, "B mlp 41", R]),
        ("selective_op", [G, "B attention 11", G, "B mlp 41"]),
        ("selective", ["B layer 0 52"]),
        (("mlp", "layernorm"), ["B layer 0 52"]),
    ],
)
def test_what_runs_again_runs_before_the_gradients(recompute: Any, again: list[str]) -> None:
    found = compiled(split=SP, recompute=recompute, units=LAYER_ALONE)
    assert spelled(found.backward) == again + BACK
    assert len(spelled(found.input_backward)) == len(again + BACK)
    kept = compiled(split=SP, recompute=recompute, units=[LAYER_ALONE[0]._replace(again=False)])
    assert spelled(kept.backward) == BACK


def test_a_checkpoint_that_stops_early_reduces_no_last_result_again() -> None:
    how: dict[str, Any] = {"split": SP, "recompute": "full", "units": LAYER_ALONE}
    stops = compiled(Model(early_stop=True), **how)
    assert spelled(stops.backward)[:5] == [G, "B attention 11", R, G, "B mlp 41"]
    assert spelled(stops.backward)[5:] == BACK
    assert spelled(stops.forward) == spelled(compiled(**how).forward)


def test_ranks_that_share_a_sequence_pass_on_beside_the_core_of_attention() -> None:
    """Half of a forward's 10 us and 0.4 of the input gradient's 20 are the core, in two steps."""
    found = compiled(split={"cp": 2}, units=LAYER_ALONE)
    assert spelled(found.forward)[1:] == [
        "F attention projections 5", "exchange cp 64*", "F attention 0 2.5", "+F attention 1 2.5",
        "F mlp 40",
    ]  # fmt: skip
    assert spelled(found.backward) == [
        "B mlp 110", "B attention projections 42", "exchange cp 128*", "B attention 0 4",
        "+B attention 1 4",
    ]  # fmt: skip
    assert spelled(found.input_backward)[1] == "B attention projections 12"
    ulysses = compiled(split={"cp": 2}, units=LAYER_ALONE, context="ulysses")
    assert "all_to_all cp 32" in spelled(ulysses.forward)
    torch = compiled(Model(ring="eager"), split={**SP, "cp": 2}, tp_overlap="ring")
    assert "+F sum 6" in spelled(torch.forward)  # of half the tokens, and no block in pieces


FRONT = ["F layer 0 7", G, "F attention 10", R]
ATTENTION = [G, f"{G}*", "B attention 50", f"+{R}"]
ROUTER = [f"{G}*", "B router 5", f"+{R}"]


@pytest.mark.parametrize(
    ("model", "split", "shared", "forward", "backward"),
    [
        # gathered once, in front of the router
        (
            Model(experts=True, experts_gather="tokens"), {}, True,
            [G, "F router 1", "F experts 100", R], [G, "B experts 500", *ROUTER],
        ),
        # each rank routes its own; all copies are gathered for divided experts
        (
            Model(experts=True), {}, False,
            ["F router 1", G, "F experts 100", R], [G, "B experts 500", R, "B router 5"],
        ),
        (
            Model(experts=True), {"whole_experts": True}, False,
            ["F router 1", "F experts 100"], ["B experts 500", "B router 5"],
        ),
        # shared experts within the router's block, which is divided as the rest is
        (
            Model(experts=True), {}, True,
            [G, "F router 1", R, G, "F experts 100", R],
            [G, "B experts 500", R, G, *ROUTER],
        ),
        # shared experts apart: half of them (no gate) before, and what is left after
        (
            Model(experts=True, apart=True), {}, True,
            [G, "F router 1", "F shared 2", G, "F experts 100", R, "F shared 2", R],
            [G, "B shared 5.5", G, "B experts 500", R, "B shared 5.5", *ROUTER],
        ),
    ],
)  # fmt: skip
def test_a_layer_with_experts(
    model: Model, split: dict[str, Any], shared: bool, forward: list[str], backward: list[str]
) -> None:
    found = compiled(model, split={**SP, **split}, shared=shared, units=LAYER_ALONE)
    assert spelled(found.forward) == FRONT + forward
    assert spelled(found.backward) == backward + ATTENTION


def test_parts_of_a_layer_with_experts_that_run_again() -> None:
    how: dict[str, Any] = {"split": SP, "units": LAYER_ALONE}
    plain = spelled(compiled(Model(experts=True, apart=True), **how).backward)
    for recompute, again in {
        ("moe",): ["B attention 11", "B router 1.5", "B shared 8", G, "B experts 101", R],
        "selective_op": [G, "B attention 11", G, "B router 1.5", "B shared 8", "B experts 101"],
        "full": [G, "B attention 11", R, G, "B router 1.5", "B shared 4", G, "B experts 101", R,
                 "B shared 4", R],
    }.items():  # fmt: skip
        found = compiled(Model(experts=True, apart=True), recompute=recompute, **how)
        assert spelled(found.backward) == again + plain


def test_the_busiest_experts_do_more_of_everything() -> None:
    """1.5 times the mean; a gradient of inputs alone has the shared experts' own alone."""
    model = Model(experts=True, apart=True)
    found = compiled(model, split=SP, load=1.5, units=LAYER_ALONE)
    assert spelled(found.input_backward)[1:5] == [
        "B shared 2.5", "all_gather tp 96", "B experts 300", "reduce_scatter tp 96",
    ]  # fmt: skip
    assert spelled(found.weight) == ["W experts 450", "W shared 6", "W router 3", "W attention 30"]


def test_tokens_go_to_their_experts_and_come_back_and_gradients_the_other_way() -> None:
    found = compiled(Model(experts=True), split={"ep": 2}, skewed=True, units=LAYER_ALONE)
    assert spelled(found.forward)[3:] == [
        "to_skewed ep 64", "F experts 100", "from_skewed ep 64",
    ]  # fmt: skip
    assert spelled(found.backward)[:3] == [
        "from_skewed ep 64", "B experts 500", "to_skewed ep 64",
    ]  # fmt: skip


def test_dense_layers_between_layers_with_experts_have_their_own_blocks() -> None:
    """Each kind of layer is asked for once, with and without what runs again."""
    asked = []

    class Told(Model):
        def layer(self, shape: ModelShape, split: Split, *, layer: int, recompute: Any) -> Any:
            asked.append((layer, recompute))
            return super().layer(shape, split, layer=layer, recompute=recompute)

    model: Any = Told()
    shape = ModelShape(
        layers=4, hidden=4, heads=2, kv_heads=2, head_dim=2, ffn=8, vocab=32, max_seq=8,
        experts=Experts(experts=2, top_k=1, expert_ffn=8, every=2),
    )  # fmt: skip
    compiler = StageCompiler(shape, Split(1, 8), model, 2, recompute="full")
    for layer in range(4):
        compiler.blocks(Unit(LAYER, layer, ()))
        compiler.blocks(Unit(LAYER, layer, (), again=False))
    assert asked == [(0, "full"), (0, "none"), (1, "full"), (1, "none")]
