"""
`commsim topo`: describe a cluster.
"""

from __future__ import annotations

import click

from commsim.cli.bench import open_cluster
from commsim.cli.params import set_option
from commsim.cli.summary import columns

__all__ = ["topo"]


@click.command()
@click.argument("cluster", metavar="PRESET|FILE.yaml")
@click.option("--nodes", type=int, help="How many nodes; the cluster's own number by default.")
@set_option
def topo(cluster: str, nodes: int | None, sets: tuple[str, ...]) -> None:
    """Describe a cluster: its GPUs, links, NICs, rails, and the way between its ends."""
    from commsim.cluster.describe import describe

    found = describe(open_cluster(cluster, nodes, sets))
    click.echo(found.headline)
    click.echo(columns([("links", "count", "bandwidth", "payload", "latency"), *found.links]))
    click.echo(columns(found.facts))
    for note in found.notes:
        click.echo(f"note: {note}", err=True)
