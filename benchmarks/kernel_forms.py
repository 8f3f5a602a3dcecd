"""
Read the form of kernels off their times: how products and fused attention depend on their shape.

    python benchmarks/kernel_forms.py

For each kernel, each way, and each GPU of `tests/data/kernels`: the values of
`commsim/models/matmul.py` and `fused_attention.py` that are nearest to what was measured (squares
of logarithms, launches besides), and how far predictions by them are off in the mean on each GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from validate_kernels import FILES, Timed, core_of, product_of, timed

from commsim.cluster import gpu_spec
from commsim.models.constants import FusedPass, GpuConstants, gpu_constants
from commsim.models.fused_attention import fused_share
from commsim.models.matmul import Machine, matmul_seconds

Predict = Callable[[Sequence[float], str, Timed], float]
"""Values of a form, a GPU and a case: the seconds it takes."""


class Form(NamedTuple):
    """What a kernel's time depends on: names of values, where to begin, and the time by them."""

    names: tuple[str, ...]
    begin: tuple[float, ...]
    predict: Predict


def attention_form() -> Form:
    """The form of a fused attention one way."""
    return Form(("share", "narrow", "half_keys", "tail"), (0.5, 0.8, 500.0, 0.5), _attention)


def product_form() -> Form:
    """The form of matrix products."""
    return Form(("matmul_efficiency", "matmul_k_half", "wave_loss"), (0.7, 100.0, 0.1), _product)


def fit(form: Form, gpu: str, rows: Sequence[Timed]) -> dict[str, float]:
    """Return the values that come nearest to the measured times (Gauss-Newton)."""

    def off(logs: np.ndarray) -> np.ndarray:
        values = np.exp(logs).tolist()
        return np.log([1e6 * form.predict(values, gpu, row) / row.measured for row in rows])

    logs = np.log(form.begin)
    for _ in range(12):
        now = off(logs)
        slope = [(off(logs + step) - now) / 0.01 for step in 0.01 * np.eye(len(logs))]
        logs = logs - np.linalg.lstsq(np.stack(slope, axis=1), now, rcond=None)[0]
    return dict(zip(form.names, np.exp(logs).tolist(), strict=True))


def error(form: Form, values: dict[str, float], gpu: str, rows: Sequence[Timed]) -> float:
    """Return how far predictions by a form are off in the mean."""
    given = list(values.values())
    return fmean(abs(1e6 * form.predict(given, gpu, row) / row.measured - 1) for row in rows)


def _attention(values: Sequence[float], gpu: str, row: Timed) -> float:
    share, narrow, half_keys, tail = values
    kernel = FusedPass(share=share, narrow=narrow, half_keys=half_keys, tail=tail)
    spec, core = gpu_spec(gpu), core_of(row.case)
    reached = fused_share(
        kernel,
        width=core.width,
        keys=core.block,
        rows=core.heads * core.queries,
        sms=spec.sm_count,
    )
    return row.flops / (1e12 * spec.tflops["bf16"] * reached) + _launch(gpu)


def _product(values: Sequence[float], gpu: str, row: Timed) -> float:
    efficiency, k_half, wave_loss = values
    spec, constants = gpu_spec(gpu), gpu_constants(gpu_spec(gpu))
    constants = replace(constants, matmul_k_half=k_half, wave_loss=wave_loss)
    peak, wide = spec.tflops[row.case["variant"]], spec.tflops["bf16"]
    machine = Machine(
        1e12 * peak, spec.memory_bandwidth, spec.sm_count, constants, ramp=peak / wide
    )
    return matmul_seconds(product_of(row.case), machine, efficiency=efficiency) + _launch(gpu)


def _launch(gpu: str) -> float:
    constants: GpuConstants = gpu_constants(gpu_spec(gpu))
    return 1e-6 * constants.launch_us


def main() -> None:
    """Print the forms."""
    rows = {gpu: timed(gpu, file) for gpu, file in FILES.items()}
    for variant, phase in (
        ("bf16", ""), ("fp8", ""), ("fa2", "forward"), ("fa2", "backward"), ("cudnn", "forward"),
        ("cudnn", "backward"),
    ):  # fmt: skip
        form = attention_form() if phase else product_form()
        of = {gpu: select(found, variant, phase) for gpu, found in rows.items()}
        for gpu, found in of.items():
            values = fit(form, gpu, found)
            shown = ", ".join(f"{name}: {value:.4g}" for name, value in values.items())
            errors = [f"{on} {error(form, values, on, cases):.1%}" for on, cases in of.items()]
            print(f"{variant} {phase} of {gpu}: {shown}; error on {', '.join(errors)}")


def select(rows: Sequence[Timed], variant: str, phase: str = "") -> list[Timed]:
    """Return the cases of a kernel, of one way if `phase` says so."""
    return [r for r in rows if r.case["variant"] == variant and phase in ("", r.case["phase"])]


if __name__ == "__main__":
    main()
