"""What a workload builder returns: the graph, and what is known about it besides the graph."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from commsim.graph import Graph
from commsim.models import MemoryUse
from commsim.timeline import Timeline

__all__ = ["TrainingFacts", "Workload"]


class TrainingFacts(msgspec.Struct, frozen=True):
    """What one training step does, for MFU and tokens per second.

    `model_flops` counts forward and backward of the whole batch without recompute, by the
    named `flop_convention`. `rank_parameters` are what each rank holds (a tied embedding
    counts on both stages that hold it). `peak_flops` is the dense peak of one GPU at the
    precision in use in FLOP/s, the mean if GPUs differ. `hardware_flops` also counts what
    recomputing does again.

    Memory: what a rank of each pipeline device holds all through a step (`resident`, without
    activations), the device of each rank, and the bytes that its GPU has. `staged`: the devices
    are stages of a pipeline.
    """

    model_flops: float
    hardware_flops: float
    flop_convention: str
    tokens: int
    parameters: int
    rank_parameters: tuple[int, ...]
    peak_flops: float
    resident: tuple[MemoryUse, ...]
    device_of_rank: tuple[int, ...]
    capacity_of_rank: tuple[int, ...]
    staged: bool


class Workload(msgspec.Struct, frozen=True):
    """A graph to simulate. `notes` say which defaults were used and what is left out.

    Where folding was asked for, `graph` is the coarsest fold by what ranks do. `afterwards` says
    what only the run can tell, in notes.
    """

    kind: str
    graph: Graph
    notes: tuple[str, ...] = ()
    training: TrainingFacts | None = None
    afterwards: Callable[[Timeline], tuple[str, ...]] | None = None
