"""
`commsim topo`: describe a cluster, as it is and as NCCL sees it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commsim.cli.commands.bench import open_cluster
from commsim.cli.terminal import (
    INPUT,
    Console,
    GroupedCommand,
    NcclVersion,
    OutputFile,
    clusters,
    columns,
    limit_option,
    nodes_option,
    quiet_option,
    set_option,
    working,
)
from commsim.files import write_text
from commsim.units import format_bandwidth, format_size, format_time

if TYPE_CHECKING:
    from commsim.cluster import Cluster

__all__ = ["topo"]


@click.command(cls=GroupedCommand)
@click.argument("cluster", type=INPUT, metavar="PRESET|FILE.yaml|FILE.xml", shell_complete=clusters)
@nodes_option
@set_option
@click.option(
    "--nccl",
    type=NcclVersion(),
    metavar="VERSION",
    is_flag=False,
    flag_value="2.27",
    help="Show the paths and graphs that NCCL finds; 2.27 by default.",
)
@click.option(
    "--nccl-xml",
    type=OutputFile(".xml"),
    metavar="F.xml",
    help="Write the topology file that NCCL would dump on the first node.",
)
@click.option(
    "--chart",
    type=OutputFile(".html", ".svg", ".png", ".pdf"),
    metavar="F.html|.svg|.png|.pdf",
    help="Draw what hangs on what, and how fast.",
)
@click.option(
    "--matrix",
    type=OutputFile(".html", ".svg", ".png", ".pdf"),
    metavar="F.html|.svg|.png|.pdf",
    help="Draw how fast each GPU reaches each other.",
)
@limit_option
@quiet_option
def topo(
    cluster: str,
    nodes: int | None,
    sets: tuple[str, ...],
    nccl: str | None,
    nccl_xml: Path | None,
    chart: Path | None,
    matrix: Path | None,
    quiet: bool,
) -> None:
    """Describe a cluster: its GPUs, links, NICs, rails, prices, and the route between its ends.

    FILE.xml is a topology file of NCCL (NCCL_TOPO_DUMP_FILE).
    """
    from commsim.cluster import describe

    with working(f"building {cluster}", quiet=quiet) as told:
        place = _open(cluster, nodes, sets)
        told.say("finding the routes between its ends")
        found = describe(place)
    _show(found, Console(quiet=quiet))
    if nccl is not None:
        click.echo(f"\n{_nccl_view(place, nccl, quiet=quiet)}", nl=False)
    if nccl_xml is not None:
        from commsim.libraries.nccl import cluster_xml

        write_text(nccl_xml, cluster_xml(place))
        click.echo(f"\nwrote {nccl_xml}")
    for draw, path in ((_drawing, chart), (_matrix, matrix)):
        if path is not None:
            with working(f"drawing {path}", quiet=quiet):
                draw(place, path)
            click.echo(f"\nwrote {path}")


def _drawing(place: Cluster, path: Path) -> None:
    from commsim.charts import save_figure, topology

    save_figure(topology(place), path)


def _matrix(place: Cluster, path: Path) -> None:
    from commsim.charts import bandwidth_matrix, save_figure

    save_figure(bandwidth_matrix(place), path)


def _open(name: str, nodes: int | None, sets: tuple[str, ...]) -> Cluster:
    if not _is_xml(name):
        return open_cluster(name, nodes, sets, option="")
    if sets:
        raise click.UsageError("--set changes a preset or a YAML file, not NCCL's topology file.")
    return open_cluster(None, nodes, nccl_xml=name)


def _is_xml(name: str) -> bool:
    """Say whether a cluster is NCCL's topology file: by its name, or what a pipe holds."""
    from commsim.input_files import is_stream
    from commsim.yaml_file import read_text

    return name.endswith(".xml") or (
        is_stream(name) and read_text(Path(name), name).lstrip().startswith("<")
    )


def _nccl_view(place: Cluster, version: str, *, quiet: bool) -> str:
    """Return the paths that NCCL sees in the first NVLink domain, and its graphs over all GPUs."""
    from commsim.libraries.nccl import (
        cluster_xml,
        communicator_of,
        path_tables,
        release_of,
        view_text,
    )

    version, notes = release_of(version)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    ranks = range(place.world_size)
    with working("finding the paths that NCCL sees", quiet=quiet) as told:
        tables = path_tables(cluster_xml(place), version=version)
        told.say("finding the graphs that NCCL makes of them")
        return view_text(communicator_of(place, ranks, version=version), tables)


def _show(found: dict[str, Any], console: Console) -> None:
    """Print what `describe` found."""
    click.echo(f"{found['name']}: {_counts(found)}")
    for kind in found["kinds"]:
        click.echo(f"\n{kind['count']} x {kind['name']}")
        click.echo(_indented(columns(_node(kind))))
        click.echo(_indented("\n".join(kind["drawing"])))
    click.echo()
    head = ("links", "from", "to", "count", "bandwidth", "payload", "latency")
    click.echo(columns([head, *(_link(link) for link in found["links"])], right=(3, 4, 5, 6)))
    click.echo()
    click.echo(columns(_facts(found)))
    for note in found["notes"]:
        console.say(f"note: {note}")


def _counts(found: dict[str, Any]) -> str:
    """Return "2 nodes, 8 GPUs", and the NVLink domains if they are not the nodes."""
    counts = [_count(found["nodes"], "node"), _count(found["world_size"], "GPU")]
    if any(kind["domain_nodes"] > 1 for kind in found["kinds"]):
        counts.append(_count(found["domains"], "NVLink domain"))
    return ", ".join(counts)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _node(kind: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what one kind of node is made of, with its price and power if they are known."""
    rows = [
        ("GPUs", f"{kind['gpus']} x {kind['gpu']}, {format_size(kind['gpu_memory_bytes'])}"),
        (
            "CPU",
            f"{_count(kind['cpu_sockets'], 'NUMA domain')} of {kind['cpu'] or 'unknown model'}"
            f" ({kind['cpu_vendor']}, {kind['cpu_arch']})",
        ),
        ("NICs", _nics(kind)),
    ]
    if kind["power_w"] is not None:
        rows.append(("power", f"{kind['power_w']:,g} W at most ({kind['power_source']})"))
    if kind["price_per_gpu_hour"] is not None:
        rows.append(
            (
                "price",
                f"{kind['price_per_gpu_hour']:g} {kind['price_currency']} per GPU and hour,"
                f" {kind['price_date']} ({kind['price_source']})",
            )
        )
    return rows


def _nics(kind: dict[str, Any]) -> str:
    if not kind["nics"]:
        return "none"
    reach = "with" if kind["gdr"] else "without"
    gpudirect = f", {reach} GPUDirect" if kind["device"] != "cpu" else ""
    model = kind["nic"] or "NICs"
    return (
        f"{kind['nics']} x {model}, {format_bandwidth(kind['nic_bandwidth'])}, on"
        f" {_count(kind['rails'], 'rail')}; {kind['transport']} over {kind['medium']}{gpudirect}"
    )


def _link(link: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{link['kind']} {link['medium']}".strip(),
        link["from"],
        link["to"],
        f"{link['count']:,}",
        format_bandwidth(link["bandwidth"]),
        f"{link['efficiency']:.1%}",
        format_time(link["latency_ps"]),
    )


def _facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    fabric = found["fabric"]
    if fabric["kind"] == "none":
        rows = [("fabric", "none")]
    else:
        rows = [("fabric", _shape(fabric))]
        if fabric["parts"]:
            rows.append(("built of", fabric["parts"]))
        rows.append(("simulated as", _switches(fabric)))
    if found["bisection_bandwidth"] is not None:
        rows.append(("bisection", format_bandwidth(found["bisection_bandwidth"])))
    rows += [_way(route) for route in found["routes"]]
    return rows


def _switches(fabric: dict[str, Any]) -> str:
    """Return the switches of the simulation, by level: spines that share all loads are one."""
    counts = ((level, fabric[f"{level}_switches"]) for level in ("leaf", "spine", "core"))
    return ", ".join(f"{count:,} {level}" for level, count in counts if count)


def _shape(fabric: dict[str, Any]) -> str:
    """Return the kind of a fabric and what matters for it."""
    shape = fabric["kind"]
    if fabric["dims"]:
        shape += " of " + " x ".join(f"{size:,}" for size in fabric["dims"])
    if fabric["planes"] > 1:
        shape += f" in {fabric['planes']} planes"
    if fabric["oversubscription"] is not None:
        shape += f", oversubscription {fabric['oversubscription']}"
    return f"{shape}, ecmp {fabric['ecmp']}, {_count(fabric['rails'], 'rail')}"


def _way(route: dict[str, Any]) -> tuple[str, str]:
    if route["bandwidth"] is None:
        return f"way {route['from']} to {route['to']}", "none"
    return (
        f"way {route['from']} to {route['to']}",
        f"{format_bandwidth(route['bandwidth'])}, {format_time(route['latency_ps'])}:"
        f" {' - '.join(route['via'])}",
    )
