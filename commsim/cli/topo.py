"""
`commsim topo`: describe a cluster.
"""

from __future__ import annotations

from typing import Any

import click

from commsim.cli.bench import open_cluster
from commsim.cli.params import set_option
from commsim.cli.summary import columns
from commsim.units import format_bandwidth, format_size, format_time

__all__ = ["topo"]


@click.command()
@click.argument("cluster", metavar="PRESET|FILE.yaml")
@click.option("--nodes", type=int, help="How many nodes; the cluster's own number by default.")
@set_option
def topo(cluster: str, nodes: int | None, sets: tuple[str, ...]) -> None:
    """Describe a cluster: its GPUs, links, NICs, rails, and the way between its ends."""
    from commsim.cluster.describe import describe

    found = describe(open_cluster(cluster, nodes, sets))
    click.echo(f"{found['name']}: {found['nodes']} nodes, {found['world_size']} GPUs")
    for kind in found["kinds"]:
        click.echo(
            f"  {kind['count']} x {kind['name']}: {kind['gpus']} x {kind['gpu']}"
            f" ({format_size(kind['gpu_memory_bytes'])}), NVLink {kind['nvlink']},"
            f" {kind['nics']} NICs on {kind['rails']} rails, {kind['cpu_sockets']} sockets"
        )
    head = ("links", "from", "to", "count", "bandwidth", "payload", "latency")
    click.echo(columns([head, *(_link(link) for link in found["links"])], right=(3, 4, 5, 6)))
    click.echo(columns(_facts(found)))
    for note in found["notes"]:
        click.echo(f"note: {note}", err=True)


def _link(link: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{link['kind']} {link['medium']}".strip(), link["from"], link["to"], str(link["count"]),
        format_bandwidth(link["bandwidth"]), f"{link['efficiency']:.1%}",
        format_time(link["latency_ps"]),
    )  # fmt: skip


def _facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    fabric = found["fabric"]
    switches = ", ".join(
        f"{fabric[f'{level}_switches']} {level}" for level in ("leaf", "spine", "core")
    )
    rows = [
        ("fabric", f"{fabric['kind']}, oversubscription {fabric['oversubscription']},"
                   f" ecmp {fabric['ecmp']}, {fabric['rails']} rails"),
        ("switches", switches),
    ]  # fmt: skip
    if found["bisection_bandwidth"] is not None:
        rows.append(("bisection", format_bandwidth(found["bisection_bandwidth"])))
    return rows
