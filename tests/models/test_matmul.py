"""The time of one product: waves, tiles, roofs."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commsim.cluster.nodes.gpus import gpu_spec
from commsim.models.constants import GpuConstants, Tile, gpu_constants
from commsim.models.matmul import Machine, Matmul, matmul_bytes, matmul_flops, matmul_seconds

A100 = gpu_spec("A100-SXM4-80GB")
FITTED = gpu_constants(A100)


def machine(**changes: object) -> Machine:
    constants: GpuConstants = msgspec.structs.replace(FITTED, **changes)
    return Machine(312e12, 2.0e12, 100, constants)


PLAIN = machine(
    matmul_k_half=0.0,
    wave_loss=1.0,
    memory_efficiency=1.0,
    tiles=(Tile(rows=128, columns=128, share=1.0),),
)


def test_whole_waves_take_their_flops() -> None:
    op = Matmul(1280, 1280, 4096)  # 10 x 10 tiles on 100 SMs
    assert matmul_seconds(op, PLAIN, efficiency=0.5) == pytest.approx(
        2 * 1280 * 1280 * 4096 / (0.5 * 312e12)
    )


def test_one_tile_more_costs_a_whole_wave() -> None:
    full = matmul_seconds(Matmul(1280, 1280, 4096), PLAIN, efficiency=0.5)
    more = matmul_seconds(Matmul(1280 + 128, 1280, 4096), PLAIN, efficiency=0.5)
    assert more == pytest.approx(2 * full)


def test_a_kernel_that_balances_loses_part_of_the_wave() -> None:
    softer = machine(
        matmul_k_half=0.0, wave_loss=0.25, memory_efficiency=1.0,
        tiles=(Tile(rows=128, columns=128, share=1.0),),
    )  # fmt: skip
    full = matmul_seconds(Matmul(1280, 1280, 4096), softer, efficiency=0.5)
    more = matmul_seconds(Matmul(1280 + 128, 1280, 4096), softer, efficiency=0.5)
    assert more / full == pytest.approx(1.1 + 0.25 * 0.9)


def test_a_part_of_a_tile_costs_the_tile() -> None:
    whole = matmul_seconds(Matmul(1280, 1280, 4096), PLAIN, efficiency=0.5)
    assert matmul_seconds(Matmul(1153, 1280, 4096), PLAIN, efficiency=0.5) == whole


def test_a_short_sum_waits_for_memory() -> None:
    op = Matmul(12_800, 12_800, 16)
    assert matmul_seconds(op, PLAIN, efficiency=0.8) == pytest.approx(matmul_bytes(op) / 2e12)


def test_short_sums_lose_the_ramp() -> None:
    ramp = machine(
        matmul_k_half=64.0, wave_loss=1.0, tiles=(Tile(rows=128, columns=128, share=1.0),)
    )
    long, short = Matmul(1280, 1280, 6400), Matmul(1280, 1280, 640)
    assert matmul_flops(long) == 10 * matmul_flops(short)
    times = [matmul_seconds(op, ramp, efficiency=0.5) for op in (long, short)]
    assert times[0] / times[1] == pytest.approx(10 * (640 / 704) / (6400 / 6464))


def test_gradients_have_the_flops_of_the_product() -> None:
    op = Matmul(100, 200, 300, batch=7)
    assert op.input_gradient == Matmul(100, 300, 200, 7)
    assert op.weight_gradient == Matmul(300, 200, 100, 7)
    assert matmul_flops(op.input_gradient) == matmul_flops(op.weight_gradient) == 84_000_000


@given(
    m=st.integers(1, 20_000), n=st.integers(1, 20_000), k=st.integers(1, 20_000),
    batch=st.integers(1, 64), efficiency=st.floats(0.3, 1.0),
)  # fmt: skip
def test_no_product_beats_its_roofs(m: int, n: int, k: int, batch: int, efficiency: float) -> None:
    """Even where a small share of a wave's idle SMs counts: never fewer FLOPs than there are."""
    op = Matmul(m, n, k, batch)
    built = machine(wave_loss=0.01, matmul_k_half=0.0)
    seconds = matmul_seconds(op, built, efficiency=efficiency)
    assert seconds >= matmul_flops(op) / (312e12 * efficiency) * (1 - 1e-12)
    assert seconds >= matmul_bytes(op) / 2e12


def test_never_fewer_flops_than_there_are() -> None:
    """A tile with a share above one would: the floor is the product's own FLOPs."""
    op = Matmul(100, 100, 4096)
    sparse = machine(
        wave_loss=0.001, matmul_k_half=0.0, tiles=(Tile(rows=16, columns=16, share=1.0),)
    )
    least = matmul_flops(op) / (0.5 * 312e12)
    assert matmul_seconds(op, sparse, efficiency=0.5) >= least
