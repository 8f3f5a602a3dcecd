"""Calls as traces have them: what a graph holds of them, and a flight recorder's dump."""

from __future__ import annotations

from typing import Any

from commsim.graph import Graph
from helpers.paths import TESTS

__all__ = ["GLOO", "dump", "entry", "rows"]

GLOO = TESTS / "data" / "gloo_runs"


def rows(graph: Graph) -> list[tuple[str, int, tuple[int, ...]]]:
    """Return (op, S, ranks) of each collective."""
    table = graph.collectives
    return [
        (kind, size, graph.groups[group].ranks)
        for kind, size, group in zip(
            table.kind, table.size.tolist(), table.group.tolist(), strict=True
        )
    ]


def entry(name: str, number: int, **more: Any) -> dict[str, Any]:
    return {
        "record_id": number, "pg_id": 0, "process_group": ("0", "default_pg"),
        "collective_seq_id": number, "p2p_seq_id": 0, "profiling_name": name, "is_p2p": False,
        "input_sizes": [[256, 4]], "input_dtypes": ["BFloat16"], "output_sizes": [[256, 4]],
        "output_dtypes": ["BFloat16"], "state": "completed", "time_created_ns": number,
    } | more  # fmt: skip


def dump(entries: list[dict[str, Any]], ranks: str = "[0, 1]") -> dict[str, Any]:
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}
    return {"version": "2.10", "entries": entries, "pg_config": groups}
