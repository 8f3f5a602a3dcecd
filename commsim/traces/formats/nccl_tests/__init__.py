"""What nccl-tests prints: its text tables since 2019, and its JSON."""

from commsim.traces.formats.nccl_tests.reader import is_nccl_tests, read_nccl_tests
from commsim.traces.formats.nccl_tests.table import (
    BenchedRow,
    BenchedTiming,
    NcclTests,
    described,
    merged,
)

__all__ = [
    "BenchedRow",
    "BenchedTiming",
    "NcclTests",
    "described",
    "is_nccl_tests",
    "merged",
    "read_nccl_tests",
]
