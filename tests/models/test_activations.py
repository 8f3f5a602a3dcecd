"""Memory of activations and of state, against published figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commsim.errors import ScenarioError
from commsim.models import (
    MemoryUse,
    ModelShape,
    Split,
    check_memory,
    embedding_activation_bytes,
    fits,
    head_activation_bytes,
    layer_activation_bytes,
    layer_working_bytes,
    memory_text,
    model_preset,
    optimizer_entries,
    state_bytes,
)

GIB = 2**30


def gpt(*, layers: int, hidden: int, heads: int, vocab: int = 51200) -> ModelShape:
    return ModelShape(
        layers=layers, hidden=hidden, heads=heads, kv_heads=heads, head_dim=hidden // heads,
        ffn=4 * hidden, vocab=vocab, max_seq=2048, learned_position_rows=2048,
    )  # fmt: skip


# Korthikanti et al. 2022, table 3 and figure 7: a, h; all with s 2048, t 8.
MODELS = {
    "22B": gpt(layers=48, hidden=6144, heads=64),
    "175B": gpt(layers=96, hidden=12288, heads=96),
    "530B": gpt(layers=105, hidden=20480, heads=128),
    "1T": gpt(layers=128, hidden=25600, heads=160),
}
# Per cent of what tensor parallelism alone keeps: figure 7 as given with its data.
FIGURE_7 = {
    "22B": (66.84, 49.42, 16.18, 7.64),
    "175B": (62.04, 56.53, 18.49, 8.71),
    "530B": (58.31, 62.04, 20.27, 9.42),
    "1T": (58.31, 62.04, 20.27, 9.42),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_activation_ratios_of_korthikanti(name: str) -> None:
    shape = MODELS[name]
    plain, sharded = Split(4, 2048, tp=8), Split(4, 2048, tp=8, sequence_parallel=True)
    base = layer_activation_bytes(shape, plain)
    ours = (
        layer_activation_bytes(shape, sharded) / base,
        layer_activation_bytes(shape, plain, recompute="selective") / base,
        layer_activation_bytes(shape, sharded, recompute="selective") / base,
        layer_activation_bytes(shape, plain, recompute="full") / base,
    )
    for found, published in zip(ours, FIGURE_7[name], strict=True):
        assert 100 * found == pytest.approx(published, abs=0.5)


@pytest.mark.parametrize(("b", "s", "t"), [(1, 2048, 1), (4, 1024, 2), (2, 4096, 8)])
def test_a_gpt_layer_keeps_sbh_34_and_5asb(b: int, s: int, t: int) -> None:
    shape = MODELS["22B"]
    a, h = 64, 6144
    assert layer_activation_bytes(shape, Split(b, s)) == s * b * (34 * h + 5 * a * s)
    tensor = layer_activation_bytes(shape, Split(b, s, tp=t))
    assert tensor == s * b * (10 * h + 24 * h // t + 5 * a * s // t)
    sequence = layer_activation_bytes(shape, Split(b, s, tp=t, sequence_parallel=True))
    assert sequence == s * b * (34 * h + 5 * a * s) // t


def test_full_recompute_keeps_the_input_of_a_layer() -> None:
    shape = MODELS["22B"]
    assert layer_activation_bytes(shape, Split(4, 2048, tp=8), recompute="full") == (
        2 * 2048 * 4 * 6144
    )
    sharded = Split(4, 2048, tp=8, sequence_parallel=True)
    assert layer_activation_bytes(shape, sharded, recompute="full") == 2 * 2048 * 4 * 6144 // 8


def test_a_fused_attention_keeps_a_number_per_row() -> None:
    shape, split = MODELS["22B"], Split(1, 2048)
    fused = layer_activation_bytes(shape, split, flash=True)
    assert fused == 2048 * 34 * 6144 + 4 * 64 * 2048
    selective = layer_activation_bytes(shape, split, flash=True, recompute="selective")
    assert selective == fused  # nothing left to recompute


def test_a_llama_layer_by_hand() -> None:
    """Norm inputs and the inputs of first matrices, q k v and output, three tensors of the MLP."""
    shape = model_preset("llama3-8b").shape
    per_token = 4 * 2 * 4096 + 2 * (4096 + 2 * 1024 + 4096) + 3 * 2 * 14336 + 4 * 32
    assert layer_activation_bytes(shape, Split(1, 8192), flash=True) == 8192 * per_token


def test_recomputing_needs_the_rest_of_one_layer_while_it_runs() -> None:
    shape, split = MODELS["22B"], Split(4, 2048, tp=8)
    for how in ("none", "selective", "full"):
        kept = layer_activation_bytes(shape, split, recompute=how)
        working = layer_working_bytes(shape, split, recompute=how)
        assert kept + working == layer_activation_bytes(shape, split)


def test_the_ends_of_the_model() -> None:
    """Korthikanti et al., section 4.3: 4 s b h/t (1 + V/h) of norm, matrix input and logits."""
    shape, split = MODELS["22B"], Split(4, 2048, tp=8, sequence_parallel=True)
    s, b, h, t, V = 2048, 4, 6144, 8, 51200
    assert head_activation_bytes(shape, split) == 4 * s * b * h // t + 4 * s * b * V // t
    assert embedding_activation_bytes(shape, split) == s * b * h // t


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.875)])
def test_the_zero_paper_on_64_gpus(stage: int, gigabytes: float) -> None:
    """Rajbhandari et al. 2020, figure 1: 7.5B parameters, N = 64; it prints 1.9 for the last."""
    state = state_bytes(7_500_000_000, zero_stage=stage, shards=64)
    assert state.total / 1e9 == pytest.approx(gigabytes, abs=0.05)


def test_megatrons_fp32_gradients_make_18_bytes() -> None:
    assert state_bytes(1000, gradient_width=4).total == 18_000
    assert state_bytes(1000, precision="fp32").total == 16_000
    assert state_bytes(1000, gradient_width=4, zero_stage=1, shards=10).total == 6000 + 1200


def test_parameters_and_optimizer_of_figure_1() -> None:
    """Korthikanti et al., figure 1: 45.6 GiB of parameters and optimizer, 22B on 8 GPUs.

    Megatron's 18 bytes per parameter (fp32 gradients); 22B on tp 8.
    """
    from commsim.models import embedding_tensors, head_tensors, layer_tensors, tensor_total

    shape = MODELS["22B"]
    entries = 48 * tensor_total(layer_tensors(shape, tp=8)) + tensor_total(
        (*embedding_tensors(shape, tp=8), *head_tensors(shape, tp=8))
    )
    assert state_bytes(entries, gradient_width=4).total / GIB == pytest.approx(45.56, rel=0.02)


def test_activations_of_figure_1() -> None:
    """Korthikanti et al., figure 1: 59.25 GiB without recompute, 9.56 with both techniques."""
    shape = MODELS["22B"]
    plain, both = Split(4, 2048, tp=8), Split(4, 2048, tp=8, sequence_parallel=True)
    without = 48 * layer_activation_bytes(shape, plain) + head_activation_bytes(shape, both)
    selective = 48 * layer_activation_bytes(shape, both, recompute="selective")
    selective += head_activation_bytes(shape, both) + embedding_activation_bytes(shape, both)
    assert without / GIB == pytest.approx(59.25, rel=0.02)
    assert selective / GIB == pytest.approx(9.56, rel=0.04)


def test_a_rank_updates_its_share_from_zero_1_on() -> None:
    assert optimizer_entries(1001, zero_stage=0, shards=8) == 1001
    assert optimizer_entries(1001, zero_stage=1, shards=8) == 126


USE = MemoryUse(20 * GIB, 10 * GIB, 17 * GIB, 44 * GIB)


def test_what_does_not_fit_says_by_how_much() -> None:
    with pytest.raises(ScenarioError) as caught:
        check_memory(USE, 80 * GIB, where="x.yaml: training", stage=0)
    assert str(caught.value) == (
        "x.yaml: training: does not fit: 91 GiB of 80 GiB on stage 0, of which activations 44,"
        " parameters 20, optimizer 17, gradients 10 (11 GiB too much)."
    )


def test_what_fits_says_so_too() -> None:
    check_memory(USE, 91 * GIB, where="x")
    assert fits(USE, 91 * GIB)
    assert not fits(USE, 91 * GIB - 1)
    small = MemoryUse(GIB, 0, 5 * GIB // 2, 0, GIB)
    assert memory_text(small, 80 * GIB) == (
        "fits: 4.5 GiB of 80 GiB, of which optimizer 2.5, parameters 1.0, buffers 1.0 (76 GiB free)"
    )
    assert memory_text(MemoryUse(99, 0, 1, 0), 10 * GIB, place="on GPU 3") == (
        "fits: 0.0 GiB of 10 GiB on GPU 3, of which parameters 0.0 (10.0 GiB free)"
    )


@given(
    micro=st.integers(1, 8),
    tp=st.sampled_from([1, 2, 4, 8]),
    flash=st.booleans(),
    sequence=st.booleans(),
    name=st.sampled_from(["llama3-8b", "gpt3-6.7b", "mixtral-8x7b", "deepseek-v3"]),
)
def test_recomputing_more_keeps_less(
    micro: int, tp: int, flash: bool, sequence: bool, name: str
) -> None:
    shape = model_preset(name).shape
    split = Split(micro, 2048, tp=tp, sequence_parallel=sequence)
    kept = [
        layer_activation_bytes(shape, split, layer=5, recompute=how, flash=flash)
        for how in ("none", "selective", "full")
    ]
    assert kept[0] >= kept[1] >= kept[2] > 0
    twice = Split(2 * micro, 2048, tp=tp, sequence_parallel=sequence)
    assert layer_activation_bytes(shape, twice, layer=5, flash=flash) == pytest.approx(
        2 * kept[0], abs=2
    )
