"""Attention by stack, GPU and ring, and how stacks do that were not fitted on a GPU."""

from __future__ import annotations

import pytest
from helpers.compute_models import PHASES, gpt, model, total
from msgspec.structs import replace

from commsim.cluster.nodes.gpus import gpu_spec
from commsim.errors import ScenarioError
from commsim.models import (
    ComputeSection,
    Split,
    attention_flops,
    compute_model,
    model_preset,
)
from commsim.models.constants import read_constants, stack_on


def test_the_backward_of_a_fused_attention_does_two_and_a_half_times_the_flops() -> None:
    shape, split = model_preset("llama3-8b").shape, Split(1, 8192)
    (attention, _) = model("H100-SXM5-80GB", "bf16").layer(shape, split)
    (whole, _) = model("H100-SXM5-80GB", "bf16", attention="unfused").layer(shape, split)
    scores = attention_flops(shape, batch=1, seq=8192)
    assert whole.backward.flops - attention.backward.flops == pytest.approx((2 - 1.25) * scores)


def test_a_context_parallel_rank_asks_with_its_own_tokens() -> None:
    shape = model_preset("llama3-8b").shape
    whole = model("H100-SXM5-80GB", "bf16").layer(shape, Split(1, 8192))
    part = model("H100-SXM5-80GB", "bf16").layer(shape, Split(1, 8192, cp=4))
    for phase in PHASES:
        assert total(whole, phase, "flops") == pytest.approx(4 * total(part, phase, "flops"))


def test_fp32_moves_twice_the_bytes_and_has_no_fused_attention() -> None:
    shape, split = gpt(2304, 24), Split(2, 1024)
    wide, narrow = model(precision="fp32"), model(precision="fp16", attention="unfused")
    assert not wide.flash
    assert wide.width == 4
    bytes_of = [total(m.layer(shape, split), "forward", "traffic") for m in (wide, narrow)]
    assert bytes_of[0] == pytest.approx(2 * bytes_of[1])
    assert total(wide.layer(shape, split), "forward") > total(narrow.layer(shape, split), "forward")


def test_blocks_of_a_ring_are_shorter_than_the_rows_of_ulysses() -> None:
    """s/d keys under the mask, s/2d in d - 1 steps: k/(k + half) of each, by what it computes.

    Both have a quarter of the tiles: the last of Ulysses' eight heads, and of the ring's rows.
    """
    shape = model_preset("llama3-8b").shape
    core = {}
    for cp, ulysses in ((1, False), (4, False), (4, True)):
        split = Split(1, 8192, cp=cp, ulysses=ulysses)
        block = model("H100-SXM5-80GB").layer(shape, split)[0]
        core[cp, ulysses] = block.forward.seconds * block.core * cp
    kernel = model("H100-SXM5-80GB").kernels.flash_share.forward
    steps = [8192 / 4] + 3 * [8192 / 8]
    slower = sum((1 + kernel.half_keys / keys) / 4 for keys in steps)
    slower /= 1 + kernel.half_keys / 8192
    waits = kernel.tail * 2 * 128 * 132 / (32 * 8192)
    fewer = (1 + 4 * waits) / (1 + waits)
    assert core[4, True] == pytest.approx(fewer * core[1, False], rel=0.05)  # block with gaps
    assert core[4, False] / core[4, True] == pytest.approx(slower, rel=0.02)


def test_a_stack_that_was_not_fitted_names_its_kin_that_was() -> None:
    section = ComputeSection(stack="megatron")
    model = compute_model(gpu_spec("A100-SXM4-80GB"), precision="bf16", section=section)
    (gap,) = model.not_fitted
    kin = ("megatron-2020", "megatron-2021", "megatron-2022", "megatron-2023",
           "megatron-deepspeed", "megatron-deepspeed-2021")  # fmt: skip
    assert gap == (
        f"stack megatron was not fitted on Ampere (fitted there: {', '.join(kin)}): its kernels"
        " there move no less than megatron-2023's"
    )
    hopper = compute_model(gpu_spec("H100-SXM5-80GB"), precision="bf16", section=section)
    assert hopper.not_fitted == ()


def test_a_stack_is_no_faster_on_a_generation_than_its_newest_kin_that_was_fitted_there() -> None:
    """Megatron's kernels were fitted on Hopper: on Ampere they move what those of 2023 did."""
    stacks = read_constants().stacks
    own, kin = stacks["megatron"], stacks["megatron-2023"]
    there = stack_on("megatron", gpu_spec("A100-SXM4-80GB"))
    assert (there.stream, there.tensor_parallel_loss) == (kin.stream, kin.tensor_parallel_loss)
    assert there.stream > own.stream
    assert there.loss_bytes == own.loss_bytes > kin.loss_bytes  # the slower of both
    assert (there.attention, there.cpu_us, there.year) == ("fa2", own.cpu_us, own.year)
    fitted = stack_on("megatron", gpu_spec("H100-SXM5-80GB"))
    assert fitted == replace(own, attention="cudnn")


def test_no_kin_on_a_generation_leaves_a_stack_as_it_is() -> None:
    stack = read_constants().stacks["torchtitan"]
    assert stack_on("torchtitan", gpu_spec("A100-SXM4-80GB")) == stack
    assert stack_on("torchtitan", gpu_spec("B200-SXM-180GB")) == replace(stack, attention="cudnn")


@pytest.mark.parametrize(
    ("gpu", "stack", "attention"),
    [
        ("V100-SXM2-32GB", "megatron", "unfused"),  # as in 2020: there is no FlashAttention
        ("V100-SXM2-32GB", "torchtitan", "fa1"),  # torch's memory-efficient attention
        ("A100-SXM4-80GB", "nemo", "fa2"),
        ("H100-SXM5-80GB", "llm-foundry", "fa1"),
    ],
)
def test_a_stack_uses_an_attention_that_is_made_for_the_gpu(
    gpu: str, stack: str, attention: str
) -> None:
    assert stack_on(stack, gpu_spec(gpu)).attention == attention


def test_attention_that_is_not_made_for_a_gpu_is_refused() -> None:
    section = ComputeSection(attention="fa3")
    with pytest.raises(ScenarioError, match=r"compute.attention: fa3 is not made for A100.* fa2"):
        compute_model(gpu_spec("A100-SXM4-80GB"), precision="bf16", section=section)
    assert compute_model(gpu_spec("H100-SXM5-80GB"), precision="bf16", section=section)


def test_attention_in_fp8_is_no_faster_where_a_stack_was_not_fitted() -> None:
    assert stack_on("nemo-26.06", gpu_spec("B200-SXM-180GB")).attention_fp8 > 1
    assert stack_on("nemo-26.06", gpu_spec("H100-SXM5-80GB")).attention_fp8 == 1
