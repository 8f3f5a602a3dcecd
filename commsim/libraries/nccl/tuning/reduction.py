"""
What a reduction and its data type leave of NCCL's algorithms.

Switches add (NVLS) only what their hardware can: integers of 32 bits and more and 16-bit floats
by sum, minimum and maximum, wider floats by sum alone. An average is a sum with a factor before
it (floats) or a division after it (integers), which neither NVLS nor PAT can do.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from commsim.ops import element_type, reduce_op_of

__all__ = ["Reduction"]

Kind = Literal["sum", "extreme", "product", "scaled"]

_KINDS: dict[str, Kind] = {
    "sum": "sum", "min": "extreme", "max": "extreme", "product": "product", "avg": "scaled",
    "premul_sum": "scaled",
}  # fmt: skip
_EXTREMES = frozenset({"int32", "uint32", "int64", "uint64", "float16", "bfloat16"})
_SUMS = _EXTREMES | {"float32", "float64"}


class Reduction(msgspec.Struct, frozen=True):
    """A data type and a reduction by any of their names; "" if not stated: floats, a sum."""

    dtype: str = ""
    redop: str = ""

    @property
    def type(self) -> str:
        """The data type by NCCL's own kind of name; one that NCCL does not have stays itself."""
        known = element_type(self.dtype or "float32")
        return self.dtype if known is None else known.nccl or known.name

    @property
    def kind(self) -> Kind:
        """What the reduction needs; an unknown one can only be done step by step."""
        return _KINDS.get(reduce_op_of(self.redop or "sum"), "product")

    @property
    def in_switches(self) -> bool:
        """Can NVLink switches do it?"""
        if self.kind == "sum":
            return self.type in _SUMS
        return self.kind == "extreme" and self.type in _EXTREMES

    @property
    def is_float8(self) -> bool:
        """Does every step lose precision that counts? NCCL then shuns long rings."""
        return self.type == "float8"
