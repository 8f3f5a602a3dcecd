"""
What is fitted of a cluster: a handful of its physical and software figures, near the preset's.

A figure is multiplied by exp(x); x is held near 0 by a prior of width `sigma`. Only figures that
the measured tables can tell of are there: no NIC's from a table of one node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from commsim.arrays import Floats
from commsim.cluster import NodeSpec, cluster_from
from commsim.study.calibrate.predicted import BenchedMachine, MeasuredTable

__all__ = ["Factor", "factors_of", "overrides_of"]

_LATENCY, _SHARE, _LAUNCH = 0.35, 0.2, 0.5
_NANOSECONDS = 1e9


class Factor(msgspec.Struct, frozen=True):
    """A figure by its path in a node (`nic.efficiency`): its value now, and its prior's width.

    Shares stay at or below `most`; times are in seconds.
    """

    path: str
    value: float
    sigma: float
    most: float
    is_time: bool
    beside: tuple[tuple[str, str], ...] = ()
    """Fields of the same part that the value already holds, as they are to be written."""

    @property
    def bound(self) -> float:
        """The largest x."""
        return math.log(self.most / self.value)

    def written(self, x: float) -> Any:
        """Return the value at x as a cluster file has it."""
        value = self.value * math.exp(x)
        return f"{value * _NANOSECONDS:.4g}ns" if self.is_time else float(f"{value:.4g}")


def factors_of(machine: BenchedMachine, tables: Sequence[MeasuredTable]) -> tuple[Factor, ...]:
    """Return the figures that the tables tell of."""
    spec = cluster_from({**machine.cluster, "nodes": 1}, machine.name).specs[0]
    several = any(table.nodes > 1 for table in tables)
    inside = any(table.per_node > 1 for table in tables)
    found = [_time("host.launch", machine.launch(tables), _LAUNCH)]
    wire = spec.switch or spec.nvlink
    if inside and wire is not None:
        found.append(_share("nvlink.efficiency", wire.efficiency))
        found.append(_nvlink_latency(spec))
    if (inside and wire is None) or several:
        found.append(_share("pcie.efficiency", spec.pcie.efficiency))
    if several and spec.nic is not None:
        found.append(_share("nic.efficiency", spec.nic.wire.efficiency))
        found.append(_time("nic.latency", spec.nic.wire.latency * 1e-12, _LATENCY))
    return tuple(found)


def overrides_of(factors: Sequence[Factor], x: Floats) -> dict[str, Any]:
    """Return the node's settings at x."""
    found: dict[str, Any] = {}
    for factor, value in zip(factors, np.asarray(x).tolist(), strict=True):
        part, field = factor.path.split(".")
        found.setdefault(part, {})[field] = factor.written(value)
        found[part] |= dict(factor.beside)
    return found


def _nvlink_latency(spec: NodeSpec) -> Factor:
    """Return the latency from GPU to GPU; a switch's port has half of it, with the switch's."""
    if spec.switch is None:
        assert spec.nvlink is not None
        return _time("nvlink.latency", spec.nvlink.latency * 1e-12, _LATENCY)
    whole = _time("nvlink.latency", 2 * spec.switch.latency * 1e-12, _LATENCY)
    return replace(whole, beside=(("switch_latency", "0ns"),))


def _share(path: str, value: float) -> Factor:
    return Factor(path, value, _SHARE, 1.0, is_time=False)


def _time(path: str, seconds: float, sigma: float) -> Factor:
    return Factor(path, max(seconds, 1e-9), sigma, 1e-3, is_time=True)
