"""
The algorithms of a library side by side: which can run an op, and how long each takes.

A `Backend` answers for one library on one set of ranks. NCCL's works over arrays of sizes; the
others run the engine on a graph of one op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import numpy as np

from commsim.cluster import Cluster
from commsim.collectives import algorithms_for, is_msccl_file, is_switched, load_msccl
from commsim.engine import simulate
from commsim.errors import ScenarioError, did_you_mean
from commsim.follow import Follow, unfollowed
from commsim.graph import Graph, GraphBuilder
from commsim.libraries import Library, LibrarySection, Request, make_library, plan_of
from commsim.study.bench.nccl_tests import shape_of

__all__ = ["AUTO", "Backend", "RunFacts", "SimulatedBackend"]

AUTO = "auto"


class RunFacts(msgspec.Struct, frozen=True):
    """What ran: algorithm, protocol, channels, and what the library's own model computed.

    `in_network`: switches add up or multicast for it.
    """

    algo: str
    proto: str | None = None
    channels: int | None = None
    selection_us: float | None = None
    chosen: bool = False
    in_network: bool = False


class Backend(Protocol):
    """The algorithms of one library by name; `AUTO` is the library's own choice."""

    def algorithms(self, op: str, asked: Sequence[str], protos: Sequence[str]) -> list[str]:
        """Return the names to time among those asked for ("auto", "all" or names).

        Raises:
            ScenarioError: a name that is none, or none of them can run the op.
        """

    def picoseconds(
        self, op: str, sizes: Sequence[int], name: str, tick: Callable[[], None] = lambda: None
    ) -> list[int]:
        """Return the time of the op at each size; `tick` is called when one is known."""

    def facts(self, op: str, size: int, name: str) -> RunFacts:
        """Say what runs."""

    repeated: bool
    """Whether times are per iteration of a loop that does not wait for the last rank."""

    on_host: bool
    """Whether the data is in host memory: what joins GPUs does not bound it."""

    @property
    def version(self) -> str | None:
        """The release of the library whose rules are followed; None if it has none."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed or replaced."""


class SimulatedBackend:
    """Times one op by running the engine on it, which `follow` follows; every answer is kept."""

    repeated = False
    version: str | None = None

    def __init__(
        self,
        cluster: Cluster,
        ranks: Sequence[int],
        section: LibrarySection,
        *,
        network: str,
        dtype: str,
        follow: Follow = unfollowed,
    ) -> None:
        self._follow = follow
        self._cluster, self._ranks, self._section = cluster, tuple(ranks), section
        self._network, self._dtype = network, dtype
        self.on_host = section.name == "gloo"
        self._libraries: dict[str, Library] = {}
        self._known: dict[tuple[str, int, str], int] = {}
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What the plans and the engine said."""
        return tuple(self._notes)

    def algorithms(self, op: str, asked: Sequence[str], protos: Sequence[str]) -> list[str]:
        """Return the algorithms to time. See `Backend`."""
        if list(protos) != [AUTO]:
            raise ScenarioError(
                f"--proto {','.join(protos)}: {self._section.name} has no protocols. Use nccl."
            )
        if list(asked) == [AUTO]:
            return [AUTO]
        have = self._offered(op)
        if list(asked) == ["all"]:
            return have or [AUTO]
        # Those that need switches which add run only if there are some: they are named.
        have = self._offered(op, switched=True)
        names = dict.fromkeys(asked)
        chosen = [name for name in names if name in have or self._made_for(name, op)]
        if not chosen:
            raise ScenarioError(
                f"--algo {','.join(asked)}: {self._section.name} has none of these for {op}."
                f"{did_you_mean(asked[0], have)}"
                f" It has: {', '.join(have) or 'no choice; use auto'}."
            )
        return chosen

    def _made_for(self, name: str, op: str) -> bool:
        """Whether a name is an MSCCL file, which must be for this op and as many GPUs."""
        if not is_msccl_file(name) or self._section.name == "gloo":
            return False
        made = load_msccl(name).program
        if made.op != op:
            raise ScenarioError(f"--algo {name}: is an {made.op}, not {op}.")
        if made.n != len(self._ranks):
            raise ScenarioError(
                f"--algo {name}: is for {made.n} GPUs, and this bench has {len(self._ranks)}."
                " Choose them with --nodes and --gpus-per-node."
            )
        return True

    def _offered(self, op: str, *, switched: bool = False) -> list[str]:
        if self._section.name == "nccl":
            return []
        if self._section.name == "gloo":
            from commsim.libraries.gloo import ALGORITHMS

            return list(ALGORITHMS) if op == "all_reduce" else []
        return (
            []
            if op == "send_recv"
            else list(algorithms_for(op, n=len(self._ranks), switched=switched))
        )

    def picoseconds(
        self, op: str, sizes: Sequence[int], name: str, tick: Callable[[], None] = lambda: None
    ) -> list[int]:
        """Return the simulated time at each size, all ranks arriving at once."""
        times = []
        for size in sizes:
            times.append(self._time(op, size, name))
            tick()
        return times

    def _time(self, op: str, size: int, name: str) -> int:
        key = (op, size, name)
        if key not in self._known:
            timeline = simulate(
                _graph(op, size, self._ranks, self._dtype),
                self._cluster,
                library=self._library(name),
                network=self._network,
                follow=self._follow,
            )
            self._notes.update(dict.fromkeys(timeline.notes))
            self._known[key] = timeline.end_time
        return self._known[key]

    def facts(self, op: str, size: int, name: str) -> RunFacts:
        """Return the algorithm and the channels that the library took."""
        ranks = self._ranks[:2] if op == "send_recv" else self._ranks
        root = shape_of(op, size, dtype="int8", ranks=1).root
        request = Request(op, size, ranks, root=root, dtype=self._dtype)
        plan = plan_of(self._library(name), request, self._cluster)
        algo, proto = plan.algorithm, None
        if self._section.name == "nccl" and " " in algo:
            algo, _, proto = algo.rpartition(" ")
        in_network = is_switched(algo)
        return RunFacts(algo, proto, plan.channels, None, name == AUTO, in_network)

    def _library(self, name: str) -> Library:
        if name not in self._libraries:
            self._libraries[name] = make_library(_taking(self._section, name), self._cluster)
        return self._libraries[name]


def _taking(section: LibrarySection, name: str) -> LibrarySection:
    """Return the section with one algorithm; NCCL's may name a protocol ("Ring LL")."""
    if name == AUTO:
        return section
    if section.name != "nccl" or is_msccl_file(name):
        return section.having(algo=name)
    algo, _, proto = name.partition(" ")
    asked = {"algo": None if algo == AUTO else algo, "proto": proto or None}
    ruled = [f"NCCL_{field.upper()}" for field, value in asked.items() if value]
    env = {
        variable: value
        for variable, value in section.get("env", {}).items()
        if variable not in ruled
    }
    return section.having(env=env, **asked)


def _graph(op: str, size: int, ranks: Sequence[int], dtype: str) -> Graph:
    """Return one op of all ranks; send_recv as nccl-tests does it, to the next rank."""
    build = GraphBuilder()
    lanes = [build.lane(rank) for rank in ranks]
    world = build.group("world", ranks)
    root = ranks[0] if shape_of(op, size, dtype="int8", ranks=1).root >= 0 else -1
    for i, lane in enumerate(lanes):
        if op != "send_recv":
            build.collective(lane, world, op, size, stream="comm", root=root, dtype=dtype)
            continue
        batch = build.batch()
        after, before = ranks[(i + 1) % len(ranks)], ranks[i - 1]
        build.send(lane, after, size, group=world, stream="comm", batch=batch)
        build.recv(lane, before, size, group=world, stream="comm", batch=batch)
    return build.build()


def whole_picoseconds(seconds: np.ndarray) -> list[int]:
    """Round seconds up to integer ps, forgiving the noise of floats."""
    return [int(value) for value in np.ceil(seconds * 1e12 - 1e-3)]
