"""What each case of `kernel_cases.py` runs on a GPU: functions for `measure_kernels.py` to time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from kernel_cases import MODELS, Case, Shape
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

__all__ = ["DEVICE", "runs_of"]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
_CACHE = 200e6
"""Bytes of tensors that a product goes round, so that its inputs are not in the GPU's cache."""

Run = Callable[[], object]


def runs_of(case: Case) -> list[Run]:
    """Return functions that each run the case once, on tensors of their own.

    A backward runs without its forward.
    """
    make = {"product": _product, "attention": _attention, "bytes": _bytes, "layer": _layer}
    return make[case.kind](case)


def _random(*sizes: int, grad: bool = False) -> Tensor:
    return torch.randn(sizes, device=DEVICE, dtype=torch.bfloat16, requires_grad=grad)


def _sets(size: float) -> int:
    return max(1, min(8, round(_CACHE / size)))


def _product(case: Case) -> list[Run]:
    """A product of `functional.linear`: [m, k] by the transpose of [n, k], and its gradients."""
    m, n, k = case.m, case.n, case.k
    width = 2 if case.variant == "bf16" else 1
    count = _sets(width * (m * k + n * k) + 2 * m * n)
    if case.variant == "fp8":
        return [_fp8(_random(m, k), _random(n, k), case.phase) for _ in range(count)]
    if case.phase == "forward":
        return [_mm(_random(m, k), _random(n, k).t()) for _ in range(count)]
    if case.phase == "input":
        return [_mm(_random(m, k), _random(k, n)) for _ in range(count)]
    return [_mm(_random(k, m).t(), _random(k, n)) for _ in range(count)]


def _mm(a: Tensor, b: Tensor) -> Run:
    return lambda: torch.mm(a, b)


def _fp8(a: Tensor, b: Tensor, phase: str) -> Run:
    """A product of tensors in fp8 with a scale each; gradients are summed in fp32 throughout."""
    one = torch.ones((), device=DEVICE)
    left, right = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()
    fast = phase == "forward"

    def run() -> Tensor:
        return torch._scaled_mm(
            left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast
        )

    return run


def _attention(case: Case) -> list[Run]:
    backend = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}[case.variant]
    size = (1, case.batch, case.m, case.k)
    q, k, v = (_random(*size, grad=case.phase == "backward") for _ in range(3))
    with sdpa_kernel(backend):
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def forward() -> None:
        with sdpa_kernel(backend), torch.no_grad():
            functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    if case.phase == "forward":
        return [forward]
    return [_gradients(out, (q, k, v))]


def _gradients(out: Tensor, inputs: tuple[Tensor, ...]) -> Run:
    grad = torch.randn_like(out)

    def run() -> None:
        torch.autograd.grad(out, inputs, grad, retain_graph=True)

    return run


def _bytes(case: Case) -> list[Run]:
    if case.name == "adamw":
        return [_adamw(case)]
    if case.name == "copy":
        source, target = _random(case.m, case.n), _random(case.m, case.n)
        return [lambda: target.copy_(source)]
    function, inputs = _function(case)
    if case.phase == "forward":

        def forward() -> None:
            function(*inputs)

        return [forward]
    out = function(*inputs)
    return [_gradients(out, tuple(one for one in inputs if one.requires_grad))]


def _function(case: Case) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    grad = case.phase == "backward"
    x = _random(case.m, case.n, grad=grad)
    if case.name in ("rms_norm", "layer_norm"):
        return NAMED[case.name], (x, _random(case.n, grad=grad))
    if case.name in ("silu_gate", "add", "dropout_add"):
        return NAMED[case.name], (x, _random(case.m, case.n, grad=grad))
    if case.name == "cross_entropy":
        return NAMED[case.name], (x, torch.randint(case.n, (case.m,), device=DEVICE))
    return NAMED[case.name], (x,)


def _rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(x, (x.shape[-1],), weight)


def _layer_norm(x: Tensor, weight: Tensor) -> Tensor:
    return functional.layer_norm(x, (x.shape[-1],), weight)


def _silu_gate(x: Tensor, gate: Tensor) -> Tensor:
    return functional.silu(x) * gate


def _gelu(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


def _add(x: Tensor, other: Tensor) -> Tensor:
    return x + other


def _dropout_add(x: Tensor, other: Tensor) -> Tensor:
    return functional.dropout(x, 0.1) + other


def _cross_entropy(x: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(x.float(), labels)


def _cast_fp8(x: Tensor) -> Tensor:
    scale = 448.0 / x.abs().amax().float().clamp(min=1e-12)
    return (x * scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)


NAMED: dict[str, Callable[..., Tensor]] = {
    "rms_norm": _rms_norm, "layer_norm": _layer_norm, "silu_gate": _silu_gate, "gelu": _gelu,
    "add": _add, "dropout_add": _dropout_add, "cross_entropy": _cross_entropy,
    "cast_fp8": _cast_fp8,
}  # fmt: skip


def _adamw(case: Case) -> Run:
    """AdamW over fp32 parameters, in tensors of ten million entries."""
    count = max(1, case.n // 10_000_000)
    parameters = [nn.Parameter(torch.randn(case.n // count, device=DEVICE)) for _ in range(count)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    how: dict[str, Any] = {case.variant: True}
    return torch.optim.AdamW(parameters, lr=1e-4, **how).step


class Layer(nn.Module):
    """What one tensor-parallel rank computes of a layer."""

    def __init__(self, shape: Shape, tp: int) -> None:
        super().__init__()
        self.heads, self.kv_heads = shape.heads // tp, max(1, shape.kv_heads // tp)
        self.head_dim, self.gated = shape.head_dim, shape.gated
        ffn, bias = shape.ffn // tp, not shape.gated
        norm = nn.RMSNorm if shape.gated else nn.LayerNorm
        self.norms = nn.ModuleList(norm(shape.hidden) for _ in range(2))
        columns = (self.heads + 2 * self.kv_heads) * self.head_dim
        self.qkv = nn.Linear(shape.hidden, columns, bias=bias)
        self.out = nn.Linear(self.heads * self.head_dim, shape.hidden, bias=bias)
        self.up = nn.Linear(shape.hidden, (1 + self.gated) * ffn, bias=bias)
        self.down = nn.Linear(ffn, shape.hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        first, second = self.norms
        widths = [one * self.head_dim for one in (self.heads, self.kv_heads, self.kv_heads)]
        q, k, v = (
            part.reshape(batch, length, -1, self.head_dim).transpose(1, 2)
            for part in self.qkv(first(x)).split(widths, dim=-1)
        )
        core = functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads
        )
        x = x + self.out(core.transpose(1, 2).reshape(batch, length, -1))
        hidden = self.up(second(x))
        if self.gated:
            gate, value = hidden.chunk(2, dim=-1)
            hidden = functional.silu(gate) * value
        else:
            hidden = functional.gelu(hidden, approximate="tanh")
        result: Tensor = x + self.down(hidden)
        return result


LAYERS = 4
"""Layers in a row, so that what starts and ends a pass is shared; times are of one."""


def _layer(case: Case) -> list[Run]:
    shape = MODELS[case.model]
    with torch.device(DEVICE):
        net = nn.Sequential(*(Layer(shape, case.tp) for _ in range(LAYERS))).to(torch.bfloat16)
    x = _random(case.micro, case.n, shape.hidden, grad=True)
    if case.phase == "forward":

        def forward() -> None:
            net(x)

        return [forward]
    return [_gradients(net(x), (x, *net.parameters()))]
