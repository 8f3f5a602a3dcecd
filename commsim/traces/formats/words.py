"""
The names that torch, NCCL, PARAM and Chakra give to ops and element types, and ours.
"""

from __future__ import annotations

from typing import Any

__all__ = ["dtype_of", "numbers_of", "op_of"]

_OPS = {
    "allreduce": "all_reduce",
    "allreducesparse": "all_reduce",
    "allgather": "all_gather",
    "allgatherbase": "all_gather",
    "allgatherintotensor": "all_gather",
    "allgatherp": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter",
    "reducescattertensor": "reduce_scatter",
    "reducescatterblock": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallbase": "all_to_all",
    "alltoallsingle": "all_to_all",
    "alltoallv": "all_to_all_v",
    "broadcast": "broadcast",
    "broadcastoop": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
    "reduceoop": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "monitoredbarrier": "barrier",
    "send": "send",
    "isend": "send",
    "recv": "recv",
    "irecv": "recv",
    "recvanysource": "recv",
}
_DTYPES = {
    "float": ("float32", 4), "half": ("float16", 2), "bfloat16": ("bfloat16", 2),
    "double": ("float64", 8), "long": ("int64", 8), "int": ("int32", 4), "short": ("int16", 2),
    "byte": ("uint8", 1), "unsigned char": ("uint8", 1), "char": ("int8", 1),
    "signed char": ("int8", 1), "bool": ("bool", 1), "long int": ("int64", 8),
    "float8_e4m3fn": ("float8_e4m3fn", 1), "float8_e5m2": ("float8_e5m2", 1),
    "float8_e4m3fnuz": ("float8_e4m3fn", 1), "float8_e5m2fnuz": ("float8_e5m2", 1),
    "float8e4m3": ("float8_e4m3fn", 1), "float8e5m2": ("float8_e5m2", 1),
    "float32": ("float32", 4), "float16": ("float16", 2), "float64": ("float64", 8),
    "int64": ("int64", 8), "int32": ("int32", 4), "int16": ("int16", 2), "int8": ("int8", 1),
    "uint8": ("uint8", 1), "uint32": ("uint32", 4), "uint64": ("uint64", 8),
    "complexfloat": ("complex64", 8), "complexdouble": ("complex128", 16),
}  # fmt: skip


def op_of(name: Any) -> str:
    """Return the op that `name` stands for ("allreduce_coalesced_", "_allgather_base"), else ""."""
    plain = str(name)[:200].lower().rsplit(":", 1)[-1].replace("_coalesced", "").replace("_", "")
    return _OPS.get(plain.split(" ")[0], "")


def dtype_of(name: Any) -> tuple[str, int]:
    """Return (our name, bytes per element) of an element type; ("", -1) where unknown."""
    plain = str(name).lower().removeprefix("torch.").removeprefix("c10::") if name else ""
    return _DTYPES.get(plain, ("", -1))


def numbers_of(value: Any) -> tuple[int, ...]:
    """Return the numbers of [0, 1] or "[0, 1]"; nothing for a list that was cut short ("...")."""
    if isinstance(value, list | tuple):
        parts = list(value)
    elif isinstance(value, str) and "..." not in value:
        parts = [part.strip() for part in value.strip("[]() ").split(",") if part.strip()]
    else:
        return ()
    try:
        numbers = tuple(int(part) for part in parts)
    except (TypeError, ValueError, OverflowError):
        return ()
    return numbers if all(0 <= number < 2**62 for number in numbers) else ()
