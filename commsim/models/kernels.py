"""
The time of kernels on one GPU at one precision: matrix products, casts, and whatever moves bytes.

What is built on this (`compute`, `attention`) knows layers; this knows only the GPU's constants,
the recipe of the precision, and how much more than fused kernels a stack's ones move.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from commsim.cluster import GpuSpec
from commsim.models.constants import FlashShare, GpuConstants, Stack, recipe_share
from commsim.models.matmul import Machine, Matmul, matmul_bytes, matmul_flops, matmul_seconds
from commsim.models.precision import Recipe, recipe_of
from commsim.models.work import NOTHING, GpuWork

__all__ = ["WIDE", "KernelModel"]

WIDE = ("fp32", "tf32")
"""Precisions whose activations have 4 bytes."""


class KernelModel(msgspec.Struct, frozen=True):
    """Prices kernels. `efficiency`: every FLOP takes 1/(efficiency x peak), bytes take nothing."""

    gpu: GpuSpec
    precision: str
    constants: GpuConstants
    stack: Stack
    efficiency: float | None = None

    @property
    def recipe(self) -> Recipe:
        """How products are computed at this precision."""
        return recipe_of(self.precision)

    @property
    def width(self) -> int:
        """Bytes per entry of activations: 4 in fp32 and tf32, else 2 (fp8 is for products only)."""
        return 4 if self.precision in WIDE else 2

    @property
    def flash(self) -> bool:
        """Whether attention is fused and keeps no scores."""
        return self.stack.attention != "unfused"

    @property
    def flash_share(self) -> FlashShare:
        """What of the peak the fused attention of the stack reaches."""
        shares = self.constants.flash
        share: FlashShare | None = getattr(shares, self.stack.attention)
        return shares.cudnn if share is None else share

    @property
    def attention_speedup(self) -> float:
        """How many times as fast a fused attention's forward is for its precision."""
        return self.stack.attention_fp8 if self.recipe.quantised else 1.0

    @property
    def bandwidth(self) -> float:
        """Bytes/s of device memory that kernels reach."""
        return self.gpu.memory_bandwidth * self.constants.memory_efficiency

    @property
    def peak(self) -> float:
        """FLOP/s of products, dense."""
        return self.gpu.tflops[self.recipe.peak] * 1e12

    @property
    def wide_peak(self) -> float:
        """FLOP/s of what is not quantised: attention, and products kept in 16 bits."""
        return self.gpu.tflops["bf16" if self.recipe.quantised else self.precision] * 1e12

    def products(self, products: Iterable[Matmul], *, wide: bool = False) -> GpuWork:
        """Return matrix products; `wide` ones are not quantised."""
        quantised = self.recipe.quantised and not wide
        constants = self.constants
        efficiency = constants.matmul_efficiency
        if quantised:
            efficiency = min(1.0, constants.fp8_efficiency * recipe_share(self.recipe.name))
        machine, work = self.machine(wide=not quantised), NOTHING
        for op in products:
            seconds = 0.0  # with an efficiency only FLOPs count, also on a GPU of unknown SMs
            if self.efficiency is None:
                seconds = _cached_seconds(op, machine, efficiency, self.width)
            work += GpuWork(seconds, matmul_flops(op), matmul_bytes(op, self.width))
        return work

    def casts(self, entries: float) -> GpuWork:
        """Return what quantising `entries` of an activation or its gradient takes."""
        moved = self.fixed(self.recipe.cast_bytes * entries)
        return moved.lasting(moved.seconds / self.constants.cast_efficiency)

    def machine(self, *, wide: bool) -> Machine:
        """Return what products run on. The ramp over k lasts as long at any precision, so that
        it takes more of k if the peak is higher."""
        peak = self.wide_peak if wide else self.peak
        return Machine(
            peak,
            self.gpu.memory_bandwidth,
            self.gpu.sm_count,
            self.constants,
            peak / self.wide_peak,
        )

    def stream(self, moved: float) -> GpuWork:
        """Return memory-bound kernels, for the bytes that fully fused ones move."""
        return self.fixed(moved * self.stack.stream * self.width / 2)

    def fixed(self, moved: float) -> GpuWork:
        """Return the movement of bytes."""
        return GpuWork(moved / self.bandwidth, 0.0, moved)


@lru_cache(maxsize=8192)
def _cached_seconds(op: Matmul, machine: Machine, efficiency: float, width: int) -> float:
    return matmul_seconds(op, machine, efficiency=efficiency, width=width)
