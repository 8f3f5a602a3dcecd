"""
What commonly breaks, each as a change of the machine: the one whose times fit best is named.

A slower or faster host explains itself, so each is tried at several launches. A fault is named only
if the machine as it should be is off by more than `_OFF`, and the fault takes much of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from commsim.cluster import cluster_from
from commsim.errors import CommsimError
from commsim.follow import Follow, followed, unfollowed
from commsim.study.calibrate.fit import log_ratios
from commsim.study.calibrate.predicted import BenchedMachine, MeasuredTable

__all__ = ["Fault", "Finding", "diagnose"]

_OFF = 0.09  # rms of ln(predicted / measured)
_TAKES = 0.65
_ALIKE = 1.15
_LAUNCHES = (0.6, 1.0, 1.7, 3.0)
_OLD = ("2.12", "2.18", "2.21")


class Fault(msgspec.Struct, frozen=True):
    """Something broken: what it is, where to look, and how the machine differs."""

    name: str
    says: str
    overrides: Mapping[str, Any] = msgspec.field(default_factory=dict)
    library: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def on(self, machine: BenchedMachine) -> BenchedMachine:
        """Return the machine with this fault."""
        library = dict(self.library)
        if "env" in library:
            library["env"] = {**(machine.library.get("env") or {}), **library["env"]}
        return machine.having(self.overrides, **library)


class Finding(msgspec.Struct, frozen=True):
    """A fault that explains the tables: rms of ln(predicted / measured) without and with it.

    `also`: the names of others that explain them as well.
    """

    fault: Fault
    before: float
    after: float
    also: tuple[str, ...]


def diagnose(
    machine: BenchedMachine,
    tables: Sequence[MeasuredTable],
    follow: Follow = unfollowed,
) -> Finding | None:
    """Return the fault that explains the tables best; None if none is needed, or none does.

    `follow` is given a function that says which share of the faults has been tried.
    """
    healthy = _best(machine, tables)
    if healthy <= _OFF:
        return None
    faults = list(_faults(machine, tables))
    scores = [
        (_best(fault.on(machine), tables), place, fault)
        for place, fault in enumerate(followed(faults, follow))
    ]
    after, _, fault = min(scores, key=lambda one: one[:2])
    if after > healthy * _TAKES:
        return None
    also = tuple(
        one.name for score, _, one in scores if one is not fault and score < after * _ALIKE
    )
    return Finding(fault, healthy, after, also)


def _best(machine: BenchedMachine, tables: Sequence[MeasuredTable]) -> float:
    """Return the rms at the launch that fits best; infinite if the machine cannot be."""
    launch = machine.launch(tables)
    found = []
    for times in _LAUNCHES:
        made = machine.having({"host": {"launch": f"{launch * times * 1e9:.4g}ns"}})
        try:
            squares = [float(np.mean(ratio**2)) for ratio in log_ratios(made, tables)]
        except CommsimError:
            return float("inf")
        found.append(float(np.sqrt(np.mean(squares))))
    return min(found)


def _faults(machine: BenchedMachine, tables: Sequence[MeasuredTable]) -> Iterator[Fault]:
    """Yield what could be broken on this machine, as far as the tables can tell."""
    spec = cluster_from({**machine.cluster, "nodes": 1}, machine.name).specs[0]
    if any(table.nodes > 1 for table in tables) and spec.nic is not None:
        half = f"{spec.nic.wire.bandwidth / 2 / 1e9:.6g}GB/s"
        yield Fault(
            "NIC at half rate",
            "a NIC carries half of its rate: one rail is enough, as every ring crosses all of them."
            " Look for a port at half speed or width (ibstat, ethtool) and for one link of a bond",
            {"nic": {"bandwidth": half}},
        )
        if spec.nic.gdr:
            yield Fault(
                "no GPUDirect",
                "NICs do not reach GPU memory: messages go through the host's. Look for"
                " nvidia-peermem or dmabuf, and NCCL_NET_GDR_LEVEL",
                {"nic": {"gdr": False}},
            )
        if spec.nic.transport != "tcp":
            yield Fault(
                "TCP instead of RDMA",
                "messages go over sockets. Look for the network plugin, NCCL_IB_DISABLE and"
                " memlock",
                {"nic": {"transport": "tcp", "gdr": False}},
            )
        if spec.pcie.switches:
            yield Fault(
                "PHB",
                "GPUs reach their NICs through the CPU's root complex, not by a PCIe switch. Look"
                " at `nvidia-smi topo -m` (PIX or PXB is right), ACS, and the slots of the NICs",
                {"pcie": {"switches": []}},
            )
    if spec.switch is not None or spec.nvlink is not None:
        yield Fault(
            "no NVLink",
            "GPUs of a node do not reach each other over NVLink. Look at `nvidia-smi nvlink -s`,"
            " the fabric manager, and NCCL_P2P_DISABLE",
            library={"env": {"NCCL_P2P_DISABLE": "1"}},
        )
    yield Fault(
        "Simple alone",
        "NCCL takes neither LL nor LL128: small messages pay for it. Look for NCCL_PROTO",
        library={"env": {"NCCL_PROTO": "Simple"}},
    )
    yield Fault(
        "few channels",
        "NCCL takes few channels. Look for NCCL_MAX_NCHANNELS and NCCL_MAX_CTAS",
        library={"env": {"NCCL_MAX_NCHANNELS": "2"}},
    )
    if not any(table.nccl for table in tables):
        for version in _OLD:
            yield Fault(
                f"NCCL {version}",
                f"the times are those of NCCL {version}, not of"
                f" {machine.library.get('version') or 'a current one'}. Look at what is loaded:"
                " NCCL_DEBUG=VERSION",
                library={"version": version},
            )
