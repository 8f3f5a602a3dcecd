"""
What a compute op costs: FLOPs, bytes read and written, and the matrix product it is.

Bytes count each tensor once: inputs read, outputs written. Ops that only write, copy, or look up
are told apart, since their arguments are not all read; so are kernels that pass over a tensor more
than once.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, register_flop_formula, sdpa_flop_count

from commsim.traces.capture.records import Product

__all__ = ["cost_of", "is_free", "tensors"]

_aten = torch.ops.aten
_VIEWS = (
    "view _unsafe_view reshape t transpose permute expand slice select split split_with_sizes"
    " detach alias as_strided unsqueeze squeeze unbind chunk lift lift_fresh _reshape_alias narrow"
    " empty empty_strided empty_like new_empty new_empty_strided resize_ set_ record_stream"
    " is_pinned unsafe_split unsafe_chunk view_as_real view_as_complex diagonal unfold"
    " sym_size sym_numel sym_stride sym_storage_offset is_same_size"
)
_FILLS = (
    "zero_ fill_ zeros ones full arange zeros_like ones_like full_like new_zeros new_ones new_full"
    " normal_ uniform_ random_ randn rand randint randperm _foreach_zero_ eye tril_indices"
    " scalar_tensor bernoulli_ exponential_"
)
_FREE, _WRITES_ONLY = frozenset(_VIEWS.split()), frozenset(_FILLS.split())
_SOURCE = {
    "copy_": 1,
    "_foreach_copy_": 1,
    "all_gather_copy_in": 0,
    "split_with_sizes_copy": 0,
    "chunk_cat": 0,
    "_chunk_cat": 0,
}
"""Which argument a copy reads; it writes as many entries, in the type of its result."""
_LOOKUPS = frozenset({"embedding", "index_select", "gather", "index", "take"})
_LOSS = "nll_loss"
"""Reads one entry of each row forward; backward it writes one into zeros. (`nll_loss2d` alike.)"""
_NORM_GRADIENTS = frozenset({"_fused_rms_norm_backward", "native_layer_norm_backward"})
"""Two kernels, for the input's gradient and the weight's, that both read gradient and input."""
_SOFTMAXES = frozenset({"_softmax", "_log_softmax"})
_SOFTMAX_GRADIENTS = frozenset({"_softmax_backward_data", "_log_softmax_backward_data"})
_KEPT_ROW = 48 * 1024
"""Bytes of a row that a softmax keeps in shared memory (of a block, without asking for more).

Of longer ones the forward reads the input for the maximum, the sum and the result, the backward
the gradient for the sum and the result (aten/src/ATen/native/cuda/SoftMax.cu).
"""
_ATTENTION = {
    "_scaled_dot_product_flash_attention_for_cpu": "attention",
    "_scaled_dot_product_flash_attention": "attention",
    "_scaled_dot_product_efficient_attention": "attention",
    "_scaled_dot_product_cudnn_attention": "attention",
    "_scaled_dot_product_flash_attention_for_cpu_backward": "attention_backward",
    "_scaled_dot_product_flash_attention_backward": "attention_backward",
    "_scaled_dot_product_efficient_attention_backward": "attention_backward",
    "_scaled_dot_product_cudnn_attention_backward": "attention_backward",
}


def _attention(q: Any, k: Any, v: Any, *rest: Any, out_shape: Any = None, **more: Any) -> int:
    """Count the fused attention of the CPU as torch counts that of a GPU: all positions."""
    return int(sdpa_flop_count(q, k, v))


def _attention_backward(
    grad: Any, q: Any, k: Any, v: Any, *rest: Any, out_shape: Any = None, **more: Any
) -> int:
    """Five products against two forward: the scores are computed again."""
    return int(sdpa_flop_count(q, k, v)) * 5 // 2


for _op, _formula in (
    (_aten._scaled_dot_product_flash_attention_for_cpu, _attention),
    (_aten._scaled_dot_product_flash_attention_for_cpu_backward, _attention_backward),
):
    if _op not in flop_registry:  # torch counts them itself from 2.15 on, and alike
        register_flop_formula(_op)(_formula)


def is_free(namespace: str, name: str) -> bool:
    """Return whether an op launches nothing on a GPU."""
    return namespace == "prim" or name in _FREE


def tensors(values: Any) -> list[Tensor]:
    """Return all tensors within `values`."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def cost_of(
    func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> tuple[float, int, Product | None]:
    """Return FLOPs, bytes read and written, and the product, of one op that has run."""
    inputs, outputs = tensors((args, kwargs)), tensors(out)
    formula = flop_registry.get(func._overloadpacket)
    flops = float(formula(*args, **kwargs, out_val=out)) if formula is not None else 0.0
    return flops, _traffic(name, args, inputs, outputs), _product(func, name, args, flops)


def _traffic(name: str, args: tuple[Any, ...], inputs: list[Tensor], outputs: list[Tensor]) -> int:
    read, written = sum(map(_bytes, inputs)), sum(map(_bytes, outputs))
    if name in _WRITES_ONLY:
        return written or read
    if name in _SOURCE:
        source = tensors(args[_SOURCE[name]])
        width = (outputs or inputs)[-1].element_size()
        return sum(_bytes(t) + t.numel() * width for t in source)
    if name.startswith(_LOSS):
        return written if name.endswith("backward") else 2 * sum(map(_bytes, tensors(args[1])))
    if name in _NORM_GRADIENTS:
        return read + written + sum(map(_bytes, tensors(args[:2])))
    if name in _SOFTMAXES | _SOFTMAX_GRADIENTS:
        again = 2 if name in _SOFTMAXES else 1
        return read + written + again * _long_rows(args[0], args[1 if again > 1 else 2])
    if name in _LOOKUPS:
        return 2 * written + sum(map(_bytes, tensors(args[1:])))
    if not outputs and name.startswith("_foreach") and inputs:
        return read + sum(map(_bytes, tensors(args[:1])))
    return read + written


def _bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor; those of an expanded one once."""
    size = 1
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        size *= length if stride else 1
    return int(size * tensor.element_size())


def _long_rows(tensor: Tensor, dim: int) -> int:
    """Return the bytes of a tensor if its rows along `dim` are too long for shared memory."""
    return _bytes(tensor) if tensor.shape[dim] * tensor.element_size() > _KEPT_ROW else 0


def _product(func: Any, name: str, args: tuple[Any, ...], flops: float) -> Product | None:
    if name in ("mm", "addmm", "_scaled_mm"):
        a, b = args[1:3] if name == "addmm" else args[:2]
        return Product("matmul", a.shape[0], b.shape[1], a.shape[1], 1, _dtype(a))
    if name in ("bmm", "baddbmm"):
        a, b = args[1:3] if name == "baddbmm" else args[:2]
        return Product("matmul", a.shape[1], b.shape[2], a.shape[2], a.shape[0], _dtype(a))
    if name in _ATTENTION:
        at = 1 if name.endswith("backward") else 0
        q, k = args[at], args[at + 1]
        batch, heads, queries, width = q.shape
        causal = bool(_given(func, args, "is_causal"))
        return Product(
            _ATTENTION[name], queries, k.shape[2], width, batch * heads, _dtype(q), causal
        )
    return None if not flops else Product("other", 0, 0, 0, 0, _dtype(tensors(args)[0]))


def _given(func: Any, args: tuple[Any, ...], name: str) -> Any:
    """Return an argument by its name in the op's schema; None if it is left out."""
    names = [argument.name for argument in func._schema.arguments]
    at = names.index(name) if name in names else len(args)
    return args[at] if at < len(args) else None


def _dtype(tensor: Tensor) -> str:
    """Return the type that a product multiplies in: fp32 may be told to go as TF32."""
    if tensor.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        return "tf32"
    return str(tensor.dtype).removeprefix("torch.")
