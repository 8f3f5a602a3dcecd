"""
Precisions of training as the tools spell them, and what an fp8 or fp4 recipe does around a product.

A recipe says at which peak its products run, and how many bytes a cast moves per entry of an
activation or of its gradient. Each such tensor is read in 2 bytes and feeds two products (an
activation the forward and the weight's gradient), which need it quantised along different
dimensions: it is written twice.

    tensor scale, delayed    read 2, write 1 + 1; the largest value is that of earlier steps
    tensor scale, current    read 2 more, for the largest value
    row scale                two kernels, each reads 2 for the largest value, 2 again, writes 1
    blocks of 128            as delayed: the scale is that of the tile in hand
    MX, blocks of 32         read 2, write (1 + 1/32) twice
    NVFP4, blocks of 16      read 2 more for the tensor's scale, write (1/2 + 1/16) twice

Sources: NVIDIA Transformer Engine's user guide (FP8 primer: delayed, current, MXFP8, NVFP4);
torchao float8 README (tensorwise, rowwise); DeepSeek-V3 report, section 3.3 (blocks).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

__all__ = ["PRECISION_NAMES", "Recipe", "peak_name", "recipe_of"]


class Recipe(msgspec.Struct, frozen=True):
    """How products are computed: the key of the GPU's peak, and bytes moved per entry cast.

    `name` finds the recipe's share of the fp8 efficiency in `constants.yaml`; `bits` are those of
    an entry of a product's input. `tensor_scaled`: one scale per tensor, so that parts of it can
    be cast before they are gathered.
    """

    name: str
    peak: str
    cast_bytes: float = 0.0
    bits: int = 16
    tensor_scaled: bool = False

    @property
    def quantised(self) -> bool:
        """Whether inputs of products are cast to fewer than 16 bits."""
        return self.bits < 16


_RECIPES: Mapping[str, Recipe] = {
    **{name: Recipe(name, name, bits=16) for name in ("bf16", "fp16")},
    **{name: Recipe(name, name, bits=32) for name in ("fp32", "tf32")},
    "fp8": Recipe("fp8_delayed", "fp8", 4.0, 8, True),
    "fp8-cs": Recipe("fp8_current", "fp8", 6.0, 8, True),
    "fp8-row": Recipe("fp8_row", "fp8", 10.0, 8),
    "fp8-block": Recipe("fp8_block", "fp8", 4.0, 8),
    "mxfp8": Recipe("mxfp8", "fp8", 2 + 2 * (1 + 1 / 32), 8),
    "nvfp4": Recipe("nvfp4", "fp4", 4 + 2 * (1 / 2 + 1 / 16), 4),
}
_SPELLINGS = {
    "fp8-ds": "fp8", "fp8_ds": "fp8", "fp8_cs": "fp8-cs", "fp8row": "fp8-row",
    "fp8_row": "fp8-row", "fp8-sc": "fp8-block", "fp8_sc": "fp8-block", "fp8-mx": "mxfp8",
    "fp8_mx": "mxfp8", "fp4": "nvfp4",
}  # fmt: skip
"""As Megatron-Bridge (ds, cs, mx, sc) and torchtitan's tables (row) write them."""

PRECISION_NAMES = (*_RECIPES, *_SPELLINGS)


def recipe_of(precision: str) -> Recipe:
    """Return the recipe of a precision by any of its names. Raises KeyError for another."""
    return _RECIPES[_SPELLINGS.get(precision, precision)]


def peak_name(precision: str) -> str:
    """Return the key of a precision in a GPU's table of peaks; an unknown name is its own."""
    name = _SPELLINGS.get(precision, precision)
    return _RECIPES[name].peak if name in _RECIPES else precision
