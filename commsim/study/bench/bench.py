"""
Bench: one collective at a time over a range of sizes, in nccl-tests' own terms.

Beside the rows it says where the fastest algorithm changes, and where the library's choice does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from commsim.cluster import Cluster
from commsim.collectives import is_msccl_file
from commsim.errors import ScenarioError
from commsim.files import write_json
from commsim.follow import Follow, unfollowed
from commsim.libraries import LibrarySection, usual_library
from commsim.metrics import bound
from commsim.ops import bus_factor
from commsim.sections import Section, decode
from commsim.study.bench.backend import AUTO, Backend, SimulatedBackend
from commsim.study.bench.crossovers import Crossover, choice_changes, fastest_changes
from commsim.study.bench.nccl_tests import BenchedShape, check_names, op_of, shape_of
from commsim.study.bench.verdicts import Timed, verdicts
from commsim.study.run import too_fast
from commsim.units import MOST_BYTES, PS_PER_SECOND, format_size, parse_nccl_size

__all__ = ["BenchResult", "BenchRow", "Crossover", "bench", "bench_seconds"]


class _Asked(Section, frozen=True):
    library: LibrarySection


class BenchRow(msgspec.Struct, frozen=True):
    """One line of nccl-tests, with what ran. Sizes in bytes, bandwidths in 1e9 bytes/s.

    `selection_us` is what NCCL's own tuning model computed; `chosen`: the library would choose
    this. `bound_by_gpus_us` is the least time with sums made by GPUs, `bound_in_network_us` with
    switches that add up and multicast; `bound_us` is the one of the two that holds for `algo`.
    """

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
    bound_by_gpus_us: float | None = None
    bound_in_network_us: float | None = None
    chosen: bool = False


class BenchResult(msgspec.Struct, frozen=True):
    """The rows of a bench in the order of ops, sizes, algorithms.

    `crossovers`: where the fastest algorithm changes; `choices`: where the library's choice does.
    """

    system: dict[str, Any]
    results: tuple[BenchRow, ...]
    crossovers: tuple[Crossover, ...]
    choices: tuple[Crossover, ...] = ()
    notes: tuple[str, ...] = msgspec.field(default=())

    def __repr__(self) -> str:
        ops = ", ".join(dict.fromkeys(row.op for row in self.results))
        return f"BenchResult({ops} on {self.system['cluster']}, {len(self.results)} rows)"

    def _repr_html_(self) -> str:
        from commsim.charts.figures import bench_html

        return bench_html(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of `commsim bench`."""
        return {
            "schema": 1,
            "system": self.system,
            "results": [msgspec.structs.asdict(row) for row in self.results],
            "crossovers": [crossover.to_dict() for crossover in self.crossovers],
            "choices": [change.to_dict() for change in self.choices],
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

    def verdicts(self) -> list[str]:
        """Say which algorithm is fastest at all sizes, and which at none."""
        return verdicts([Timed(r.op, r.size, r.algo, r.time_us) for r in self.results])

    def save_json(self, path: str | Path) -> None:
        """Write `to_dict` to a file."""
        write_json(self.to_dict(), Path(path))


def bench(
    cluster: Cluster,
    ops: str | Iterable[str],
    sizes: str | int | Iterable[str | int],
    *,
    algo: str | Iterable[str] = "auto",
    proto: str | Iterable[str] = "auto",
    library: LibrarySection | Mapping[str, Any] | str = "auto",
    network: str = "fluid",
    dtype: str = "float",
    gpus_per_node: int | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
    follow: Follow = unfollowed,
) -> BenchResult:
    """Time collectives over all GPUs of a cluster, or over the first few of each node.

    `sizes` are bytes or text like "64MiB" (nccl-tests' 64M too). `algo` is "auto" (the
    library's choice), "all", or names; an op takes those among them that it has. `progress` hears
    how many of how many times (each of an op, an algorithm and a size) are known, `follow` is given
    a function that says which share of a simulation is done that finds the next.

    Raises:
        ScenarioError: an unknown op, algorithm, library or type, or nothing to time.
    """
    names = list(dict.fromkeys(op_of(_text(name, "op")) for name in _listed(ops, "op")))
    lengths = [_bytes(size) for size in _listed(sizes, "size")]
    check_names(names, dtype)
    section = _section(cluster, library)
    ranks = _ranks(cluster, gpus_per_node)
    files = all(is_msccl_file(name) for name in _listed(algo, "algo"))
    backend = _backend(
        cluster, ranks, section, network=network, dtype=dtype, files=files, follow=follow
    )
    names_of = {
        op: backend.algorithms(op, _listed(algo, "algo"), _listed(proto, "proto")) for op in names
    }
    rows: list[BenchRow] = []
    crossovers: list[Crossover] = []
    choices: list[Crossover] = []
    notes: list[str] = []
    ticks = count(1)
    of = len(lengths) * sum(map(len, names_of.values()))
    progress(0, of)
    for op in names:
        shapes = _shapes(op, lengths, dtype, len(ranks))
        if not shapes:
            raise ScenarioError(
                f"{op} over {len(ranks)} ranks: nothing is left of the sizes asked for, as every"
                f" rank's block is a multiple of 16 bytes. Go up to {format_size(16 * len(ranks))}"
                " at least."
            )
        if [shape.size for shape in shapes] != sorted(set(lengths)):
            notes.append(
                f"{op}: sizes are rounded as nccl-tests does; those left empty are skipped"
            )
        table = _BenchTable(backend, cluster, ranks, op, dtype)
        table.fill(
            names_of[op],
            [shape.size for shape in shapes],
            lambda: progress(min(next(ticks), of), of),
        )
        rows += [table.row(shape, name) for shape in shapes for name in names_of[op]]
        notes += table.notes
        crossovers += table.crossovers(shapes, names_of[op])
        choices += table.choices(shapes, names_of[op])
    notes += backend.notes
    system = {
        "cluster": cluster.name,
        "gpus": len(ranks),
        "nodes": len({int(cluster.node_of[rank]) for rank in ranks}),
        "library": section.name,
        "version": backend.version,
        "network": network,
        "launch": section.get("launch"),
    }
    return BenchResult(
        system, tuple(rows), tuple(crossovers), tuple(choices), tuple(dict.fromkeys(notes))
    )


def bench_seconds(
    cluster: Cluster,
    op: str,
    sizes: Iterable[int],
    *,
    library: LibrarySection | str = "auto",
    dtype: str = "float",
    gpus_per_node: int | None = None,
) -> dict[int, float]:
    """Return the seconds of the library's own choice alone, by size as nccl-tests rounds it.

    Raises:
        ScenarioError: an unknown op, library or type.
    """
    op = op_of(op)
    check_names([op], dtype)
    section, ranks = _section(cluster, library), _ranks(cluster, gpus_per_node)
    backend = _backend(cluster, ranks, section, network="fluid", dtype=dtype, files=False)
    (name,) = backend.algorithms(op, [AUTO], [AUTO])
    lengths = [shape.size for shape in _shapes(op, sizes, dtype, len(ranks))]
    times = backend.picoseconds(op, lengths, name)
    return {size: time / PS_PER_SECOND for size, time in zip(lengths, times, strict=True)}


def _section(cluster: Cluster, library: LibrarySection | Mapping[str, Any] | str) -> LibrarySection:
    """Return the library of a bench; "auto" is the usual one of a cluster."""
    given = {"name": library} if isinstance(library, str) else library
    section = decode({"library": given}, _Asked, "bench").library
    return section.having(name=usual_library(cluster)) if section.name == "auto" else section


def _backend(
    cluster: Cluster,
    ranks: Sequence[int],
    section: LibrarySection,
    *,
    network: str,
    dtype: str,
    files: bool,
    follow: Follow = unfollowed,
) -> Backend:
    """Return who runs; algorithms from files are run by the engine, whatever the library."""
    if section.name == "nccl" and network in ("fluid", "steps") and not files:
        from commsim.study.bench.nccl import NcclBackend, NcclStepsBackend

        if network == "fluid":
            return NcclBackend(cluster, ranks, section, dtype=dtype)
        return NcclStepsBackend(cluster, ranks, section, dtype=dtype, follow=follow)
    return SimulatedBackend(cluster, ranks, section, network=network, dtype=dtype, follow=follow)


class _BenchTable:
    """Rows of one op: every algorithm at every size, and the bound of each size."""

    def __init__(
        self, backend: Backend, cluster: Cluster, ranks: Sequence[int], op: str, dtype: str
    ) -> None:
        self._backend, self._cluster, self._ranks = backend, cluster, ranks
        self._op, self._dtype = op, dtype
        self._known: dict[tuple[str, int], int] = {}
        self.notes: dict[str, None] = {}

    def fill(self, names: Sequence[str], sizes: Sequence[int], tick: Callable[[], None]) -> None:
        """Time all algorithms at all sizes; `tick` is called for each."""
        for name in names:
            times = self._backend.picoseconds(self._op, sizes, name, tick)
            self._known.update(zip(((name, size) for size in sizes), times, strict=True))

    def time(self, name: str, size: int) -> int:
        """Return the ps of one algorithm at one size."""
        key = (name, size)
        if key not in self._known:
            self._known[key] = self._backend.picoseconds(self._op, [size], name)[0]
        return self._known[key]

    def row(self, shape: BenchedShape, name: str) -> BenchRow:
        """Return the line for one size and algorithm."""
        time = self.time(name, shape.size)
        rate = shape.size / time * PS_PER_SECOND / 1e9 if time else None
        factor = 1.0 if self._op == "send_recv" else bus_factor(self._op, len(self._ranks))
        facts = self._backend.facts(self._op, shape.size, name)
        plain, added = (
            bound(
                self._cluster,
                self._op,
                shape.size,
                self._ranks,
                in_network=in_network,
                root=max(shape.root, 0),
                repeated=self._backend.repeated,
                on_host=self._backend.on_host,
            )
            for in_network in (False, True)
        )
        least = added if facts.in_network else plain
        ranks = tuple(self._ranks)
        remarks = too_fast(self._op, shape.size, ranks, time, least, self._cluster)
        self.notes.update(dict.fromkeys(remarks))
        return BenchRow(
            op=self._op,
            size=shape.size,
            count=shape.count,
            type=self._dtype,
            redop=shape.redop,
            root=shape.root,
            time_us=time / 1e6,
            algbw_gbs=rate,
            busbw_gbs=None if rate is None else rate * factor,
            algo=facts.algo,
            proto=facts.proto,
            nchannels=facts.channels,
            selection_us=facts.selection_us,
            bound_us=least.seconds * 1e6,
            bound_kind=least.kind,
            bound_by_gpus_us=plain.seconds * 1e6,
            bound_in_network_us=added.seconds * 1e6,
            chosen=facts.chosen,
        )

    def crossovers(self, shapes: Sequence[BenchedShape], names: Sequence[str]) -> list[Crossover]:
        """Return where the fastest of some algorithms changes."""
        return fastest_changes(self._op, [shape.size for shape in shapes], names, self.time)

    def choices(self, shapes: Sequence[BenchedShape], names: Sequence[str]) -> list[Crossover]:
        """Return where the library's own choice changes, if it is among what is timed."""
        sizes = [shape.size for shape in shapes]
        if not any(self._backend.facts(self._op, sizes[-1], name).chosen for name in names):
            return []
        return choice_changes(self._op, sizes, self._choice)

    def _choice(self, size: int) -> str:
        facts = self._backend.facts(self._op, size, AUTO)
        return " ".join(filter(None, (facts.algo, facts.proto)))


def _shapes(op: str, sizes: Iterable[int], dtype: str, ranks: int) -> list[BenchedShape]:
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


def _listed(values: Any, what: str) -> list[Any]:
    """Return "a,b" or one value or several as a list."""
    if isinstance(values, str):
        found = [word.strip() for word in values.split(",") if word.strip()]
    else:
        found = list(values) if isinstance(values, Iterable) else [values]
    if not found:
        raise ScenarioError(f"{values!r} names no {what}. Give one or several, with commas.")
    return found


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise ScenarioError(f"{what}: {value!r} is not text. Give its name, like 'all_reduce'.")
    return value


def _bytes(size: Any) -> int:
    if isinstance(size, str):
        return parse_nccl_size(size)
    try:
        value = operator.index(size)  # any whole number, numpy's too
    except TypeError:
        raise ScenarioError(
            f"{size!r} is not a size. Give whole bytes, or text like '64MiB'."
        ) from None
    if not 0 <= value <= MOST_BYTES:
        raise ScenarioError(f"{value} bytes: a size is from 0 to 4 EiB.")
    return value
