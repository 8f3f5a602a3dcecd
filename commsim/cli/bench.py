"""
`commsim bench`: time collectives over sizes, in nccl-tests' columns.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from commsim.cli.console import Console
from commsim.cli.params import (
    STDOUT,
    OutputFile,
    cluster_option,
    json_option,
    quiet_option,
    set_option,
)
from commsim.cli.summary import columns

if TYPE_CHECKING:
    from commsim.cluster import Cluster
    from commsim.study.bench import BenchResult, BenchRow

__all__ = ["bench"]

_HEAD = (
    "op", "size (B)", "count", "type", "redop", "root", "time (us)", "algbw (GB/s)",
    "busbw (GB/s)", "algo", "proto", "channels", "",
)  # fmt: skip


@click.command()
@click.argument("ops", metavar="OP[,OP...]")
@cluster_option
@click.option("--nodes", type=int, help="How many nodes; the cluster's own number by default.")
@click.option("--gpus-per-node", type=int, help="Use only the first GPUs of each node.")
@click.option(
    "-b", "first", default="8", show_default=True, help="Smallest size in bytes (K, M, G)."
)
@click.option("-e", "last", default="128M", show_default=True, help="Largest size.")
@click.option("-f", "factor", default=2.0, show_default=True, help="Factor from size to size.")
@click.option("-d", "dtype", default="float", show_default=True, help="Type of the elements.")
@set_option
@click.option("--library", default="ideal", show_default=True, help="Whose rules: ideal.")
@click.option("--algo", default="auto", show_default=True, help="auto, all, or names: ring,tree.")
@click.option("--network", default="fluid", show_default=True, help="fluid, or steps by message.")
@json_option
@click.option(
    "--chart", type=OutputFile(".html", ".svg", ".png"), metavar="F.html|.svg|.png",
    help="Draw busbw against size.",
)  # fmt: skip
@quiet_option
def bench(
    ops: str,
    cluster: str | None,
    nodes: int | None,
    gpus_per_node: int | None,
    first: str,
    last: str,
    factor: float,
    dtype: str,
    sets: tuple[str, ...],
    library: str,
    algo: str,
    network: str,
    json_path: Path | None,
    chart: Path | None,
    quiet: bool,
) -> None:
    """Time collectives over all GPUs of a cluster: ring or tree, and from which size on."""
    from commsim.libraries import LibrarySection
    from commsim.study.bench import bench as study_bench
    from commsim.study.nccl_tests import sweep
    from commsim.units import parse_nccl_size

    console = Console(quiet=quiet, json_only=json_path == STDOUT)
    sizes = sweep(parse_nccl_size(first), parse_nccl_size(last), factor)
    place = open_cluster(cluster, nodes, sets)
    with console.working("timing"):
        result = study_bench(
            place, ops, sizes, algo=algo, library=LibrarySection(name=library),
            network=network, dtype=dtype, gpus_per_node=gpus_per_node,
        )  # fmt: skip
    console.show(_table(result))
    for crossover in result.crossovers:
        console.show(
            f"{crossover.op}: from {crossover.size:,} B on, {crossover.to} beats {crossover.before}"
        )
    for note in result.notes:
        console.say(f"note: {note}")
    _write(result, json_path, chart, console)


def open_cluster(name: str | None, nodes: int | None, sets: tuple[str, ...] = ()) -> Cluster:
    """Return the cluster that flags describe: a preset's name or a file, changed by --set."""
    from commsim.cluster.section import cluster_from
    from commsim.errors import ScenarioError
    from commsim.scenario.overrides import apply_sets
    from commsim.yaml_file import read_yaml

    path = Path(name or "dgx-h100")
    if path.suffix in (".yaml", ".yml"):
        data, where = read_yaml(path, str(path)), str(path)
    else:
        data, where = {"preset": str(path)}, f"--cluster {path}"
    if not isinstance(data, dict):
        raise ScenarioError(f"{where}: a cluster file is a mapping, such as preset: dgx-h100.")
    if nodes is not None:
        data = {**data, "nodes": nodes}
    return cluster_from(apply_sets(data, sets), where)


def _table(result: BenchResult) -> str:
    best = result.fastest()
    rows = [_HEAD, *(_cells(row, best[row.op, row.size] is row) for row in result.results)]
    return columns(rows, right=(1, 2, 5, 6, 7, 8, 11))


def _cells(row: BenchRow, fastest: bool) -> tuple[str, ...]:
    return (
        row.op, str(row.size), str(row.count), row.type, row.redop, str(row.root),
        f"{row.time_us:.2f}", _rate(row.algbw_gbs), _rate(row.busbw_gbs), row.algo,
        row.proto or "–", str(row.nchannels or "–"), "fastest" if fastest else "",
    )  # fmt: skip


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _write(
    result: BenchResult, json_path: Path | None, chart: Path | None, console: Console
) -> None:
    from commsim.study.files import json_bytes

    if chart is not None:
        from commsim.charts import busbw, save_figure

        save_figure(busbw(result.to_dict()), chart)
        console.show(f"wrote  {chart}")
    if json_path == STDOUT:
        console.write(json_bytes(result.to_dict()).decode())
    elif json_path is not None:
        result.save_json(json_path)
        console.show(f"wrote  {json_path}")
