"""
Timelines for other tools: Chrome JSON and Perfetto, Kineto files per rank, CSV, nccl-tests' JSON;
and graphs from one trace format in another (`convert`).
"""

from commsim.export.chrome import write_chrome
from commsim.export.convert import convert
from commsim.export.kineto import write_kineto
from commsim.export.nccl_tests_json import check_nccl_tests, write_nccl_tests
from commsim.export.perfetto import write_perfetto
from commsim.export.tables import write_csv

__all__ = [
    "check_nccl_tests",
    "convert",
    "write_chrome",
    "write_csv",
    "write_kineto",
    "write_nccl_tests",
    "write_perfetto",
]
