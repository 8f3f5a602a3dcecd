"""
`commsim bench`: time collectives over sizes, in nccl-tests' columns.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from commsim.cli.terminal import (
    INPUT,
    STDOUT,
    Checked,
    Console,
    Count,
    GroupedCommand,
    NcclVersion,
    Number,
    OutputFile,
    cluster_option,
    columns,
    json_option,
    limit_option,
    nodes_option,
    quiet_option,
    set_option,
    working,
)
from commsim.units import parse_nccl_size

if TYPE_CHECKING:
    from commsim.cluster import Cluster
    from commsim.study.bench import BenchResult, BenchRow

__all__ = ["bench"]

_HEAD = (
    "op", "size (B)", "count", "type", "redop", "root", "time (us)", "algbw (GB/s)",
    "busbw (GB/s)", "algo", "proto", "channels", "bound (us)", "",
)  # fmt: skip


@click.command(
    cls=GroupedCommand,
    extra="Write several ops with commas, as all_reduce,broadcast, a cluster as --cluster NAME.",
)
@click.argument("ops", metavar="OP[,OP...]")
@cluster_option
@click.option(
    "--nccl-xml", type=INPUT, metavar="FILE.xml", help="A node as NCCL_TOPO_DUMP_FILE wrote it."
)
@nodes_option
@click.option(
    "-g", "--gpus-per-node", type=Count(), metavar="G", help="Use only the first GPUs of each node."
)
@click.option(
    "-b",
    "first",
    type=Checked(parse_nccl_size),
    default="8",
    show_default=True,
    help="Smallest size in bytes (K, M, G).",
)
@click.option(
    "-e",
    "last",
    type=Checked(parse_nccl_size),
    default="128M",
    show_default=True,
    help="Largest size.",
)
@click.option(
    "-f",
    "factor",
    type=Number("2 or 1.5"),
    default=2.0,
    show_default=True,
    help="Factor from size to size.",
)
@click.option("-d", "dtype", default="float", show_default=True, help="Type of the elements.")
@click.option(
    "-n", "iterations", type=Count(), help="As nccl-tests'; a prediction needs no repeats."
)
@click.option("-w", "warmups", type=Count(0), help="As nccl-tests'; a prediction needs no warm-up.")
@set_option
@click.option("--library", help="Whose rules: nccl (of GPUs), gloo (of CPU workers), ideal.")
@click.option(
    "--nccl-version", type=NcclVersion(), metavar="X.Y", help="2.18 to 2.30.  [default: 2.27]"
)
@click.option(
    "--algo",
    type=INPUT,
    default="auto",
    show_default=True,
    help="auto, all, names (ring,tree), or FILE.xml.",
)
@click.option("--proto", default="auto", show_default=True, help="auto, all, or LL,LL128,Simple.")
@click.option("--env", "env", multiple=True, metavar="NCCL_X=Y", help="A variable of NCCL's.")
@click.option(
    "--launch",
    type=click.Choice(("gpu", "process")),
    help="A process per GPU, or one that drives a node's GPUs.",
)
@click.option("--network", default="fluid", show_default=True, help="fluid, or steps by message.")
@limit_option
@json_option
@click.option(
    "--chart",
    type=OutputFile(".html", ".svg", ".png", ".pdf"),
    metavar="F.html|.svg|.png|.pdf",
    help="Draw busbw against size.",
)
@click.option(
    "--nccl-tests",
    type=OutputFile(".json"),
    metavar="F.json",
    help="Write the table as nccl-tests does with -J.",
)
@quiet_option
def bench(
    ops: str,
    cluster: str | None,
    nccl_xml: str | None,
    nodes: int | None,
    gpus_per_node: int | None,
    first: str,
    last: str,
    factor: float,
    dtype: str,
    iterations: int | None,
    warmups: int | None,
    sets: tuple[str, ...],
    library: str | None,
    nccl_version: str | None,
    algo: str,
    proto: str,
    env: tuple[str, ...],
    launch: str | None,
    network: str,
    json_path: Path | None,
    chart: Path | None,
    nccl_tests: Path | None,
    quiet: bool,
) -> None:
    """Time collectives over all GPUs of a cluster: ring or tree, and from which size on.

    OP is all_reduce, ... or the name of an nccl-tests program (all_reduce_perf).
    """
    from commsim.libraries import LibrarySection
    from commsim.study.bench import bench as study_bench
    from commsim.study.bench import sweep

    console = Console(quiet=quiet, json_only=json_path == STDOUT)
    if chart is not None:
        from commsim.charts import check_picture

        check_picture(chart)
    if nccl_tests is not None:
        from commsim.export import check_nccl_tests

        check_nccl_tests(ops.split(","), several=algo == "all" or "," in algo)
    sizes = sweep(parse_nccl_size(first), parse_nccl_size(last), factor)
    place = open_cluster(cluster, nodes, sets, nccl_xml=nccl_xml)
    section = LibrarySection(
        library or "auto",
        version=nccl_version,
        env=_environment(env) or None,
        launch=launch,
    )
    with working(f"timing {ops}", quiet=quiet) as told:
        result = study_bench(
            place,
            ops,
            sizes,
            algo=algo,
            proto=proto,
            library=section,
            network=network,
            dtype=dtype,
            gpus_per_node=gpus_per_node,
            progress=told.count,
            follow=told.follow,
        )
    console.show(_header(result, cluster is None and nccl_xml is None))
    console.show(_table(result))
    protocols = {row.proto for row in result.results if row.proto}
    # Where algorithms alone are asked, each runs by the protocol that the library takes for it.
    whole = " " not in "".join(one.to for one in result.crossovers)
    by_its_own = ", each by the protocol shown" if whole and len(protocols) > 1 else ""
    for crossover in result.crossovers:
        console.show(
            f"{crossover.op}: from {crossover.size:,} B on, {crossover.to} beats"
            f" {crossover.before}{by_its_own}"
        )
    for verdict in result.verdicts():
        console.show(verdict)
    for change in result.choices:
        console.show(
            f"{change.op}: from {change.size:,} B on, {result.system['library']} takes {change.to}"
            f" instead of {change.before}"
        )
    for note in result.notes:
        console.say(f"note: {note}")
    if iterations is not None or warmups is not None:
        console.say("note: -n and -w change nothing: the same prediction comes each time.")
    _write(result, json_path, chart, nccl_tests, console, quiet=quiet)


def _environment(words: tuple[str, ...]) -> dict[str, str | int | bool]:
    """Return NCCL_X=Y words as a mapping."""
    from commsim.errors import ScenarioError

    found: dict[str, str | int | bool] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ScenarioError(f"--env {word}: write NAME=VALUE, such as NCCL_ALGO=Ring.")
        found[name] = value
    return found


def open_cluster(
    name: str | None,
    nodes: int | None,
    sets: tuple[str, ...] = (),
    *,
    nccl_xml: str | None = None,
    option: str = "--cluster ",
) -> Cluster:
    """Return the cluster that flags describe: a preset's name or a file, changed by --set.

    Errors say `option` before the name of a preset.
    """
    from commsim.cluster import cluster_from, preset_names
    from commsim.errors import ScenarioError
    from commsim.input_files import is_stream
    from commsim.scenario import apply_sets, scenario_names, scenario_text
    from commsim.yaml_file import parse_yaml, read_yaml

    if nccl_xml is not None:
        if name is not None or sets:
            raise ScenarioError("--nccl-xml: leave --cluster and --set out; the file is the node.")
        from commsim.libraries.nccl import cluster_from_xml
        from commsim.yaml_file import read_text

        text = read_text(Path(nccl_xml), nccl_xml)
        return cluster_from_xml(text, nodes=nodes or 1, source=nccl_xml)
    path = Path(name or "dgx-h100")
    if path.suffix in (".yaml", ".yml") or is_stream(path):
        data, where = read_yaml(path, str(path)), str(path)
    elif str(path) not in preset_names() and str(path) in scenario_names():
        data, where = parse_yaml(scenario_text(str(path)), f"{path}.yaml"), f"{path}.yaml"
    elif path.is_file():
        raise ScenarioError(f"{option}{path}: is a file, and a cluster file ends in .yaml.")
    else:
        data, where = {"preset": str(path)}, f"{option}{path}"
    if not isinstance(data, dict):
        raise ScenarioError(f"{where}: a cluster file is a mapping, such as preset: dgx-h100.")
    if "workload" in data:  # a scenario stands for its cluster
        if not isinstance(data.get("cluster"), dict):
            raise ScenarioError(f"{where}: is a scenario without a cluster. Give one that has it.")
        data = data["cluster"]
    if nodes is not None:
        data = {**data, "nodes": nodes}
    return cluster_from(apply_sets(data, sets), where)


def _header(result: BenchResult, by_default: bool) -> str:
    """Return what nccl-tests prints on top: on what, over how many ranks, by which library."""
    system = result.system
    named = "  (by default; --cluster names another)" if by_default else ""
    nodes = f"{system['nodes']} node{'s' if system['nodes'] > 1 else ''}"
    version = f" {system['version']}" if system["version"] else ""
    return "\n".join(
        (
            "# predicted by commsim, not measured",
            f"# cluster: {system['cluster']}{named}",
            f"# ranks: {system['gpus']} on {nodes}",
            f"# library: {system['library']}{version}, network: {system['network']}",
            "#",
        )
    )


def _table(result: BenchResult) -> str:
    best = result.fastest()
    several = len(best) < len(result.results)
    rows: list[tuple[str, ...]] = [_HEAD]
    for row in result.results:
        marks = ["chosen"] * row.chosen + ["fastest"] * (best[row.op, row.size] is row)
        rows.append(_cells(row, ", ".join(marks) if several else ""))
    return columns(rows, right=(1, 2, 5, 6, 7, 8, 11, 12))


def _cells(row: BenchRow, marks: str) -> tuple[str, ...]:
    return (
        row.op,
        str(row.size),
        str(row.count),
        row.type,
        row.redop,
        str(row.root),
        f"{row.time_us:.2f}",
        _rate(row.algbw_gbs),
        _rate(row.busbw_gbs),
        row.algo,
        row.proto or "–",
        str(row.nchannels or "–"),
        _rate(row.bound_us),
        marks,
    )


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _write(
    result: BenchResult,
    json_path: Path | None,
    chart: Path | None,
    nccl_tests: Path | None,
    console: Console,
    *,
    quiet: bool,
) -> None:
    from commsim.files import json_bytes

    if chart is not None:
        from commsim.charts import busbw, save_figure

        with working(f"drawing {chart}", quiet=quiet):
            save_figure(busbw(result.to_dict()), chart)
        console.show(f"wrote  {chart}")
    if nccl_tests is not None:
        from commsim.export import write_nccl_tests

        write_nccl_tests(result.to_dict(), nccl_tests)
        console.show(f"wrote  {nccl_tests}")
    if json_path == STDOUT:
        console.write(json_bytes(result.to_dict()).decode())
    elif json_path is not None:
        result.save_json(json_path)
        console.show(f"wrote  {json_path}")
