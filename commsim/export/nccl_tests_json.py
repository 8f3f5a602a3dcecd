"""
A bench as the JSON that nccl-tests writes with -J, for tools that read its results.

Layout: github NVIDIA/nccl-tests, src/util.cu, version 1 of its file. nccl-tests runs one op per
process and one algorithm per size, so a file holds just that. commsim's times do not depend on
whether a buffer is used in place: both halves of a row say the same. `commsim` says who wrote
it, `experiment_name` what ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from commsim._version import __version__
from commsim.errors import ScenarioError
from commsim.files import write_json

__all__ = ["check_nccl_tests", "nccl_tests_dict", "write_nccl_tests"]

_PROGRAMS = {"all_to_all": "alltoall", "send_recv": "sendrecv"}


def write_nccl_tests(bench: dict[str, Any], path: str | Path) -> None:
    """Write the JSON of `commsim bench` in nccl-tests' layout. Raises as `nccl_tests_dict`."""
    write_json(nccl_tests_dict(bench), path)


def check_nccl_tests(ops: Sequence[str], *, several: bool) -> None:
    """Refuse a bench that nccl-tests' layout has no place for; `several` rows for a size.

    Raises:
        ScenarioError: several ops, or several rows for a size.
    """
    if len(ops) != 1:
        raise ScenarioError(
            f"nccl-tests' JSON holds one op, and this bench has {', '.join(ops) or 'none'}:"
            " bench them one by one."
        )
    if several:
        raise ScenarioError(
            "nccl-tests' JSON holds one row per size, and this bench has several algorithms:"
            " take --algo auto, or one."
        )


def nccl_tests_dict(bench: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON of `commsim bench` in nccl-tests' layout.

    Raises:
        ScenarioError: several ops, or several rows for a size.
    """
    rows, system = bench["results"], bench["system"]
    ops = list(dict.fromkeys(row["op"] for row in rows))
    sizes = [row["size"] for row in rows]
    check_nccl_tests(ops, several=len(dict.fromkeys(sizes)) < len(sizes))
    devices, nodes = _devices(system), int(system["nodes"])
    program = f"{_PROGRAMS.get(ops[0], ops[0])}_perf"
    return {
        "version": 1,
        "commsim": __version__,
        "args": [program, "-b", str(sizes[0]), "-e", str(sizes[-1]), "-d", rows[0]["type"]],
        "env": [],
        "config": {
            "ngpus": len(devices) // max(1, nodes) if _one_process(system) else 1,
            "minimum_bytes": sizes[0],
            "maximum_bytes": sizes[-1],
            "validation": 0,
            "devices": devices,
        },
        "results": [_row(row) for row in rows],
        "out_of_bounds": {"count": 0, "okay": True},
    }


def _one_process(system: dict[str, Any]) -> bool:
    """Say whether one process drives all GPUs of a node."""
    return system.get("launch") == "process"


def _devices(system: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the GPUs, spread evenly over the nodes; processes as they were launched."""
    gpus, nodes = int(system["gpus"]), max(1, int(system["nodes"]))
    each = -(-gpus // nodes)
    return [
        {
            "rank": rank,
            "group": 0,
            "pid": rank // each if _one_process(system) else rank,
            "hostname": f"node{rank // each}",
            "device": rank % each,
            "device_info": str(system["cluster"]),
        }
        for rank in range(gpus)
    ]


def _row(row: dict[str, Any]) -> dict[str, Any]:
    timing = {
        "time": row["time_us"],
        "alg_bw": row["algbw_gbs"] or 0.0,
        "bus_bw": row["busbw_gbs"] or 0.0,
        "nwrong": None,
    }
    what = f"{row['algo']} {row['proto'] or ''}".strip()
    return {
        "size": row["size"],
        "count": row["count"],
        "type": row["type"],
        "redop": row["redop"],
        "root": str(row["root"]),
        "out_of_place": timing,
        "in_place": timing,
        "actual_iterations": 1,
        "experiment_name": f"commsim: {what}",
    }
