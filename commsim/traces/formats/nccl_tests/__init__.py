"""Measured collectives: what nccl-tests prints and its JSON, NCCL's inspector, `commsim bench`."""

from commsim.traces.formats.nccl_tests.own_json import is_bench_json, read_bench_json
from commsim.traces.formats.nccl_tests.reader import is_nccl_tests, read_nccl_tests
from commsim.traces.formats.nccl_tests.table import (
    BenchedRow,
    BenchedTiming,
    NcclTests,
    described,
    is_time,
    merged,
)

__all__ = [
    "BenchedRow",
    "BenchedTiming",
    "NcclTests",
    "described",
    "is_bench_json",
    "is_nccl_tests",
    "is_time",
    "merged",
    "read_bench_json",
    "read_nccl_tests",
]
