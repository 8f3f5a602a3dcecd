"""
A node as a drawing in text: what hangs on each socket, and what NVLink joins.

    cpu0 307.2 GB/s of memory
      pcie0 63 GB/s up: gpu0, nic0
      directly: gpu4
    nvswitch: gpu0 to gpu7, 450 GB/s each, 18 links
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from commsim.cluster.nodes import NodeSpec
from commsim.cluster.template import Template
from commsim.units import format_bandwidth

__all__ = ["draw_node"]

_MAX_SOCKETS = 8


def draw_node(template: Template) -> list[str]:
    """Return the lines of a drawing of one kind of node, a few per socket."""
    spec = template.spec
    lines = []
    for socket in range(min(spec.sockets, _MAX_SOCKETS)):
        lines += _socket(template, socket)
    if spec.sockets > _MAX_SOCKETS:
        lines.append(f"... {spec.sockets - _MAX_SOCKETS} more sockets")
    return lines + _host_links(spec) + _nvlink(spec)


def _socket(template: Template, socket: int) -> list[str]:
    spec, name = template.spec, f"cpu{socket}"
    memory = spec.cpu.memory
    head = name if memory is None else f"{name} {format_bandwidth(memory.bandwidth)} of memory"
    return [head, *(f"  {line}" for line in _below(template, name))]


def _below(template: Template, above: str) -> list[str]:
    """Return what hangs on a socket or a switch: its switches, and the rest in one line."""
    below = template.children(above)
    lines = []
    for switch in (name for name in below if template.kind_of[name] == "pcie"):
        rate = template.spec.pcie.switches[int(switch.removeprefix("pcie"))].bandwidth
        devices = template.children(switch)
        ends = _spans(name for name in devices if template.kind_of[name] != "pcie")
        nested = [f"  {line}" for line in _below(template, switch) if line.startswith("pcie")]
        lines += [f"{switch} {format_bandwidth(rate)} up: {ends or 'switches'}", *nested]
    ends = _spans(name for name in below if template.kind_of[name] not in ("pcie", "memory"))
    return [*lines, f"directly: {ends}"] if ends else lines


def _host_links(spec: NodeSpec) -> list[str]:
    """Return what is particular about the route between GPUs and their sockets."""
    lines = []
    if spec.c2c is not None:
        lines.append(f"c2c: each GPU to its socket, {format_bandwidth(spec.c2c.bandwidth)}")
    if not spec.pcie.p2p:
        lines.append("no P2P over PCIe: between GPUs without NVLink, through host memory")
    return lines


def _nvlink(spec: NodeSpec) -> list[str]:
    if spec.switch is not None:
        links = f", {spec.switch_links} links" if spec.switch_links else ""
        shared = f"; up to {spec.domain_nodes} nodes share it" if spec.domain_nodes > 1 else ""
        each = f"{format_bandwidth(spec.switch.bandwidth)} each{links}"
        return [f"nvswitch: {_spans(f'gpu{g}' for g in range(spec.gpus))}, {each}{shared}"]
    if spec.nvlink is None:
        return []
    one, pairs = spec.nvlink.bandwidth, _pairs(spec.mesh)
    every = len(pairs) == spec.gpus * (spec.gpus - 1) // 2
    lines = []
    for count in sorted({count for _, _, count in pairs}, reverse=True):
        same = [f"{a}-{b}" for a, b, c in pairs if c == count]
        among = "each two GPUs" if every and len(same) == len(pairs) else f"GPUs {' '.join(same)}"
        links = "1 link" if count == 1 else f"{count} links"
        lines.append(f"nvlink: {among}, {links}, {format_bandwidth(one * count)}")
    return lines


def _pairs(mesh: Sequence[Sequence[int]]) -> list[tuple[int, int, int]]:
    return [(a, b, row[b]) for a, row in enumerate(mesh) for b in range(a + 1, len(row)) if row[b]]


def _spans(names: Iterable[str]) -> str:
    """Return "gpu0 to gpu3, nic0" for consecutive names of one kind."""
    runs: list[tuple[str, int, int]] = []
    for name in names:
        kind = name.rstrip("0123456789")
        number = int(name[len(kind) :])
        if runs and runs[-1][0] == kind and runs[-1][2] + 1 == number:
            runs[-1] = (kind, runs[-1][1], number)
        else:
            runs.append((kind, number, number))
    return ", ".join(_span(*run) for run in runs)


def _span(kind: str, first: int, last: int) -> str:
    if last - first < 2:
        return ", ".join(f"{kind}{number}" for number in range(first, last + 1))
    return f"{kind}{first} to {kind}{last}"
