"""
The time of one matrix product: a roofline whose roof falls with the product's shape.

C[m, n] = A[m, k] B[k, n] is cut into tiles of TM x TN; each SM works on one tile at a time, so
that the tiles come in waves, and the last wave may be partly empty:

w    = ceil(m/TM) ceil(n/TN) batch / SMs          waves
work = (w + phi (ceil(w) - w)) SMs TM TN 2k       FLOPs done, a share phi of the idle ones included
time = max(work / (tile's share x peak x efficiency x k/(k + k_half)),
           bytes / (memory bandwidth x efficiency))

A library picks the best of its tiles, in either orientation; so does `matmul_seconds`. phi < 1
because real kernels split k, balance persistently, or overlap the tail with the next kernel.
k/(k + k_half) is the share of a tile's time outside its prologue and epilogue.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from commsim.models.constants import GpuConstants

__all__ = ["Machine", "Matmul", "matmul_bytes", "matmul_flops", "matmul_seconds"]


class Matmul(NamedTuple):
    """A product of `batch` independent [m, k] x [k, n] matrices."""

    m: int
    n: int
    k: int
    batch: int = 1

    @property
    def input_gradient(self) -> Matmul:
        """The product for the gradient of A: [m, n] x [n, k]."""
        return Matmul(self.m, self.k, self.n, self.batch)

    @property
    def weight_gradient(self) -> Matmul:
        """The product for the gradient of B: [k, m] x [m, n]."""
        return Matmul(self.k, self.n, self.m, self.batch)


class Machine(NamedTuple):
    """What a product runs on: FLOP/s at its precision, bytes/s, SMs, and fitted constants.

    `ramp` multiplies k_half: how many times the FLOP/s of 16 bits the precision has.
    """

    peak: float
    bandwidth: float
    sms: int
    constants: GpuConstants
    ramp: float = 1.0


def matmul_flops(op: Matmul) -> int:
    """Return the FLOPs of a product: 2 m n k batch."""
    return 2 * op.m * op.n * op.k * op.batch


def matmul_bytes(op: Matmul, width: int = 2) -> int:
    """Return the least bytes that a product reads and writes."""
    return width * op.batch * (op.m * op.k + op.k * op.n + op.m * op.n)


def matmul_seconds(op: Matmul, machine: Machine, *, efficiency: float, width: int = 2) -> float:
    """Return the time of `op` in seconds, without its launch."""
    constants = machine.constants
    ramp = op.k / (op.k + constants.matmul_k_half * machine.ramp)
    rate = machine.peak * efficiency * ramp
    memory = matmul_bytes(op, width) / (machine.bandwidth * constants.memory_efficiency)
    work = min(
        _wave_flops(op, rows, columns, machine) / share
        for rows, columns, share in _oriented(constants)
    )
    return max(work / rate, memory)


def _oriented(constants: GpuConstants) -> list[tuple[int, int, float]]:
    tiles = [(t.rows, t.columns, t.share) for t in constants.tiles]
    return tiles + [(columns, rows, share) for rows, columns, share in tiles if rows != columns]


def _wave_flops(op: Matmul, rows: int, columns: int, machine: Machine) -> float:
    tiles = -(-op.m // rows) * -(-op.n // columns) * op.batch
    waves = tiles / machine.sms
    waves += machine.constants.wave_loss * (math.ceil(waves) - waves)
    return waves * machine.sms * rows * columns * 2 * op.k
