"""Precisions by all their names, and what casting for fp8 products takes."""

from __future__ import annotations

import pytest

from commsim.cluster.nodes.gpus import gpu_spec
from commsim.models import PRECISION_NAMES, ModelShape, Split, compute_model, peak_name, recipe_of

SHAPE = ModelShape(
    layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, vocab=128256,
    max_seq=8192, gated=True, tied_embeddings=False,
)  # fmt: skip
SPLIT = Split(1, 8192)


def layer_seconds(precision: str, gpu: str = "H100-SXM5-80GB") -> float:
    blocks = compute_model(gpu_spec(gpu), precision=precision).layer(SHAPE, SPLIT)
    return sum((b.forward + b.backward + b.weight).seconds for b in blocks)


@pytest.mark.parametrize(
    ("name", "recipe", "peak"),
    [
        ("fp8", "fp8_delayed", "fp8"), ("fp8-cs", "fp8_current", "fp8"),
        ("fp8_ds", "fp8_delayed", "fp8"),
        ("fp8row", "fp8_row", "fp8"), ("fp8-mx", "mxfp8", "fp8"), ("mxfp8", "mxfp8", "fp8"),
        ("fp8-sc", "fp8_block", "fp8"), ("nvfp4", "nvfp4", "fp4"), ("bf16", "bf16", "bf16"),
    ],
)  # fmt: skip
def test_a_precision_is_known_as_the_tools_spell_it(name: str, recipe: str, peak: str) -> None:
    assert (recipe_of(name).name, peak_name(name)) == (recipe, peak)


def test_an_unknown_precision_is_its_own_peak() -> None:
    assert peak_name("int8") == "int8"
    assert "int8" not in PRECISION_NAMES


def test_a_cast_reads_and_writes_as_its_recipe_says() -> None:
    """Delayed: 2 in, 1 and 1 out; a largest value at hand costs another reading."""
    gpu = gpu_spec("H100-SXM5-80GB")
    names = ("bf16", "fp8", "fp8-cs", "mxfp8")
    moved = {n: compute_model(gpu, precision=n).kernels.casts(1000).traffic for n in names}
    assert moved["fp8"] == 4000
    assert moved["fp8-cs"] == 6000
    assert moved["bf16"] == 0
    assert moved["mxfp8"] == pytest.approx(1000 * (2 + 2 * 33 / 32))


def test_recipes_rank_as_their_casts_and_kernels_do() -> None:
    seconds = {name: layer_seconds(name) for name in ("bf16", "fp8", "fp8-cs", "fp8-row")}
    assert seconds["fp8"] < seconds["fp8-cs"] < seconds["fp8-row"]
    assert seconds["fp8"] < seconds["bf16"]
    assert layer_seconds("nvfp4", "B200-SXM-180GB") < layer_seconds("mxfp8", "B200-SXM-180GB")


def test_short_sums_gain_less_from_fp8() -> None:
    """The prologue of a product lasts as long at any precision: it takes more of a faster one."""
    models = [compute_model(gpu_spec("H100-SXM5-80GB"), precision=p) for p in ("bf16", "fp8")]
    gains = []
    for k in (512, 16384):
        op = models[0].kernels.machine(wide=True), models[1].kernels.machine(wide=False)
        ramps = [k / (k + m.constants.matmul_k_half * m.ramp) for m in op]
        gains.append(ramps[1] / ramps[0])
    assert gains[0] < gains[1] < 1
    assert models[1].kernels.machine(wide=False).ramp == pytest.approx(2, rel=0.01)


def test_the_output_matrix_stays_in_16_bits() -> None:
    heads = {
        p: compute_model(gpu_spec("H100-SXM5-80GB"), precision=p).head(SHAPE, SPLIT).forward.seconds
        for p in ("bf16", "fp8")
    }
    assert heads["bf16"] == heads["fp8"]


def test_what_was_never_fitted_is_said() -> None:
    known = compute_model(gpu_spec("H100-SXM5-80GB"), precision="bf16")
    assert known.not_fitted == ()
    other = compute_model(gpu_spec("B300-SXM-288GB"), precision="nvfp4")
    assert any("not fitted on B300-SXM-288GB: Blackwell's constants" in n for n in other.notes)
    assert any("no published step in nvfp4 on Blackwell was fitted" in n for n in other.notes)
