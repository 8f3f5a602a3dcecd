"""
The ops of a graph under construction: a row each, turned into columns when all are there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from commsim.errors import ScenarioError
from commsim.graph.table import Device, OpKind, Phase, op_columns
from commsim.limits import BYTES_PER_OP, check_size, most

__all__ = ["Dependency", "OpRows", "Tags"]

Dependency = int | tuple[int, int]
"""An op to wait for, or (op, delay in ps)."""


class Tags(NamedTuple):
    """Where an op belongs in a training step; -1 if it does not apply."""

    phase: Phase = Phase.NONE
    step: int = -1
    microbatch: int = -1
    stage: int = -1
    layer: int = -1


class OpRows:
    """Ops with their dependencies; `names` and `streams` number the texts that they use."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.streams: dict[str, int] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._deps: list[list[tuple[int, int]]] = []
        self._most = most(BYTES_PER_OP)

    def add(
        self,
        kind: OpKind,
        lane: int,
        stream: str,
        name: str,
        after: Iterable[Dependency],
        tags: Tags,
        device: Device,
        *,
        duration: int = -1,
        flops: float = -1.0,
        traffic: float = -1.0,
        size: int = -1,
        item: int = -1,
        alloc: int = 0,
        free: int = 0,
        batch: int = -1,
    ) -> int:
        """Add an op; return its id. Times in ps, sizes in bytes; -1 is unknown."""
        self._rows.append(
            (
                kind,
                lane,
                self.streams.setdefault(stream, len(self.streams)),
                self.names.setdefault(name, len(self.names)),
                duration,
                flops,
                traffic,
                size,
                item,
                device,
                alloc,
                free,
                *tags,
                batch,
            )
        )
        self._deps.append([d if isinstance(d, tuple) else (d, 0) for d in after])
        if len(self._rows) > self._most:
            check_size(
                len(self._rows), BYTES_PER_OP, f"the work: {len(self._rows):,} operations so far",
                "Let equal ranks fold (engine.fold: auto), or take fewer microbatches, layers or"
                " ranks: a steady state repeats.",
            )  # fmt: skip
        return len(self._rows) - 1

    def depend(self, op: int, on: int, delay: int) -> None:
        """Let `op` wait until `delay` ps after `on` has ended."""
        self._deps[op].append((on, delay))

    def columns(self) -> dict[str, Any]:
        """Return the columns of all ops, and of their dependencies as CSR."""
        rows = dict(zip(_ROW, zip(*self._rows, strict=True), strict=True)) if self._rows else {}
        columns = {column: _column(column, rows.get(column, ())) for column in op_columns()}
        flat = [dep for deps in self._deps for dep in deps]
        counts = [len(deps) for deps in self._deps]
        return columns | {
            "dep_ptr": np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            "dep_op": np.array([op for op, _ in flat], dtype=np.int64),
            "dep_delay": np.array([delay for _, delay in flat], dtype=np.int64),
        }


def _column(name: str, values: Iterable[Any]) -> npt.NDArray[Any]:
    try:
        return np.array(values, dtype=_DTYPES.get(name, np.int64))
    except OverflowError:
        raise ScenarioError(
            f"the work: the {name} of an operation is more than commsim can hold (2^63). Give"
            " smaller sizes or times."
        ) from None


_ROW = (
    "kind", "lane", "stream", "name",
    "duration", "flops", "traffic", "size", "item", "device", "alloc", "free",
    "phase", "step", "microbatch", "stage", "layer", "batch",
)  # fmt: skip
_DTYPES: dict[str, Any] = {
    "kind": np.uint8,
    "device": np.uint8,
    "phase": np.uint8,
    "flops": np.float64,
    "traffic": np.float64,
}
