"""
NCCL's algorithms and protocols side by side, over arrays of sizes.

What nccl-tests would print: the calibrated time per iteration, longer where the fabric between
the switches cannot carry what the op loads it with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from commsim.arrays import Floats
from commsim.cluster import Cluster
from commsim.errors import ScenarioError, did_you_mean
from commsim.libraries import LibrarySection, make_library
from commsim.libraries.nccl import PAIRWISE, Algorithm, Choice, Nccl, Protocol
from commsim.study.bench.backend import (
    AUTO,
    EngineContest,
    Facts,
    element_bytes,
    whole_picoseconds,
)
from commsim.study.bench.nccl_tests import shape_of

__all__ = ["NcclContest", "NcclMessages"]


_IN_NETWORK = (
    Algorithm.CollNetDirect, Algorithm.CollNetChain, Algorithm.NVLS, Algorithm.NVLSTree,
)  # fmt: skip


class NcclContest:
    """Times NCCL on one group.

    A contender is "Ring LL"; "Ring" or "auto LL" where NCCL chooses the rest, "auto" all of it.
    """

    def __init__(
        self, cluster: Cluster, ranks: Sequence[int], section: LibrarySection, *, dtype: str
    ) -> None:
        library = make_library(section)
        assert isinstance(library, Nccl)
        self._group = library.group(tuple(ranks), cluster)
        self._width = element_bytes(dtype)
        self._notes: dict[str, None] = {}
        self._candidates: dict[tuple[str, int], dict[str, Choice]] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What the environment and the choices came with."""
        every = (*self._group.notes, *self._notes)
        return tuple(dict.fromkeys(every))

    def contenders(self, op: str, asked: Sequence[str], protos: Sequence[str]) -> list[str]:
        """Return the algorithm and protocol pairs to time. See `Contest`."""
        if op in PAIRWISE or (list(asked) == [AUTO] and list(protos) == [AUTO]):
            return [AUTO]
        pairs = list(self._group.tuner.costs(op))
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

    def picoseconds(self, op: str, sizes: Sequence[int], name: str) -> list[int]:
        """Return the predicted time per iteration at each size."""
        choices = self._choices(op, sizes, name)
        timing = self._group.timing(op, sizes, choices, repeated=True)
        crowded = self._crowded(op, choices) * np.asarray(sizes, dtype=np.float64)
        still = self._group.timing(op, [0] * len(sizes), choices, repeated=True).program
        return whole_picoseconds(timing.launch + np.maximum(timing.program, still + crowded))

    def facts(self, op: str, size: int, name: str) -> Facts:
        """Return what NCCL takes, and what its tuner computed for it."""
        if op in PAIRWISE:
            return Facts("pairwise", None, self._group.pairwise.channels, None, True)
        choice = self._pairs(op, size)[name]
        self._notes.update(dict.fromkeys(choice.notes))
        own = self._own(op, size)
        same = (own.algorithm, own.protocol) == (choice.algorithm, choice.protocol)
        return Facts(
            choice.algorithm.name, choice.protocol.name, choice.channels, choice.selection_us, same,
            choice.algorithm in _IN_NETWORK,
        )  # fmt: skip

    def _choices(self, op: str, sizes: Sequence[int], name: str) -> list[Choice] | None:
        if op in PAIRWISE:
            return None
        if name == AUTO:
            return [self._own(op, size) for size in sizes]
        return [self._pairs(op, size)[name] for size in sizes]

    def _own(self, op: str, size: int) -> Choice:
        return self._pairs(op, size)[AUTO]

    def _pairs(self, op: str, size: int) -> dict[str, Choice]:
        """Return every pair's choice at a size, and NCCL's own where one or both are free."""
        key = (op, size)
        if key not in self._candidates:
            found = self._group.tuner.candidates(op, [size], dtype_size=self._width)
            named: dict[str, Choice] = {}
            for (algorithm, protocol), (made,) in found.items():
                choice = made if made.channels else replace(made, channels=1)
                named[_name(algorithm, protocol)] = choice
                for free in (algorithm.name, f"{AUTO} {protocol.name}", AUTO):
                    # the first of equals stays, as in NCCL's strict comparison
                    kept = named.setdefault(free, choice)
                    if choice.selection_us < kept.selection_us:
                        named[free] = choice
            self._candidates[key] = named
        return self._candidates[key]

    def _crowded(self, op: str, choices: Sequence[Choice] | None) -> Floats:
        """Return the seconds per byte that the busiest link needs at least."""
        if choices is None:
            return np.array([self._need(op, None)])
        widest: dict[Algorithm, Choice] = {}
        for choice in choices:
            kept = widest.setdefault(choice.algorithm, choice)
            if choice.channels > kept.channels:
                widest[choice.algorithm] = choice
        need = {algorithm: self._need(op, choice) for algorithm, choice in widest.items()}
        return np.array([need[choice.algorithm] for choice in choices])

    def _need(self, op: str, choice: Choice | None) -> float:
        root = shape_of(op, 1 << 20, dtype="int8", ranks=1).root
        return self._group.least(op, choice, root)


class NcclMessages(EngineContest):
    """Times NCCL's algorithms message by message: `network: steps`."""

    def __init__(
        self, cluster: Cluster, ranks: Sequence[int], section: LibrarySection, *, dtype: str
    ) -> None:
        super().__init__(cluster, ranks, section, network="steps", dtype=dtype)
        self._choices = NcclContest(cluster, ranks, section, dtype=dtype)

    def contenders(self, op: str, asked: Sequence[str], protos: Sequence[str]) -> list[str]:
        """Return the algorithm and protocol pairs to time. See `Contest`."""
        return self._choices.contenders(op, asked, protos)

    def facts(self, op: str, size: int, name: str) -> Facts:
        """Return what NCCL takes, and what its tuner computed for it."""
        return self._choices.facts(op, size, name)


def _name(algorithm: Algorithm, protocol: Protocol) -> str:
    return f"{algorithm.name} {protocol.name}"


def _known(asked: Sequence[str], names: Sequence[str], flag: str) -> list[str]:
    """Return NCCL's spelling of names; all of them for "auto" and "all"."""
    if list(asked) in ([AUTO], ["all"]):
        return list(names)
    spelled = {name.lower(): name for name in names}
    for name in asked:
        if flag == "--algo" and name.endswith(".xml"):
            raise ScenarioError(
                f"--algo {name}: time an algorithm from a file by itself, without others beside it."
            )
        if name.lower() not in spelled:
            raise ScenarioError(
                f"{flag} {name}: NCCL has no such choice.{did_you_mean(name, names)}"
                f" Known: {', '.join(names)}, auto, all."
            )
    return [spelled[name.lower()] for name in asked]
