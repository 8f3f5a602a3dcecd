"""
What was measured on a cluster, kept in its file: `check` holds later logs against it.

No prediction is made of it: a cluster is simulated from its figures alone.
"""

from __future__ import annotations

from commsim.cluster.nodes import field_path
from commsim.errors import ScenarioError
from commsim.sections import Section

__all__ = ["MeasuredSection", "check_measured"]


class MeasuredSection(Section, frozen=True):
    """The times of one op: `us[i]` at `bytes[i]`, on `gpus_per_node` GPUs of each of `nodes`.

    `nccl` and `launch` are what ran, "" if nobody says.
    """

    op: str
    nodes: int
    gpus_per_node: int
    bytes: tuple[int, ...]
    us: tuple[float, ...]
    dtype: str = "float"
    nccl: str = ""
    launch: str = ""
    source: str = ""


def check_measured(tables: tuple[MeasuredSection, ...], where: str, path: str) -> None:
    """Raise ScenarioError for a table whose columns do not belong together."""
    for place, table in enumerate(tables):
        at = f"{where}: {field_path(path, f'measured.{place}')}"
        if not table.bytes or len(table.bytes) != len(table.us):
            raise ScenarioError(
                f"{at}: has {len(table.bytes)} bytes and {len(table.us)} us."
                " Give a time for each size."
            )
        if min(table.bytes) < 1 or not 0 < min(table.us) <= max(table.us) < float("inf"):
            raise ScenarioError(f"{at}: give sizes and times above zero.")
