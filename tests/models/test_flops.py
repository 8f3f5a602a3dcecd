"""FLOPs against the closed forms of the literature."""

from __future__ import annotations

import pytest

from commsim.models import (
    attention_flops,
    boundary_bytes,
    hardware_flops,
    head_flops,
    layer_flops,
    model_preset,
    training_flops,
)


@pytest.mark.parametrize(("batch", "seq"), [(1, 128), (4, 2048)])
def test_a_gpt_layer_is_24bsh2_and_4bs2h(batch: int, seq: int) -> None:
    shape = model_preset("gpt3-6.7b").shape
    h = shape.hidden
    expected = 24 * batch * seq * h * h + 4 * batch * seq * seq * h
    assert layer_flops(shape, batch=batch, seq=seq) == expected


def test_causal_attention_halves_only_the_square_term() -> None:
    shape = model_preset("gpt2-1.5b").shape
    full = layer_flops(shape, batch=2, seq=1024)
    assert full - layer_flops(shape, batch=2, seq=1024, causal=True) == 2 * 2 * 1024**2 * 1600


def test_a_llama_layer_with_grouped_queries_and_a_gate() -> None:
    shape = model_preset("llama3-8b").shape
    h, s = 4096, 8192
    matrices = h * h + 2 * h * 1024 + h * h + 3 * h * 14336
    assert layer_flops(shape, batch=1, seq=s) == 2 * s * matrices + 4 * s * s * h


def test_a_step_is_megatrons_72_bslh2() -> None:
    """Narayanan et al., SC'21, equation 3, without its recompute: 72 instead of 96."""
    shape = model_preset("megatron-18.4b").shape
    B, s, L, h, V = 1024, 2048, 40, 6144, 51200
    formula = 72 * B * s * L * h**2 * (1 + s / (6 * h) + V / (12 * L * h))
    assert training_flops(shape, batch=B, seq=s) == pytest.approx(formula, rel=1e-12)


def test_the_head_is_one_product_with_the_vocabulary() -> None:
    shape = model_preset("gpt2-124m").shape
    assert head_flops(shape, batch=3, seq=7) == 2 * 3 * 7 * 768 * 50257


def test_the_boundary_is_one_activation_per_token_and_channel() -> None:
    shape = model_preset("gpt2-124m").shape
    assert boundary_bytes(shape, batch=4, seq=1024, width=2) == 2 * 4 * 1024 * 768


def test_recompute_counts_what_runs_again() -> None:
    shape = model_preset("gpt3-6.7b").shape
    model = training_flops(shape, batch=2, seq=2048)
    layers = 32 * layer_flops(shape, batch=2, seq=2048)
    hardware = {
        how: hardware_flops(shape, batch=2, seq=2048, recompute=how)
        for how in ("none", "selective", "full")
    }
    assert hardware["none"] == model
    assert hardware["full"] - model == layers
    assert hardware["selective"] - model == 32 * 4 * 2 * 2048**2 * 4096


def test_megatrons_formula_counts_full_recompute() -> None:
    """Narayanan et al., SC'21: 96 B s L h^2 (1 + s/6h + V/16Lh)."""
    shape = model_preset("megatron-145.6b").shape
    B, s, L, h, V = 2304, 2048, 80, 12288, 51200
    formula = 96 * B * s * L * h**2 * (1 + s / (6 * h) + V / (16 * L * h))
    ours = hardware_flops(shape, batch=B, seq=s, recompute="full")
    assert ours == pytest.approx(formula, rel=1e-12)


def test_a_token_of_a_mixture_meets_its_experts_and_the_router() -> None:
    shape = model_preset("mixtral-8x7b").shape
    h, s = 4096, 1024
    matrices = h * h + 2 * h * 1024 + h * h + 8 * h + 2 * 3 * h * 14336
    assert layer_flops(shape, batch=1, seq=s) == 2 * s * matrices + 4 * s * s * h


def test_latent_attention_multiplies_its_own_widths() -> None:
    shape = model_preset("deepseek-v3").shape
    assert attention_flops(shape, batch=1, seq=100) == 2 * 100**2 * 128 * (192 + 128)
    assert attention_flops(shape, batch=1, seq=100, causal=True) == 100**2 * 128 * (192 + 128)
