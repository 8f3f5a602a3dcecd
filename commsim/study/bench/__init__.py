"""
One collective over a range of sizes, in nccl-tests' own terms.

In: an op, sizes, a cluster and a library. Out: a `BenchResult`. `backend` lists the algorithms of
a library and times each, `nccl` does so for NCCL over arrays of sizes, `nccl_tests` counts bytes
and elements as nccl-tests does.
"""

from commsim.study.bench.bench import BenchResult, BenchRow, bench, bench_seconds
from commsim.study.bench.nccl_tests import shape_of, sweep

__all__ = ["BenchResult", "BenchRow", "bench", "bench_seconds", "shape_of", "sweep"]
