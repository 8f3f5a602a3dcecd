"""
NCCL's algorithms and protocols side by side, over arrays of sizes.

The prediction is the one that plans are made of (`NcclGroup.predict`), as nccl-tests would print
it: per iteration of a loop that does not wait for the last rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.collectives import is_msccl_file
from commsim.errors import ScenarioError, did_you_mean
from commsim.follow import Follow, unfollowed
from commsim.libraries import Library, LibrarySection, Plan, Request, make_library
from commsim.libraries.nccl import PAIRWISE, Algorithm, Choice, Nccl, Protocol
from commsim.study.bench.backend import AUTO, RunFacts, SimulatedBackend, whole_picoseconds
from commsim.study.bench.nccl_tests import shape_of

__all__ = ["NcclBackend", "NcclStepsBackend"]

_ONCE = (
    "{op}: network steps times it once, until the last rank has it. nccl-tests repeats it without"
    " waiting for that rank, so that a chain's latency hides behind the iteration before: network"
    " fluid gives that time."
)


class NcclBackend:
    """Times NCCL on one group.

    A name is "Ring LL"; "Ring" or "auto LL" if NCCL chooses the rest, "auto" all of it.
    """

    repeated = True
    on_host = False

    def __init__(
        self, cluster: Cluster, ranks: Sequence[int], section: LibrarySection, *, dtype: str
    ) -> None:
        library = make_library(section)
        assert isinstance(library, Nccl)
        self.version = library.version
        self._group = library.group(tuple(ranks), cluster)
        self._dtype = dtype
        self._notes: dict[str, None] = {}
        self._known: dict[tuple[str, int], dict[str, Choice]] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What the environment and the choices came with."""
        every = (*self._group.notes, *self._notes)
        return tuple(dict.fromkeys(every))

    def algorithms(self, op: str, asked: Sequence[str], protos: Sequence[str]) -> list[str]:
        """Return the algorithm and protocol pairs to time. See `Backend`."""
        if op in PAIRWISE or (list(asked) == [AUTO] and list(protos) == [AUTO]):
            return [AUTO]
        pairs = self._group.pairs(op, self._dtype)
        algorithms = _known(asked, [a.name for a in Algorithm], "--algo")
        protocols = _known(protos, [p.name for p in Protocol], "--proto")
        fits = [(a, p) for a, p in pairs if a.name in algorithms and p.name in protocols]
        if not fits:
            raise ScenarioError(
                f"--algo {','.join(asked)} --proto {','.join(protos)}: NCCL has none of these for"
                f" {op} here. It has: {', '.join(_name(*pair) for pair in pairs)}."
            )
        if list(asked) != ["all"] and list(protos) == [AUTO]:
            return list(dict.fromkeys(algorithm.name for algorithm, _ in fits))
        if list(asked) == [AUTO] and list(protos) != ["all"]:
            return list(dict.fromkeys(f"{AUTO} {protocol.name}" for _, protocol in fits))
        return [_name(*pair) for pair in fits]

    def picoseconds(
        self, op: str, sizes: Sequence[int], name: str, tick: Callable[[], None] = lambda: None
    ) -> list[int]:
        """Return the predicted time per iteration at each size: all at once."""
        choices = None if op in PAIRWISE else [self._choice(op, size, name) for size in sizes]
        root = shape_of(op, 0, dtype=self._dtype, ranks=1).root
        timing = self._group.predict(op, sizes, choices, root=root, repeated=True)
        for _ in sizes:
            tick()
        return whole_picoseconds(timing.seconds)

    def facts(self, op: str, size: int, name: str) -> RunFacts:
        """Return what NCCL takes, and what its tuner computed for it."""
        if op in PAIRWISE:
            return RunFacts("pairwise", None, self._group.pairwise.channels, None, True)
        choice, own = self._choice(op, size, name), self._choice(op, size, AUTO)
        self._notes.update(dict.fromkeys(choice.notes))
        same = (own.algorithm, own.protocol) == (choice.algorithm, choice.protocol)
        return RunFacts(
            choice.algorithm.name,
            choice.protocol.name,
            choice.channels,
            choice.selection_us,
            same,
            choice.algorithm.in_network,
        )

    def _choice(self, op: str, size: int, name: str) -> Choice:
        """Return what NCCL runs at a size if only `name` is left to it."""
        key = (op, size)
        if key not in self._known:
            named = {AUTO: self._group.choose(op, size, dtype=self._dtype)}
            for pair, choice in self._group.candidates(op, size, dtype=self._dtype).items():
                algorithm, protocol = pair
                named[_name(algorithm, protocol)] = choice
                for free in (algorithm.name, f"{AUTO} {protocol.name}"):
                    # the first of equals stays, as in NCCL's strict comparison
                    kept = named.setdefault(free, choice)
                    if choice.selection_us < kept.selection_us:
                        named[free] = choice
            self._known[key] = named
        return self._known[key][name]


class _OneCommunicator:
    """NCCL with the sends of a program over one communicator of all ranks, as in nccl-tests."""

    def __init__(self, library: Library, ranks: tuple[int, ...]) -> None:
        self.name, self.concurrency = library.name, library.concurrency
        self._library, self._ranks = library, ranks

    def plan(self, request: Request, cluster: Cluster | None) -> Plan:
        """Return the plan of one op. See `Library`."""
        if request.kind == "send_recv":
            request = replace(request, communicator=self._ranks)
        return self._library.plan(request, cluster)


class NcclStepsBackend(SimulatedBackend):
    """Times NCCL's algorithms message by message: `network: steps`.

    A broadcast or reduce is one iteration (a note says so), sends are those of nccl-tests' ring.
    """

    def __init__(
        self,
        cluster: Cluster,
        ranks: Sequence[int],
        section: LibrarySection,
        *,
        dtype: str,
        follow: Follow = unfollowed,
    ) -> None:
        super().__init__(cluster, ranks, section, network="steps", dtype=dtype, follow=follow)
        self._nccl = NcclBackend(cluster, ranks, section, dtype=dtype)
        self.version = self._nccl.version

    def algorithms(self, op: str, asked: Sequence[str], protos: Sequence[str]) -> list[str]:
        """Return the algorithm and protocol pairs to time. See `Backend`."""
        return self._nccl.algorithms(op, asked, protos)

    def facts(self, op: str, size: int, name: str) -> RunFacts:
        """Return what NCCL takes, and what its tuner computed for it."""
        return self._nccl.facts(op, size, name)

    def picoseconds(
        self, op: str, sizes: Sequence[int], name: str, tick: Callable[[], None] = lambda: None
    ) -> list[int]:
        """Return the simulated time at each size, all ranks arriving at once."""
        if op in ("broadcast", "reduce"):
            self._notes[_ONCE.format(op=op)] = None
        return super().picoseconds(op, sizes, name, tick)

    def _library(self, name: str) -> Library:
        return _OneCommunicator(super()._library(name), self._ranks)


def _name(algorithm: Algorithm, protocol: Protocol) -> str:
    return f"{algorithm.name} {protocol.name}"


def _known(asked: Sequence[str], names: Sequence[str], flag: str) -> list[str]:
    """Return NCCL's spelling of names; all of them for "auto" and "all"."""
    if list(asked) in ([AUTO], ["all"]):
        return list(names)
    spelled = {name.lower(): name for name in names}
    for name in asked:
        if flag == "--algo" and is_msccl_file(name):
            raise ScenarioError(
                f"--algo {name}: time an algorithm from a file by itself, without others beside it."
            )
        if name.lower() not in spelled:
            raise ScenarioError(
                f"{flag} {name}: NCCL has no such choice.{did_you_mean(name, names)}"
                f" Known: {', '.join(names)}, auto, all."
            )
    return [spelled[name.lower()] for name in asked]
