"""Divisors that degrees are drawn from, and ways to share what replicas hold, by their names."""

from __future__ import annotations

import pytest

from commsim.study.advise.layouts import _data_parallel, _divisors
from commsim.units import Size
from commsim.workload.training.section import DataParallelSection


@pytest.mark.parametrize(
    ("number", "divisors"),
    [(1, [1]), (2, [1, 2]), (12, [1, 2, 3, 4, 6, 12]), (13, [1, 13]), (16, [1, 2, 4, 8, 16])],
)
def test_divisors_from_1_to_the_number_itself(number: int, divisors: list[int]) -> None:
    assert _divisors(number) == divisors


@pytest.mark.parametrize(
    ("shard", "kind", "stage", "width", "buckets"),
    [
        ("ddp", "ddp", None, None, True), ("zero-1", "zero", 1, None, True),
        ("zero-3", "zero", 3, None, True), ("fsdp", "fsdp", None, None, False),
        ("hsdp-16", "hsdp", None, 16, False),
    ],
)  # fmt: skip
def test_a_way_to_shard_keeps_the_buckets_where_it_has_any(
    shard: str, kind: str, stage: int | None, width: int | None, buckets: bool
) -> None:
    given = DataParallelSection(bucket=Size(7 << 20), first_bucket=Size(3 << 20), gradients="fp32")
    made, plain = _data_parallel(shard, given), DataParallelSection()
    assert (made.kind, made.gradients) == (kind, "fp32")
    assert made.stage == (plain.stage if stage is None else stage)
    assert made.shard == (plain.shard if width is None else width)
    of = given if buckets else plain
    assert (made.bucket, made.first_bucket) == (of.bucket, of.first_bucket)
