"""Amounts of compute: seconds, FLOPs and bytes of device memory, added up and scaled."""

from __future__ import annotations

import msgspec

__all__ = ["NOTHING", "Block", "GpuWork"]


class GpuWork(msgspec.Struct, frozen=True):
    """Time on one GPU, the FLOPs done in it, and the bytes of device memory moved."""

    seconds: float
    flops: float = 0.0
    traffic: float = 0.0

    def __add__(self, other: GpuWork) -> GpuWork:
        """Return both, one after the other."""
        return GpuWork(
            self.seconds + other.seconds, self.flops + other.flops, self.traffic + other.traffic
        )

    def lasting(self, seconds: float) -> GpuWork:
        """Return the same work in another time."""
        return GpuWork(seconds, self.flops, self.traffic)


NOTHING = GpuWork(0.0)


class Block(msgspec.Struct, frozen=True):
    """A part of the model on one rank and microbatch.

    `backward` is the gradient of the input (B), `weight` that of the parameters (W), `recompute`
    what runs again before B. No communication is inside. `core` and `core_backward` are the
    shares of forward and B that need other ranks' keys and values: what a ring can hide behind.
    `ends` are the shares of forward that its first and its last product take; `ends_backward` those
    of B and W together that the input gradients of the last and of the first take.
    """

    name: str
    forward: GpuWork
    backward: GpuWork
    weight: GpuWork
    recompute: GpuWork = NOTHING
    core: float = 0.0
    core_backward: float = 0.0
    ends: tuple[float, float] = (0.0, 0.0)
    ends_backward: tuple[float, float] = (0.0, 0.0)

    @property
    def full_backward(self) -> GpuWork:
        """A backward that is not split: recompute, B and W."""
        return self.recompute + self.backward + self.weight

    @property
    def input_backward(self) -> GpuWork:
        """The B of a split backward: recompute and the gradient of the input."""
        return self.recompute + self.backward
