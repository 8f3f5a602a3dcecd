"""
Bench: one collective at a time over a range of sizes, in nccl-tests' own terms.

Each row is one run of the engine on a graph of one op. Where two algorithms change places
between two sizes, the size at which they do is found by bisection to 1 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from commsim.cluster import Cluster
from commsim.collectives import algorithms_for, bus_factor
from commsim.engine import simulate
from commsim.errors import ScenarioError, did_you_mean
from commsim.graph import Graph, GraphBuilder
from commsim.libraries import Library, LibrarySection, Request, make_library
from commsim.study.files import write_json
from commsim.study.nccl_tests import Shape, check_names, shape_of
from commsim.units import PS_PER_SECOND, format_size, parse_nccl_size

__all__ = ["BenchResult", "BenchRow", "Crossover", "bench"]

_PRECISION = 1.01  # crossovers are located to 1 %


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One line of nccl-tests, with what was chosen. Sizes in bytes, bandwidths in 1e9 bytes/s."""

    op: str
    size: int
    count: int
    type: str
    redop: str
    root: int
    time_us: float
    algbw_gbs: float | None
    busbw_gbs: float | None
    algo: str
    proto: str | None = None
    nchannels: int | None = None
    selection_us: float | None = None
    bound_us: float | None = None
    bound_kind: str | None = None


@dataclass(frozen=True, slots=True)
class Crossover:
    """From `size` bytes on, algorithm `to` is faster than `before`."""

    op: str
    size: int
    before: str
    to: str

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the JSON's crossovers."""
        return {"op": self.op, "size": self.size, "from": self.before, "to": self.to}


@dataclass(frozen=True, slots=True)
class BenchResult:
    """The rows of a bench in the order of ops, sizes, algorithms; and where the best changes."""

    system: dict[str, Any]
    results: tuple[BenchRow, ...]
    crossovers: tuple[Crossover, ...]
    notes: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        ops = ", ".join(dict.fromkeys(row.op for row in self.results))
        return f"BenchResult({ops} on {self.system['cluster']}, {len(self.results)} rows)"

    def _repr_html_(self) -> str:
        return f"<code>{self!r}</code>"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of `commsim bench`."""
        return {
            "schema": 1,
            "system": self.system,
            "results": [asdict(row) for row in self.results],
            "crossovers": [crossover.to_dict() for crossover in self.crossovers],
            "notes": list(self.notes),
        }

    def fastest(self) -> dict[tuple[str, int], BenchRow]:
        """Return the fastest row of each (op, size); the first of equals."""
        best: dict[tuple[str, int], BenchRow] = {}
        for row in self.results:
            kept = best.setdefault((row.op, row.size), row)
            if row.time_us < kept.time_us:
                best[row.op, row.size] = row
        return best

    def save_json(self, path: str | Path) -> None:
        """Write `to_dict` to a file."""
        write_json(self.to_dict(), Path(path))


def bench(
    cluster: Cluster,
    ops: str | Iterable[str],
    sizes: str | int | Iterable[str | int],
    *,
    algo: str | Iterable[str] = "auto",
    library: LibrarySection | str = "ideal",
    network: str = "fluid",
    dtype: str = "float",
    gpus_per_node: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Time collectives over all GPUs of a cluster, or over the first few of each node.

    `sizes` are bytes or text like "64MiB" (nccl-tests' 64M too). `algo` is "auto" (the
    library's choice), "all", or names; an op takes those among them that it has.

    Raises:
        ScenarioError: an unknown op, algorithm, library or type, or nothing to time.
    """
    names, lengths = _listed(ops), [_bytes(size) for size in _listed(sizes)]
    check_names(names, dtype)
    section = LibrarySection(name=library) if isinstance(library, str) else library
    algorithms = _algorithms(names, _listed(algo), section)
    ranks = _ranks(cluster, gpus_per_node)
    timer = _Timer(cluster, ranks, section, network, dtype)
    rows: list[BenchRow] = []
    crossovers: list[Crossover] = []
    notes: list[str] = []
    for op in names:
        progress(op)
        shapes = _shapes(op, lengths, dtype, len(ranks))
        if not shapes:
            raise ScenarioError(
                f"{op} over {len(ranks)} ranks: nothing is left of the sizes asked for, as every"
                f" rank's block is a multiple of 16 bytes. Go up to {format_size(16 * len(ranks))}"
                " at least."
            )
        if shapes[-1].size != max(lengths) or len(shapes) != len(lengths):
            notes.append(
                f"{op}: sizes are rounded as nccl-tests does; those left empty are skipped"
            )
        rows += [timer.row(op, shape, name) for shape in shapes for name in algorithms[op]]
        crossovers += _crossovers(op, shapes, algorithms[op], timer)
    system = {
        "cluster": cluster.name,
        "gpus": len(ranks),
        "nodes": len({int(cluster.node_of[rank]) for rank in ranks}),
        "library": section.name,
        "network": network,
    }
    return BenchResult(system, tuple(rows), tuple(crossovers), tuple(notes))


class _Timer:
    """Times one op of one size by one algorithm; every answer is kept."""

    def __init__(
        self,
        cluster: Cluster,
        ranks: Sequence[int],
        section: LibrarySection,
        network: str,
        dtype: str,
    ) -> None:
        self._cluster, self._ranks, self._section = cluster, tuple(ranks), section
        self._network, self._dtype = network, dtype
        self._libraries: dict[str, Library] = {}
        self._known: dict[tuple[str, int, str], int] = {}

    def picoseconds(self, op: str, size: int, algo: str) -> int:
        """Return the simulated time of the op, all ranks arriving at once."""
        key = (op, size, algo)
        if key not in self._known:
            graph = _graph(op, size, self._ranks)
            timeline = simulate(
                graph, self._cluster, library=self._library(algo), network=self._network
            )
            self._known[key] = timeline.end_time
        return self._known[key]

    def fastest(self, op: str, size: int, algorithms: Sequence[str]) -> str:
        """Return the fastest algorithm; the first of equals."""
        return min(algorithms, key=lambda algo: self.picoseconds(op, size, algo))

    def row(self, op: str, shape: Shape, algo: str) -> BenchRow:
        """Return the line for one op, size and algorithm."""
        time = self.picoseconds(op, shape.size, algo)
        rate = shape.size / time * PS_PER_SECOND / 1e9 if time else None
        factor = 1.0 if op == "send_recv" else bus_factor(op, len(self._ranks))
        chosen, channels = self._plan(op, shape, algo)
        return BenchRow(
            op=op, size=shape.size, count=shape.count, type=self._dtype, redop=shape.redop,
            root=shape.root, time_us=time / 1e6, algbw_gbs=rate,
            busbw_gbs=None if rate is None else rate * factor, algo=chosen, nchannels=channels,
        )  # fmt: skip

    def _plan(self, op: str, shape: Shape, algo: str) -> tuple[str, int]:
        """Return the algorithm and the channels that the library took."""
        ranks = self._ranks[:2] if op == "send_recv" else self._ranks
        plan = self._library(algo).plan(
            Request(op, shape.size, ranks, root=shape.root), self._cluster
        )
        return plan.algorithm, plan.channels

    def _library(self, algo: str) -> Library:
        if algo not in self._libraries:
            named = None if algo == "auto" else algo
            self._libraries[algo] = make_library(
                msgspec.structs.replace(self._section, algo=named) if named else self._section
            )
        return self._libraries[algo]


def _graph(op: str, size: int, ranks: Sequence[int]) -> Graph:
    """Return one op of all ranks; send_recv as nccl-tests does it, to the next rank."""
    build = GraphBuilder()
    lanes = [build.lane(rank) for rank in ranks]
    world = build.group("world", ranks)
    root = ranks[0] if shape_of(op, size, dtype="int8", ranks=1).root >= 0 else -1
    for i, lane in enumerate(lanes):
        if op != "send_recv":
            build.collective(lane, world, op, size, stream="comm", root=root)
            continue
        batch = build.batch()
        after, before = ranks[(i + 1) % len(ranks)], ranks[i - 1]
        build.send(lane, after, size, group=world, stream="comm", batch=batch)
        build.recv(lane, before, size, group=world, stream="comm", batch=batch)
    return build.build()


def _crossovers(
    op: str, shapes: Sequence[Shape], algorithms: Sequence[str], timer: _Timer
) -> list[Crossover]:
    """Return where the fastest algorithm changes between neighbouring sizes."""
    found: list[Crossover] = []
    for left, right in zip(shapes, shapes[1:], strict=False):
        low = left.size
        while (best := timer.fastest(op, low, algorithms)) != timer.fastest(
            op, right.size, algorithms
        ):
            low = _change(op, low, right.size, algorithms, timer)
            found.append(Crossover(op, low, best, timer.fastest(op, low, algorithms)))
    return found


def _change(op: str, low: int, high: int, algorithms: Sequence[str], timer: _Timer) -> int:
    """Return a size above `low`, to 1 %, at which what is fastest there no longer is."""
    best = timer.fastest(op, low, algorithms)
    while high > low * _PRECISION and high - low > 1:
        middle = min(max(round((low * high) ** 0.5), low + 1), high - 1)
        if timer.fastest(op, middle, algorithms) == best:
            low = middle
        else:
            high = middle
    return high


def _algorithms(
    ops: Sequence[str], asked: Sequence[str], section: LibrarySection
) -> dict[str, list[str]]:
    """Return for each op the algorithms to time, in the order asked for."""
    have = {op: [] if op == "send_recv" else list(algorithms_for(op)) for op in ops}
    known = list(dict.fromkeys(name for names in have.values() for name in names))
    if list(asked) == ["auto"]:
        return {op: ["auto"] for op in ops}
    if list(asked) == ["all"]:
        return {op: names or ["auto"] for op, names in have.items()}
    for name in asked:
        if name not in known:
            raise ScenarioError(
                f"--algo {name}: {section.name} has no such algorithm for {', '.join(ops)}."
                f"{did_you_mean(name, known)} Known: {', '.join(known) or 'none'}, auto, all."
            )
    chosen = {op: [name for name in dict.fromkeys(asked) if name in have[op]] for op in ops}
    for op, names in chosen.items():
        if not names:
            raise ScenarioError(
                f"--algo {','.join(asked)}: {op} has none of these."
                f" It has: {', '.join(have[op]) or 'no choice; use auto'}."
            )
    return chosen


def _shapes(op: str, sizes: Iterable[int], dtype: str, ranks: int) -> list[Shape]:
    shapes = {shape_of(op, size, dtype=dtype, ranks=ranks): None for size in sorted(sizes)}
    return [shape for shape in shapes if shape.size > 0]


def _ranks(cluster: Cluster, gpus_per_node: int | None) -> list[int]:
    """Return the first `gpus_per_node` GPUs of each node, or all."""
    ranks = list(range(cluster.world_size))
    if gpus_per_node is not None:
        most = 1 + max(int(cluster.local_of[rank]) for rank in ranks)
        if not 1 <= gpus_per_node <= most:
            raise ScenarioError(
                f"--gpus-per-node {gpus_per_node}: a node of {cluster.name} has {most} GPUs."
            )
        ranks = [rank for rank in ranks if cluster.local_of[rank] < gpus_per_node]
    if len(ranks) < 2:
        raise ScenarioError(f"{cluster.name}: a bench needs two GPUs or more, not {len(ranks)}.")
    return ranks


def _listed(values: Any) -> list[Any]:
    """Return "a,b" or one value or several as a list."""
    if isinstance(values, str):
        return [word.strip() for word in values.split(",") if word.strip()]
    return list(values) if isinstance(values, Iterable) else [values]


def _bytes(size: str | int) -> int:
    value = parse_nccl_size(size) if isinstance(size, str) else size
    if value < 0:
        raise ScenarioError(f"{size} bytes: a size must not be negative.")
    return value
