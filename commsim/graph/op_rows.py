"""
The ops of a graph under construction: a row each, turned into columns when all are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from commsim.errors import ScenarioError
from commsim.graph.table import Device, OpKind, Phase, op_columns
from commsim.limits import BYTES_PER_OP, check_size, most, op_bytes

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
        self._bulk: dict[str, Any] = {}
        self._before = 0  # ops that were added in bulk
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
        if self._before + len(self._rows) > self._most:
            self._check()
        return self._before + len(self._rows) - 1

    def add_computes(self, names: Iterable[str], stream: str, columns: Mapping[str, Any]) -> None:
        """Add work as columns, before all other ops; what is not among them is unknown or none.

        `columns` are those of a graph: `name` is an index into `names`, and `dep_ptr`, `dep_op`
        and `dep_delay` are among them.
        """
        if self._rows or self._before:
            raise ValueError("OpRows: ops in bulk come first, and once")
        self.names = {name: at for at, name in enumerate(names)}
        self._before = len(columns["name"])
        given = {
            "kind": OpKind.COMPUTE, "stream": self.streams.setdefault(stream, len(self.streams)),
            "device": Device.CUDA, "alloc": 0, "free": 0, "phase": Phase.NONE,
            **columns,
        }  # fmt: skip
        self._bulk = {
            column: np.broadcast_to(_column(column, given.get(column, -1)), self._before)
            for column in op_columns()
        } | {column: _column(column, given[column]) for column in _DEPS}

    def _check(self) -> None:
        """Refuse more ops than memory has room for, where they are run by what can run so many."""
        count = self._before + len(self._rows)
        each = op_bytes(count)
        if count > most(each):
            what = f"the work: {count:,} operations so far"
            check_size(count, each, what, self._less())
        self._most = most(each)

    def _less(self) -> str:
        """Return what there can be less of: what the ops so far have several of."""
        several = [
            names
            for column, (names, most) in _COUNTED.items()
            if any(row[_ROW.index(column)] > most for row in self._rows)
        ]
        fold = "Let equal ranks fold (engine.fold: auto). " * ("ranks" in several)
        return f"{fold}Take fewer {', or fewer '.join(several or ['operations'])}."

    def depend(self, op: int, on: int, delay: int) -> None:
        """Let `op` wait until `delay` ps after `on` has ended."""
        if op < self._before:
            raise ValueError("OpRows: what an op in bulk waits for comes with it")
        self._deps[op - self._before].append((on, delay))

    def columns(self) -> dict[str, Any]:
        """Return the columns of all ops, and of their dependencies as CSR."""
        rows = dict(zip(_ROW, zip(*self._rows, strict=True), strict=True)) if self._rows else {}
        columns = {column: _column(column, rows.get(column, ())) for column in op_columns()}
        flat = [dep for deps in self._deps for dep in deps]
        counts = [len(deps) for deps in self._deps]
        columns |= {
            "dep_ptr": np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            "dep_op": np.array([op for op, _ in flat], dtype=np.int64),
            "dep_delay": np.array([delay for _, delay in flat], dtype=np.int64),
        }
        if not self._before:
            return columns
        columns["dep_ptr"] = columns["dep_ptr"][1:] + self._bulk["dep_ptr"][-1]
        return {name: np.concatenate((self._bulk[name], columns[name])) for name in columns}


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
_COUNTED = {
    "step": ("steps", 1), "microbatch": ("microbatches", 0), "layer": ("layers", 0),
    "lane": ("ranks", 0),
}  # fmt: skip
"""What can be fewer: its name, and the highest number of what cannot (two steps are the least)."""
_DEPS = ("dep_ptr", "dep_op", "dep_delay")
_DTYPES: dict[str, Any] = {
    "kind": np.uint8,
    "device": np.uint8,
    "phase": np.uint8,
    "flops": np.float64,
    "traffic": np.float64,
}
