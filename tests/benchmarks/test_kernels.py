"""
The compute model against kernels of an H200 and an H100 that were timed one by one
(`tests/data/kernels`): matrix products and fused attention by shape, and layers of eager torch.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from helpers.paths import ROOT
from helpers.scripts import run_script

from commsim.cluster import gpu_spec
from commsim.models import model_preset
from commsim.models.constants import FusedPass, gpu_constants

H200, H100 = "H200-SXM-141GB", "H100-SXM5-80GB"
CONSTANTS = gpu_constants(gpu_spec(H200))
FORM = ("narrow", "half_keys", "tail")

Kernels = dict[str, list[Any]]
"""The timed cases of each GPU."""


@pytest.fixture(scope="module")
def kernels(scripts: Any) -> Kernels:
    validation = scripts("validate_kernels")
    return {gpu: validation.timed(gpu, file) for gpu, file in validation.FILES.items()}


@pytest.fixture(scope="module")
def forms(scripts: Any) -> Any:
    return scripts("kernel_forms")


@pytest.mark.parametrize("gpu", [H200, H100])
def test_kernels_take_what_was_measured(scripts: Any, kernels: Kernels, gpu: str) -> None:
    """In the mean over all cases; the guess is one share of the peak for all of a kind."""
    found = scripts("validate_kernels").scores(kernels[gpu], ("kind", "variant"))
    assert found["product bf16"].count == 972
    assert found["product bf16"].error < 0.065
    assert found["product fp8"].error < 0.07
    assert found["attention cudnn"].error < 0.06
    assert found["attention fa2"].error < 0.16
    assert found["layer "].error < 0.07
    for kind in ("attention cudnn", "attention fa2", "layer "):
        assert found[kind].error < 0.7 * found[kind].guess


@pytest.mark.parametrize("gpu", [H200, H100])
def test_no_size_of_product_is_far_off(forms: Any, kernels: Kernels, gpu: str) -> None:
    """Products that fill an H200 less than three times come out neither slow nor fast."""
    rows = forms.select(kernels[gpu], "bf16")
    waves = [int(r.case["m"]) * int(r.case["n"]) / (256 * 128 * 132) for r in rows]
    for least, most in ((0.2, 1.0), (1.0, 3.0), (3.0, 10.0), (10.0, 1e9)):
        some = [r.error for r, w in zip(rows, waves, strict=True) if least <= w < most]
        assert len(some) > 50
        assert abs(sum(some) / len(some)) < 0.08


@pytest.mark.parametrize("kernel", ["fa2", "cudnn"])
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_the_form_of_attention_is_what_the_h200_shows(
    forms: Any, kernels: Kernels, kernel: str, phase: str
) -> None:
    """Narrow heads, short rows, the last tile: read off an H200, and met on an H100 at lengths
    and counts of heads that were not timed on the H200."""
    form, rows = forms.attention_form(), forms.select(kernels[H200], kernel, phase)
    read = forms.fit(form, H200, rows)
    constants: FusedPass = getattr(getattr(CONSTANTS.flash, kernel), phase)
    for name in FORM:
        assert getattr(constants, name) == pytest.approx(read[name], rel=1e-3)
    assert forms.error(form, read, H200, rows) < 0.04
    assert forms.error(form, read, H100, forms.select(kernels[H100], kernel, phase)) < 0.07
    assert constants.share == pytest.approx(read["share"], rel=0.2)  # fitted on training steps


def test_the_form_of_products_is_what_the_h200_shows(forms: Any, kernels: Kernels) -> None:
    read = forms.fit(forms.product_form(), H200, forms.select(kernels[H200], "bf16"))
    assert pytest.approx(read["matmul_k_half"], rel=1e-3) == CONSTANTS.matmul_k_half
    assert pytest.approx(read["wave_loss"], rel=1e-3) == CONSTANTS.wave_loss
    assert pytest.approx(read["matmul_efficiency"], rel=0.05) == CONSTANTS.matmul_efficiency


def test_a_form_finds_the_values_that_times_were_made_of(forms: Any, kernels: Kernels) -> None:
    form = forms.attention_form()
    values = dict(zip(form.names, (0.6, 0.8, 300.0, 0.4), strict=True))
    rows = [
        row._replace(measured=1e6 * form.predict(list(values.values()), H200, row))
        for row in forms.select(kernels[H200], "cudnn", "forward")
    ]
    assert forms.fit(form, H200, rows) == pytest.approx(values)


def test_the_cases_are_layers_of_the_presets(scripts: Any) -> None:
    cases = scripts("kernel_cases")
    for name, shape in cases.MODELS.items():
        preset = model_preset(name).shape
        assert shape == tuple(getattr(preset, field) for field in shape._fields)
    wanted = ("llama3-8b", 2, "forward")
    llama = [c for c in cases.products() if (c.model, c.tp, c.phase) == wanted]
    assert {(c.name, c.n, c.k) for c in llama} == {
        ("qkv", 3072, 4096), ("out", 4096, 2048), ("up", 14336, 4096), ("down", 4096, 7168),
    }  # fmt: skip


def test_the_tables_are_printed() -> None:
    told = run_script(ROOT / "benchmarks/validate_kernels.py", "--by", "phase").out
    assert re.search(r"product bf16 weight +324 +\d\.\d% +[+-]\d\.\d%", told)
    assert "H100-SXM5-80GB" in told
