"""
Every layout that `advise` tries: degrees, sharding, schedule, microbatch, recompute, TP overlap.

Degrees are all factorizations of the cluster's GPUs. Sharding: none (DDP), ZeRO-1, ZeRO-2, FSDP
(which is ZeRO-3), and HSDP with a copy per node. One rule of thumb applies: context parallelism
never cuts a sequence into blocks of less than `LEAST_BLOCK` tokens. Layouts that the model's shape,
the batch or the memory forbid drop out; the step time decides among the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import msgspec

from commsim.models import Recompute
from commsim.workload.training import (
    BatchSection,
    DataParallelSection,
    ParallelSection,
    TrainingSection,
)

__all__ = [
    "LEAST_BLOCK",
    "Candidate",
    "Degrees",
    "candidate_of",
    "degrees_of",
    "relaxed",
    "section_of",
    "shapes",
    "shardings",
    "variants_of",
]

LEAST_BLOCK = 256
"""Tokens per rank: below two tiles of 128 of a flash-attention kernel there is nothing to hide a
ring's messages behind."""
_MICRO = (1, 2, 4, 8, 16, 32, 64)
_VIRTUAL = (2, 4)
_FLAT = ("gpipe", "1f1b", "zb_h1")
_SHARDED = {0: "ddp", 1: "zero-1", 2: "zero-2", 3: "fsdp"}
_KEPT = ("context", "expert_skew", "order")
_OVERLAPS = ("none", "weight", "ring")
"""The kinds of `tp_overlap` that are searched: those that software does. None hides all of it."""


class Degrees(NamedTuple):
    """The degree of each axis; their product without `ep` is the cluster."""

    dp: int
    tp: int
    pp: int
    cp: int
    ep: int


class Candidate(NamedTuple):
    """One layout. `shard`: ddp, zero-1, zero-2, fsdp, or the ranks of an HSDP group as hsdp-N.

    `overlap` is the section's `tp_overlap`.
    """

    degrees: Degrees
    schedule: str
    virtual: int
    micro: int
    recompute: Recompute
    shard: str
    overlap: str = "none"

    @property
    def name(self) -> str:
        """The layout in one line: "dp 8 · tp 4 · pp 2 · zero-1 · 1f1b · micro 1"."""
        words = [f"{axis} {n}" for axis, n in self.degrees._asdict().items() if n > 1]
        if self.overlap != "none":
            words.append(f"tp overlap {self.overlap}")
        if self.shard != "ddp" or self.degrees.dp * self.degrees.cp > 1:
            words.append(self.shard)
        if self.degrees.pp > 1:
            words.append(self.schedule + (f" v{self.virtual}" if self.virtual > 1 else ""))
        words.append(f"micro {self.micro}")
        if self.recompute != "none":
            how = self.recompute
            words.append(f"recompute {how if isinstance(how, str) else '+'.join(how)}")
        return " · ".join(words)


def degrees_of(world: int, *, experts: bool, seq: int) -> Iterator[Degrees]:
    """Yield all degrees whose product is `world`; with experts, ep divides dp x cp.

    `seq` tokens of a sequence are cut into blocks of `LEAST_BLOCK` or more.
    """
    for tp in _divisors(world):
        for pp in _divisors(world // tp):
            for cp in _divisors(world // tp // pp):
                if cp > 1 and seq < cp * LEAST_BLOCK:
                    continue
                dp = world // tp // pp // cp
                for ep in _divisors(dp * cp) if experts else [1]:
                    yield Degrees(dp, tp, pp, cp, ep)


def shapes(degrees: Degrees, section: TrainingSection) -> Iterator[Candidate]:
    """Yield what can run on `degrees`: schedules and microbatches, each `relaxed`."""
    layers_each = _VIRTUAL if degrees.pp > 1 else ()
    schedules = [(name, 1) for name in (_FLAT if degrees.pp > 1 else ("1f1b",))]
    schedules += [("interleaved_1f1b", virtual) for virtual in layers_each]
    per_replica, left = divmod(section.batch.global_, degrees.dp)
    if left or not per_replica:
        return
    for micro in _MICRO:
        if per_replica % micro:
            continue
        for schedule, virtual in schedules:
            if virtual > 1 and per_replica // micro % degrees.pp:
                continue  # Megatron's order needs whole rounds of microbatches
            yield relaxed(Candidate(degrees, schedule, virtual, micro, "none", "ddp"))


def relaxed(shape: Candidate) -> Candidate:
    """Return a layout that takes no longer: nothing recomputed, all of tp's collectives hidden."""
    hidden = "full" if shape.degrees.tp > 1 else "none"
    return shape._replace(recompute="none", overlap=hidden)


def variants_of(shape: Candidate, recomputes: tuple[str, ...]) -> Iterator[Candidate]:
    """Yield the layouts that differ from `shape` in what is recomputed and overlapped."""
    for recompute in recomputes:
        for overlap in _OVERLAPS if shape.degrees.tp > 1 else ("none",):
            yield shape._replace(recompute=cast(Any, recompute), overlap=overlap)


def shardings(degrees: Degrees, *, node: int) -> list[str]:
    """Return how the replicas of `degrees` may divide what they hold; `node`: GPUs of one."""
    replicas = degrees.dp * degrees.cp
    if replicas == 1:
        return ["ddp"]
    found = list(_SHARDED.values())
    inside = node // min(degrees.tp, node)
    if 1 < inside < replicas and replicas % inside == 0 and degrees.ep == 1:
        found.append(f"hsdp-{inside}")
    return found


def candidate_of(section: TrainingSection) -> Candidate | None:
    """Return the layout that a scenario describes; None if `advise` would not try its kind."""
    parallel, data = section.parallel, section.data_parallel
    shard = {
        "ddp": "ddp",
        "fsdp": "fsdp",
        "hsdp": f"hsdp-{data.shard}",
        "zero": _SHARDED[data.stage or 0],
    }.get(data.kind)
    if shard is None or data.offload:
        return None
    degrees = Degrees(parallel.dp, parallel.tp, parallel.pp, parallel.cp, parallel.ep)
    schedule = parallel.schedule if parallel.pp > 1 else "1f1b"
    return Candidate(
        degrees,
        schedule,
        parallel.virtual_stages,
        section.batch.micro,
        section.recompute,
        shard,
        parallel.tp_overlap or "none",
    )


def section_of(candidate: Candidate, section: TrainingSection) -> TrainingSection:
    """Return the scenario's training section with the layout of `candidate`.

    What the scenario says besides the layout stays: overlap, context, bucket sizes, precision.
    Tensor parallelism comes with sequence parallelism.
    """
    dp, tp, pp, cp, ep = candidate.degrees
    kept: dict[str, Any] = {name: getattr(section.parallel, name) for name in _KEPT}
    unused = ParallelSection()
    for name, axis in (("context", cp), ("expert_skew", ep)):
        if axis == 1:
            kept[name] = getattr(unused, name)
    return msgspec.structs.replace(
        section,
        parallel=ParallelSection(
            dp=dp,
            tp=tp,
            pp=pp,
            cp=cp,
            ep=ep,
            sequence_parallel=tp > 1,
            schedule=candidate.schedule,
            virtual_stages=candidate.virtual,
            tp_overlap=cast(Any, candidate.overlap) if tp > 1 else None,
            **kept,
        ),
        data_parallel=_data_parallel(candidate.shard, section.data_parallel),
        batch=BatchSection(global_=section.batch.global_, micro=candidate.micro),
        recompute=candidate.recompute,
        recompute_every=None,
        recompute_first=None,
    )


def _data_parallel(shard: str, given: DataParallelSection) -> DataParallelSection:
    """Return the section of a way to shard, with the buckets and widths that were given."""
    made: dict[str, Any] = {"gradients": given.gradients}
    if shard.startswith("hsdp"):
        made |= {"kind": "hsdp", "shard": int(shard.partition("-")[2])}
    elif shard == "fsdp":
        made |= {"kind": "fsdp"}
    else:
        made |= {"bucket": given.bucket, "first_bucket": given.first_bucket}
        made |= {"kind": "ddp"} if shard == "ddp" else {"kind": "zero", "stage": int(shard[-1])}
    return DataParallelSection(**made)


def _divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]
