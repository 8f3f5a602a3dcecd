"""The compute model: rooflines, what scales with what, overrides, published times."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.compute_models import PHASES, gpt, model, total
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from commsim.cluster.nodes.gpus import gpu_spec
from commsim.errors import ScenarioError
from commsim.models import (
    ComputeSection,
    ModelShape,
    Split,
    attention_flops,
    compute_model,
    head_flops,
    layer_flops,
    model_preset,
    stack_names,
)

A100 = gpu_spec("A100-SXM4-80GB")
GPUS = (
    "V100-SXM2-32GB", "A100-SXM4-40GB", "A100-SXM4-80GB", "H100-SXM5-80GB", "H200-SXM-141GB",
    "B200-SXM-180GB", "GB200-per-GPU", "MI300X",
)  # fmt: skip


# Qi et al. 2023 (Zero Bubble), table 9: milliseconds of F, B and W of a stage on an A100-80.
@pytest.mark.parametrize(
    ("shape", "micro", "layers", "published"),
    [
        (gpt(2304, 24), 6, 3, (18.522, 18.086, 9.337)),
        (gpt(4096, 32), 3, 4, (29.718, 29.444, 19.927)),
    ],
    ids=["1.5B", "6.2B"],
)
def test_the_published_split_of_a_stage(
    shape: ModelShape, micro: int, layers: int, published: tuple[float, ...]
) -> None:
    blocks = model(stack="megatron-2023").layer(shape, Split(micro, 1024))
    for phase, milliseconds in zip(PHASES, published, strict=True):
        assert layers * 1e3 * total(blocks, phase) == pytest.approx(milliseconds, rel=0.1), phase


@pytest.mark.parametrize(
    ("settings", "sequence", "recompute", "forward", "backward"),
    [
        ({}, False, "none", 7.7, 11.9),
        ({}, True, "none", 7.2, 11.8),
        ({}, False, "full", 7.7, 19.5),
        ({}, False, "selective", 7.7, 13.2),
    ],
)
def test_the_layer_of_korthikanti(
    settings: dict[str, Any], sequence: bool, recompute: str, forward: float, backward: float
) -> None:
    """22B, tp 8, microbatch 4: table 4, milliseconds; all-reduces (0.2 of 300 GB/s) beside."""
    shape = replace_layers(gpt(6144, 64), 1)
    split = Split(4, 2048, tp=8, sequence_parallel=sequence)
    built = model(stack="megatron-2022")
    reduce = built.collective_seconds(shape, split)
    blocks = built.layer(shape, split, recompute=recompute)
    again = total(blocks, "recompute") + (2 * reduce if recompute == "full" else 0)
    ours = total(blocks, "forward") + 2 * reduce
    back = total(blocks, "backward") + total(blocks, "weight") + 2 * reduce + again
    assert 1e3 * ours == pytest.approx(forward, rel=0.12)
    assert 1e3 * back == pytest.approx(backward, rel=0.12)


def replace_layers(shape: ModelShape, layers: int) -> ModelShape:
    import msgspec

    return msgspec.structs.replace(shape, layers=layers)


@pytest.mark.parametrize("name", ["gpt3-6.7b", "llama3-8b", "mixtral-8x7b", "deepseek-v3"])
def test_blocks_do_the_flops_of_the_layer(name: str) -> None:
    """Unfused attention multiplies all positions, so that blocks add up to the closed form."""
    shape, layer = model_preset(name).shape, 5
    blocks = model(attention="unfused").layer(shape, Split(2, 1024), layer=layer)
    flops = layer_flops(shape, batch=2, seq=1024, layer=layer)
    assert total(blocks, "forward", "flops") == pytest.approx(flops, rel=1e-9)
    both = total(blocks, "backward", "flops") + total(blocks, "weight", "flops")
    assert both == pytest.approx(2 * flops, rel=1e-9)


def test_a_fused_attention_skips_what_the_mask_hides() -> None:
    shape, split = model_preset("llama3-8b").shape, Split(1, 8192)
    fused = model("H100-SXM5-80GB", "bf16", attention="fa2").layer(shape, split)
    whole = model("H100-SXM5-80GB", "bf16", attention="unfused").layer(shape, split)
    scores = attention_flops(shape, batch=1, seq=8192)
    difference = total(whole, "forward", "flops") - total(fused, "forward", "flops")
    assert difference == pytest.approx(scores / 2)
    assert total(fused, "forward") < total(whole, "forward")


def test_tensor_parallel_ranks_share_the_flops() -> None:
    shape = model_preset("gpt3-175b").shape
    whole = model().layer(shape, Split(1, 2048))
    parts = model().layer(shape, Split(1, 2048, tp=8))
    for phase in PHASES:
        assert total(whole, phase, "flops") == pytest.approx(8 * total(parts, phase, "flops"))


def test_expert_blocks_get_the_tokens_of_top_k() -> None:
    shape = model_preset("mixtral-8x7b").shape
    blocks = {b.name: b for b in model("H100-SXM5-80GB", "bf16").layer(shape, Split(1, 4096, ep=8))}
    assert set(blocks) == {"attention", "router", "experts"}
    assert blocks["experts"].forward.flops == 2 * (4096 * 2) * 3 * 4096 * 14336
    assert blocks["router"].forward.flops == 2 * 4096 * 4096 * 8


def test_shared_experts_run_beside_the_router() -> None:
    shape = model_preset("deepseek-v3").shape
    blocks = {
        b.name: b for b in model("H100-SXM5-80GB", "bf16").layer(shape, Split(1, 4096), layer=3)
    }
    shared = 2 * 4096 * 3 * 7168 * 2048
    assert blocks["router"].forward.flops == shared + 2 * 4096 * 7168 * 256
    dense = model("H100-SXM5-80GB", "bf16").layer(shape, Split(1, 4096), layer=2)
    assert [b.name for b in dense] == ["attention", "mlp"]


def test_recompute_runs_the_forward_again() -> None:
    shape, split = gpt(2304, 24), Split(6, 1024)
    built = model(stack="megatron-2023")
    forward = total(built.layer(shape, split), "forward")
    assert total(built.layer(shape, split, recompute="full"), "recompute") == forward
    again = built.layer(shape, split, recompute="selective")
    assert 0 < total(again, "recompute") < forward / 2
    assert again[1].recompute.seconds == 0
    assert total(built.layer(shape, split), "recompute") == 0


def test_torchs_checkpoint_stops_before_the_last_product() -> None:
    shape, split = model_preset("llama3-8b").shape, Split(1, 4096)
    blocks = model("H100-SXM5-80GB", "bf16", stack="torchtitan").layer(
        shape, split, recompute="full"
    )
    skipped = total(blocks, "forward", "flops") - total(blocks, "recompute", "flops")
    assert skipped == 2 * 4096 * 14336 * 4096


def test_small_layers_wait_for_python() -> None:
    """GPT h 1024, one sequence: 40 us per kernel, whatever the GPU (measured by vTrain)."""
    shape, split = gpt(1024, 16), Split(1, 256)
    slow = model(stack="megatron-deepspeed").layer(shape, split)
    fast = model("H100-SXM5-80GB", stack="megatron-deepspeed").layer(shape, split)
    assert total(slow, "forward") == pytest.approx(total(fast, "forward"), rel=0.02)
    stack = model(stack="megatron-deepspeed").stack
    issued = stack.forward_kernels * stack.cpu_us * 1e-6
    assert total(slow, "forward") == pytest.approx(issued, rel=0.05)


def test_python_runs_ahead_during_a_collective() -> None:
    shape, split = gpt(1024, 16), Split(1, 256, tp=4)
    built = model(stack="megatron-deepspeed")
    without = total(built.layer(shape, split, collective=0.0), "forward")
    hidden = total(built.layer(shape, split, collective=100e-6), "forward")
    assert without - hidden == pytest.approx(2 * 100e-6, rel=0.05)


def test_experts_are_issued_one_by_one_faster_than_by_python() -> None:
    """A layer that waits for its host takes so much longer for each expert on the rank."""
    shape, built = (
        model_preset("qwen3-30b-a3b").shape,
        model("B200-SXM-180GB", "mxfp8", stack="nemo"),
    )
    stack = built.stack
    few, many = (
        total(built.layer(shape, Split(1, 64, ep=ep, dispatcher="deepep")), "forward")
        for ep in (16, 8)
    )
    assert many - few == pytest.approx(
        8 * stack.expert_kernels * stack.expert_cpu_us * 1e-6, rel=0.02
    )
    assert stack.expert_cpu_us < stack.cpu_us


def test_a_plain_all_to_all_has_more_kernels_and_sorts_its_copies() -> None:
    shape = model_preset("qwen3-30b-a3b").shape
    built = model("B200-SXM-180GB", "mxfp8", stack="nemo")
    waits = [
        built.layer(shape, Split(1, 64, ep=8, dispatcher=name))[-1].forward.seconds
        for name in ("alltoall", "deepep")
    ]
    more = (2.2 - 1.3) * built.stack.forward_kernels * built.stack.cpu_us * 1e-6
    assert waits[0] - waits[1] == pytest.approx(more, rel=0.02)
    bytes_ = [
        built.layer(shape, Split(4, 4096, ep=ep, dispatcher=name))[-1].forward.traffic
        for ep, name in ((8, "alltoall"), (8, "deepep"), (1, "alltoall"))
    ]
    copies = 4 * 4096 * 8 * 2048 * 2
    assert bytes_[0] - bytes_[1] == pytest.approx(2 * copies * built.stack.stream)
    assert bytes_[2] < bytes_[0]


def test_the_first_cudnn_of_blackwell_is_slower_there_alone() -> None:
    shape, split = model_preset("llama3-8b").shape, Split(2, 8192)
    early, late = (
        [total(model(gpu, "fp8-cs", stack=stack).layer(shape, split), "forward")
         for stack in ("nemo-25.02", "nemo")]
        for gpu in ("B200-SXM-180GB", "H100-SXM5-80GB")
    )  # fmt: skip
    assert early[0] > 1.02 * early[1]
    assert late[0] == late[1]


def test_a_flat_efficiency_is_flops_over_peak() -> None:
    shape, split = model_preset("llama3-8b").shape, Split(2, 4096)
    built = model("H100-SXM5-80GB", "bf16", efficiency=0.5)
    flops = layer_flops(shape, batch=2, seq=4096)
    blocks = built.layer(shape, split, recompute="full")
    assert total(blocks, "forward") == pytest.approx(flops / (0.5 * 989e12))
    assert total(blocks, "recompute") == pytest.approx(flops / (0.5 * 989e12))
    both = total(blocks, "backward") + total(blocks, "weight")
    assert both == pytest.approx(2 * flops / (0.5 * 989e12))
    head = built.head(shape, split).forward
    assert head.seconds == pytest.approx(head_flops(shape, batch=2, seq=4096) / (0.5 * 989e12))
    assert built.embedding(shape, split).full_backward.seconds == 0
    assert built.microbatch().seconds == 0


def test_a_scale_multiplies_every_time() -> None:
    shape, split = gpt(2304, 24), Split(2, 1024)
    one, three = model(), model(scale=3.0)
    for phase in PHASES:
        a, b = (total(m.layer(shape, split), phase) for m in (one, three))
        assert b == pytest.approx(3 * a)
    assert three.optimizer(10**6).seconds == pytest.approx(3 * one.optimizer(10**6).seconds)
    assert three.head(shape, split).forward.seconds == pytest.approx(
        3 * one.head(shape, split).forward.seconds
    )
    assert three.microbatch().seconds == pytest.approx(3 * one.microbatch().seconds)


def test_measured_times_replace_the_models() -> None:
    shape, split = gpt(2304, 24), Split(2, 1024)
    built = model(
        layer={"forward": "3ms", "backward": "4ms", "weight": "2ms"},
        head={"forward": "1ms", "backward": "2ms"},
        optimizer="7ms",
    )
    blocks = built.layer(shape, split)
    assert [total(blocks, phase) for phase in PHASES] == pytest.approx([3e-3, 4e-3, 2e-3])
    head = built.head(shape, split)
    assert head.forward.seconds == pytest.approx(1e-3)
    assert head.full_backward.seconds == pytest.approx(2e-3)
    assert head.weight.seconds > 0
    assert built.optimizer(123).seconds == 7e-3


def test_measured_forward_scales_what_recomputing_takes() -> None:
    shape, split = gpt(2304, 24), Split(2, 1024)
    built = model(layer={"forward": "3ms", "backward": "4ms"})
    assert total(built.layer(shape, split, recompute="full"), "recompute") == pytest.approx(3e-3)


def test_the_optimizer_moves_its_bytes() -> None:
    built = model()
    work = built.optimizer(10**9)
    assert work.traffic == built.stack.optimizer_bytes * 10**9
    assert work.traffic / work.seconds < A100.memory_bandwidth


def test_gradients_are_reduced_in_fp32_where_megatron_trains_in_bf16() -> None:
    assert model(precision="bf16").gradient_width == 4
    assert model(precision="fp16").gradient_width == 2
    assert model(precision="bf16", stack="torch-fsdp").gradient_width == 2


@pytest.mark.parametrize("gpu", GPUS)
def test_every_gpu_of_the_issue_has_constants(gpu: str) -> None:
    precision = "fp16" if gpu.startswith("V100") else "bf16"
    blocks = model(gpu, precision).layer(model_preset("llama3-8b").shape, Split(1, 4096))
    flops = total(blocks, "forward", "flops")
    reached = flops / total(blocks, "forward") / (gpu_spec(gpu).tflops[precision] * 1e12)
    assert 0.3 < reached < 0.87  # the best product alone reaches 0.87 on an A100


def test_fp8_products_are_faster_but_not_twice() -> None:
    shape, split = model_preset("llama3-70b").shape, Split(1, 8192, tp=8)
    bf16 = total(model("H100-SXM5-80GB", "bf16").layer(shape, split), "forward")
    fp8 = total(model("H100-SXM5-80GB", "fp8").layer(shape, split), "forward")
    assert 1.15 < bf16 / fp8 < 1.9


@pytest.mark.parametrize(
    ("gpu", "precision", "settings", "words"),
    [
        ("V100-SXM2-32GB", "bf16", {}, ["training.precision", "has no bf16", "fp16"]),
        ("A100-SXM4-80GB", "fp8", {}, ["training.precision", "has no fp8"]),
        ("RTX-3090", "bf16", {"stack": "megatorn"}, ["compute.stack", "Did you mean 'megatron'"]),
        ("cpu", "fp32", {}, ["training.compute", "cpu", "compute.efficiency"]),
    ],
)
def test_what_is_not_known_is_refused(
    gpu: str, precision: str, settings: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ScenarioError) as caught:
        model(gpu, precision, **settings)
    for word in words:
        assert word in str(caught.value)


def test_an_unknown_gpu_does_with_an_efficiency() -> None:
    assert model("cpu", "fp32", efficiency=0.5).optimizer(10).seconds > 0


def test_a_cpu_trains_with_an_efficiency() -> None:
    blocks = model("cpu", "fp32", efficiency=0.5).layer(gpt(2048, 16), Split(4, 1024))
    assert total(blocks, "forward") > 0


def test_a_gpu_without_its_memory_bandwidth_or_sms_is_refused() -> None:
    for unknown in ("memory_bandwidth", "sm_count"):
        gpu = replace(gpu_spec("A100-SXM4-80GB"), **{unknown: 0})
        with pytest.raises(ScenarioError, match=rf"{unknown}, which is not given.*gpu\.{unknown}"):
            compute_model(gpu, precision="bf16")
    assert (
        compute_model(gpu, precision="bf16", section=ComputeSection(efficiency=0.5))
        .optimizer(10)
        .seconds
        > 0
    )


def test_every_stack_prices_a_layer() -> None:
    for name in stack_names():
        blocks = model(stack=name).layer(gpt(2048, 16), Split(4, 1024))
        assert 1e-3 < total(blocks, "forward") < 1e-2, name


@given(
    hidden=st.sampled_from([1024, 2048, 3072, 4096]),
    micro=st.integers(1, 8),
    seq=st.sampled_from([256, 512, 1024, 2048]),
    factor=st.integers(2, 4),
    stack=st.sampled_from(["megatron", "megatron-2021", "torch-fsdp"]),
)
def test_more_work_is_never_faster(
    hidden: int, micro: int, seq: int, factor: int, stack: str
) -> None:
    """More sequences, longer ones, a wider model."""
    built = model(stack=stack)
    base = built.layer(gpt(hidden, 16), Split(micro, seq))
    larger = [
        built.layer(gpt(hidden, 16), Split(factor * micro, seq)),
        built.layer(gpt(hidden, 16), Split(micro, factor * seq)),
        built.layer(gpt(2 * hidden, 16), Split(micro, seq)),
    ]
    for blocks in larger:
        for phase in ("forward", "full_backward"):
            assert total(blocks, phase) >= 0.999 * total(base, phase)


@given(
    peak=st.floats(1, 4), memory=st.floats(1, 4),
    micro=st.integers(1, 8), hidden=st.sampled_from([1024, 2048, 4096]),
)  # fmt: skip
def test_a_faster_gpu_is_never_slower(peak: float, memory: float, micro: int, hidden: int) -> None:
    """Faster tensor cores or memory. (More SMs at the same peak may waste part of a wave.)"""
    faster = replace(
        A100,
        memory_bandwidth=A100.memory_bandwidth * memory,
        tflops={"fp16": 312.0 * peak},
    )
    split, shape = Split(micro, 1024), gpt(hidden, 16)
    before = model().layer(shape, split)
    after = compute_model(faster, precision="fp16").layer(shape, split)
    for phase in ("forward", "full_backward"):
        assert total(after, phase) <= total(before, phase) * (1 + 1e-9)


@given(
    micro=st.integers(1, 8), hidden=st.sampled_from([1024, 2048, 4096]),
    tp=st.sampled_from([1, 2, 4]), recompute=st.sampled_from(["none", "selective", "full"]),
    gpu=st.sampled_from(GPUS),
)  # fmt: skip
def test_nothing_is_faster_than_its_flops_and_its_bytes(
    micro: int, hidden: int, tp: int, recompute: str, gpu: str
) -> None:
    spec = gpu_spec(gpu)
    for stack in ("megatron", "megatron-2021"):
        blocks = model(gpu, "fp16", stack=stack).layer(
            gpt(hidden, 16), Split(micro, 1024, tp=tp), recompute=recompute, collective=0.0
        )
        for block in blocks:
            both = block.full_backward
            for work in (block.forward, both):
                assert work.seconds >= work.flops / (spec.tflops["fp16"] * 1e12)
                if stack == "megatron-2021":
                    assert work.seconds > 0
