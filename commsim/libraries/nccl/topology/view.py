"""
What NCCL sees and finds, as rows for `commsim topo`: paths between devices, graphs, channels.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import Communicator, SearchGraph
from commsim.libraries.nccl.topology.build import system_of
from commsim.libraries.nccl.topology.paths import Path, Paths
from commsim.libraries.nccl.topology.rules import rules_of
from commsim.libraries.nccl.topology.system import TopologyDevice
from commsim.libraries.nccl.topology.xml_file import read_xml

__all__ = ["Table", "graph_table", "path_tables", "view_text"]

_MOST_COLUMNS = 16


class Table(msgspec.Struct, frozen=True):
    """A table of text: a title, the columns' heads, the rows."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def text(self) -> str:
        """Return the table in columns, the first one on the left, the others on the right."""
        lines = [self.heads, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.heads))]
        drawn = [
            "  ".join(
                cell.rjust(width) if i else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([self.title, *drawn])


def path_tables(
    text: str, *, source: str = "topology", version: str = "2.27", knobs: Knobs | None = None
) -> list[Table]:
    """Return the types and bandwidths (GB/s) of the paths between GPUs, and from GPUs to NETs.

    Raises:
        ScenarioError: the text is no topology.
    """
    rules = rules_of(version)
    system = system_of(read_xml(text, source), source, rules)
    paths = Paths(system, knobs or Knobs(), rules)
    tables = [_paths("Paths between GPUs", paths, system.gpus, system.gpus)]
    if system.nets:
        tables.append(_paths("Paths from GPUs to NETs", paths, system.gpus, system.nets))
    return tables


def _paths(
    title: str, paths: Paths, rows: Sequence[TopologyDevice], columns: Sequence[TopologyDevice]
) -> Table:
    shown = columns[:_MOST_COLUMNS]
    if len(shown) < len(columns):
        title += f" (the first {len(shown)} of {len(columns)})"
    return Table(
        title=f"{title}: type and GB/s",
        heads=("", *(_name(device) for device in shown)),
        rows=tuple(
            (
                _name(row),
                *("-" if row is other else _cell(paths.between(row, other)) for other in shown),
            )
            for row in rows[:_MOST_COLUMNS]
        ),
    )


def _name(device: TopologyDevice) -> str:
    number = device.rank if device.rank >= 0 else device.number
    return f"{device.kind.name} {number}"


def _cell(path: Path) -> str:
    return f"{path.type.name} {path.bandwidth / 1000:g}"


def graph_table(comm: Communicator) -> Table:
    """Return the graphs of a communicator: one row per pattern that was found."""
    heads = (
        "graph", "pattern", "channels", "GB/s", "GB/s to NICs", "between GPUs", "to NICs",
        "cross NIC", "same", "first channel",
    )  # fmt: skip
    found = [(name, graph) for name, graph in comm.graphs.items() if graph.n_channels]
    return Table(
        title=f"Graphs (NCCL {comm.version}, {_count(comm.n_ranks, 'rank')} on"
        f" {_count(comm.n_nodes, 'node')}): {_count(comm.channels, 'channel')}",
        heads=heads,
        rows=tuple((name, *_graph(graph, comm.n_nodes > 1)) for name, graph in found),
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _graph(graph: SearchGraph, inter: bool) -> tuple[str, ...]:
    return (
        graph.pattern.name,
        str(graph.n_channels),
        f"{graph.bw_intra:g}",
        f"{graph.bw_inter:g}" if inter else "-",
        graph.type_intra.name,
        graph.type_inter.name if inter else "-",
        str(graph.cross_nic),
        "yes" if graph.same_channels else "no",
        _channel(graph),
    )


def _channel(graph: SearchGraph) -> str:
    """Return the first channel: NET, GPUs, NET."""
    first = graph.channels[0]
    gpus = " ".join(str(gpu) for gpu in first.intra[:_MOST_COLUMNS])
    more = " ..." if len(first.intra) > _MOST_COLUMNS else ""
    if first.inter is None:
        return gpus + more
    return f"NET {first.inter[0]}: {gpus}{more} :NET {first.inter[1]}"


def view_text(comm: Communicator, tables: Sequence[Table]) -> str:
    """Return tables of paths and a communicator's graphs as text."""
    return "\n\n".join(table.text() for table in [*tables, graph_table(comm)]) + "\n"
