"""
How many kernels an op launches on a GPU.

An op over a list of tensors gives each block of threads a chunk of one of them, and each launch as
many as its arguments hold (aten/src/ATen/native/cuda/MultiTensorApply.cuh): an optimizer's step
over a billion parameters is hundreds of launches.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import Any

from commsim.traces.capture.costs import tensors

__all__ = ["launches_of"]

_CHUNK, _BLOCKS = 65536, 320
_TENSORS = (110, 64, 48, 36, 30)
"""How many tensors a launch holds, by how many lists of them an op takes and gives."""
_SEVERAL = {
    "_fused_rms_norm_backward": 2,  # gradients of the input and of the weight
    "native_layer_norm_backward": 2,
    "_scaled_dot_product_flash_attention_for_cpu_backward": 3,  # dO x O, the products, dQ's cast
}


def launches_of(name: str, args: tuple[Any, ...], out: Any) -> int:
    """Return the kernels of an op of aten that has run."""
    if not name.startswith("_foreach_"):
        return _SEVERAL.get(name, 1)
    lists = [args_of for args_of in (*args, out) if isinstance(args_of, list | tuple)]
    lists = [one for one in lists if one and len(tensors(one)) == len(one)]
    return max(1, _launches([t.numel() for t in lists[0]], len(lists))) if lists else 1


def _launches(sizes: list[int], lists: int) -> int:
    """Return the launches for tensors of these `sizes`, each in `lists` lists."""
    most = _TENSORS[min(lists, len(_TENSORS)) - 1]
    launches = held = blocks = 0
    for chunks in (-(-size // _CHUNK) for size in sizes if size):
        held += 1
        blocks += chunks
        while blocks >= _BLOCKS:
            launches, blocks = launches + 1, blocks - _BLOCKS
            held = 1 if blocks else 0  # a tensor that is not done goes on in the next
        if held == most:
            launches, held, blocks = launches + 1, 0, 0
    return launches + (blocks > 0)
