"""
What can be had more or less of: the hardware of a cluster, its size, and settings of the step.

A change is made of texts as `--set` takes them, so that anybody can run it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import gcd

import msgspec

from commsim.cluster import Cluster, NodeSpec
from commsim.errors import ScenarioError
from commsim.models import peak_name
from commsim.scenario import ScenarioFile
from commsim.units import PS_PER_SECOND, format_bandwidth, format_size, format_time
from commsim.workload import with_defaults

__all__ = ["BETTER", "MICRO", "Resource", "resources_of"]

MICRO = "workload.training.batch.micro"

BETTER = (0.5, 1 / 1.1, 1.1, 2.0)
"""How many times better a resource is made: half, 10 % worse, 10 % better, twice."""


class Resource(msgspec.Struct, frozen=True):
    """Something that a run has so much of.

    `kind`: hardware, size (what is bought as a whole: nodes), or setting (which costs nothing).
    `key` names it in results, `now` says what there is. `sets(better)` returns the changes that
    make it so many times better, None if that is not to be had; `links` are the kinds of the
    timeline's links that it is, () for what has none. `offered`: which factors are worth a try
    where nobody asked for them.
    """

    key: str
    title: str
    kind: str
    now: str
    sets: Callable[[float], tuple[str, ...] | None]
    links: tuple[str, ...] = ()
    offered: Callable[[float], bool] = lambda _: True


def resources_of(file: ScenarioFile, cluster: Cluster | None, where: str) -> list[Resource]:
    """Return the resources of a scenario, those of its cluster first.

    Raises:
        ScenarioError: there is no cluster that could be better.
    """
    if cluster is None or file.cluster is None:
        raise ScenarioError(
            f"{where}: has no cluster, so there is nothing to buy. Add one, like cluster:"
            " {preset: dgx-h100}."
        )
    scale = file.cluster.scale
    factors = {name: getattr(scale, name) for name in scale.__struct_fields__}
    training = file.workload.training
    peak = "bf16" if training is None else peak_name(training.precision)
    return [*_hardware(cluster, factors, peak), *_size(file), *_settings(file, where)]


def _hardware(cluster: Cluster, scale: Mapping[str, float], peak: str) -> Iterator[Resource]:
    """Yield what the cluster has; each is changed by a factor of `cluster.scale`. Products run at
    the `peak` of that name.
    """

    def one(
        key: str, title: str, now: str, links: tuple[str, ...] = (), *, time: bool = False
    ) -> Resource:
        def sets(better: float) -> tuple[str, ...]:
            factor = scale[key] / better if time else scale[key] * better
            return (f"cluster.scale.{key}={factor:.9g}",)

        return Resource(key, title, "hardware", now, sets, links)

    specs = cluster.specs
    yield one("compute", "GPU FLOP/s", _each(specs, lambda s: _flops(s, peak)))
    yield one("hbm", "GPU memory bandwidth", _each(specs, lambda s: _rate(s.gpu.memory_bandwidth)))
    yield one("gpu_memory", "GPU memory", _each(specs, lambda s: format_size(s.gpu.memory_bytes)))
    if any(spec.switch or spec.nvlink for spec in specs):
        yield one("nvlink", "NVLink bandwidth", _each(specs, _nvlink), ("nvlink",))
        now = _each(specs, lambda s: _latency((s.switch or s.nvlink or s.socket_link).latency))
        yield one("nvlink_latency", "NVLink latency", now, time=True)
    now = _each(specs, lambda s: _rate(s.pcie.bandwidth))
    yield one("pcie", "PCIe bandwidth", now, ("pcie", "c2c"))
    memory = _each(specs, lambda s: _rate(s.cpu.memory.bandwidth) if s.cpu.memory else "")
    yield one("host_memory", "host memory bandwidth", memory, ("memory", "cpu"))
    if len(cluster.node_names) > 1:
        yield one("nic", "NIC bandwidth", _each(specs, _nics), ("network",))
        now = _each(specs, lambda s: _latency(s.nic.wire.latency) if s.nic else "")
        yield one("network_latency", "network latency", now, time=True)
    if cluster.fabric.trunk and len(cluster.node_names) > 1:
        ratio = cluster.fabric.spec.oversubscription / cluster.fabric.spec.uplinks
        yield one("uplinks", "uplinks of the switches", f"{ratio:.3g}:1", ("fabric",))
    elif not cluster.fabric.is_tree:
        now = f"{cluster.fabric.parts.trunk_cables:,} cables"
        yield one("uplinks", "links between switches", now, ("fabric",))


def _size(file: ScenarioFile) -> Iterator[Resource]:
    """Yield the nodes: the batch stays, and microbatches become as small as its share of a replica
    asks for.
    """
    training = file.workload.training
    nodes = file.cluster.nodes if file.cluster else None
    if training is None or not isinstance(nodes, int):
        return
    replicas, batch = training.parallel.dp, training.batch

    def divides(better: float) -> bool:
        return batch.global_ % (replicas * better) == 0

    def sets(better: float) -> tuple[str, ...] | None:
        many, dp = nodes * better, replicas * better
        if many != int(many) or dp != int(dp) or many < 1 or dp < 1:
            return None
        each = gcd(batch.micro, batch.global_ // int(dp)) if divides(better) else batch.micro
        smaller = (f"{MICRO}={each}",) if each != batch.micro else ()
        return f"cluster.nodes={int(many)}", f"workload.training.parallel.dp={int(dp)}", *smaller

    yield Resource("nodes", "nodes, for more replicas", "size", f"{nodes:,}", sets, offered=divides)


def _settings(file: ScenarioFile, where: str) -> Iterator[Resource]:
    training = file.workload.training
    if training is None:
        return
    micro = training.batch.micro
    path = "workload.training"

    def micros(better: float) -> tuple[str, ...] | None:
        whole = micro * better
        return (f"{path}.batch.micro={int(whole)}",) if whole >= 1 and whole == int(whole) else None

    yield Resource("micro", "sequences of a microbatch", "setting", f"{micro}", micros)
    data = training.data_parallel
    if training.parallel.dp == 1 or data.kind not in ("ddp", "zero") or data.stage == 3:
        return
    bucket = with_defaults(training, where=where)[0].data_parallel.bucket
    if not bucket:
        return

    def buckets(better: float) -> tuple[str, ...]:
        return (f"{path}.data_parallel.bucket={round(bucket * better)}B",)

    yield Resource("bucket", "bytes of a bucket", "setting", format_size(bucket), buckets)


def _each(specs: tuple[NodeSpec, ...], tell: Callable[[NodeSpec], str]) -> str:
    """Return what each kind of node has, once if they have the same."""
    return " | ".join(dict.fromkeys(told for spec in specs if (told := tell(spec))))


def _flops(spec: NodeSpec, peak: str) -> str:
    rate = spec.gpu.tflops.get(peak) or max(spec.gpu.tflops.values(), default=0.0)
    told = "" if peak == "bf16" else f" ({peak})"
    return f"{rate:,.4g} TFLOP/s{told}" if rate else ""


def _nvlink(spec: NodeSpec) -> str:
    wire = spec.switch or spec.nvlink
    return "" if wire is None else f"{_rate(wire.bandwidth)}{'' if spec.switch else ' a link'}"


def _nics(spec: NodeSpec) -> str:
    return "" if spec.nic is None else f"{spec.nic.count} x {_rate(spec.nic.wire.bandwidth)}"


def _rate(bandwidth: float) -> str:
    return format_bandwidth(bandwidth) if bandwidth else ""


def _latency(picoseconds: int) -> str:
    return format_time(picoseconds) if picoseconds < PS_PER_SECOND else ""
