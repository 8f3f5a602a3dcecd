"""
Which rank sits where: the degrees of the parallel axes, their order over the ranks, the groups.

With order (tp, cp, dp, pp), fastest first, rank = tp + TP (cp + CP (dp + DP pp)), as Megatron
numbers them: neighbours on the first axis are neighbours in the cluster.

Data and context parallelism divide the same gradients: replicas of a stage are numbered over
both, the faster axis of the order first. Experts are divided over `ep` neighbours of these.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.errors import ScenarioError

__all__ = ["AXES", "Layout", "check_world", "divided", "make_layout"]


AXES = ("tp", "cp", "dp", "pp")
_SAID = ("tp", "pp", "dp", "cp")  # the order of the arithmetic in messages


class Layout(msgspec.Struct, frozen=True):
    """The degree of each axis, fastest axis first."""

    order: tuple[str, ...]
    degrees: tuple[int, ...]

    @property
    def world(self) -> int:
        """The number of ranks."""
        world = 1
        for degree in self.degrees:
            world *= degree
        return world

    def rank(self, at: Mapping[str, int]) -> int:
        """Return the rank at a place; an axis that `at` does not name is at 0."""
        rank, stride = 0, 1
        for axis, degree in zip(self.order, self.degrees, strict=True):
            rank += at.get(axis, 0) * stride
            stride *= degree
        return rank

    def degree(self, axis: str) -> int:
        """Return the degree of `axis`."""
        return self.degrees[self.order.index(axis)]

    def grid(self) -> Ints:
        """Return the ranks as an array with one dimension per axis, in the order of AXES."""
        ranks = np.arange(self.world).reshape(self.degrees[::-1])
        place = [len(self.order) - 1 - self.order.index(axis) for axis in AXES]
        return ranks.transpose(place)

    def places(self) -> dict[str, Ints]:
        """Return the index of every rank on each axis, arrays of one entry per rank."""
        places, stride = {}, 1
        for axis, degree in zip(self.order, self.degrees, strict=True):
            places[axis] = np.arange(self.world) // stride % degree
            stride *= degree
        return places

    def groups(self, axis: str) -> Ints:
        """Return all groups along `axis`, one per row, members in its order."""
        grid = np.moveaxis(self.grid(), AXES.index(axis), -1)
        return grid.reshape(-1, self.degree(axis))

    def replicas(self) -> Ints:
        """Return the ranks with equal parameters, one row per (tp, pp) place; shape (.., cp dp)."""
        cp_first = self.order.index("cp") < self.order.index("dp")
        grid = self.grid().transpose((0, 3, 2, 1) if cp_first else (0, 3, 1, 2))
        return grid.reshape(-1, self.degree("cp") * self.degree("dp"))

    def holders(self, replicas: Ints, *, whole: bool) -> Ints:
        """Return, a row each, the ranks that divide experts: replicas, or with `whole` experts
        those of all tensor-parallel places of a stage, the neighbours on that axis first."""
        if not whole:
            return replicas
        degree = self.degree("tp")
        by_place = replicas.reshape(degree, -1, replicas.shape[1])
        return by_place.transpose(1, 2, 0).reshape(-1, replicas.shape[1] * degree)

    def same_experts(self, ep: int, *, whole: bool) -> Ints:
        """Return, a row each, the ranks that hold the same experts, divided among `ep` ranks."""
        return divided(self.holders(self.replicas(), whole=whole), ep)[1]


def divided(rows: Ints, size: int) -> tuple[Ints, Ints]:
    """Return each row cut into neighbours of `size`, and the ranks at equal places in the cuts.

    Of replicas: the groups that divide the experts, and those that hold the same ones.
    """
    cut = rows.reshape(len(rows), -1, size)
    return cut.reshape(-1, size), cut.transpose(0, 2, 1).reshape(-1, rows.shape[1] // size)


def make_layout(degrees: Mapping[str, int], order: tuple[str, ...], *, where: str) -> Layout:
    """Return the layout with `degrees` per axis.

    Raises:
        ScenarioError: `order` does not name each axis once.
    """
    if sorted(order) != sorted(AXES):
        raise ScenarioError(
            f"{where}.order: [{', '.join(order)}] must name each of {', '.join(AXES)} once,"
            " the fastest first."
        )
    return Layout(order, tuple(degrees[axis] for axis in order))


def check_world(layout: Layout, gpus: int, *, where: str) -> None:
    """Raise ScenarioError with the arithmetic unless the layout uses exactly `gpus` GPUs."""
    if layout.world == gpus:
        return
    used = [f"{axis}={layout.degree(axis)}" for axis in _SAID if layout.degree(axis) > 1]
    product = " × ".join(used or ["dp=1"])
    others, left = divmod(gpus, layout.world // layout.degree("dp"))
    advice = f"With the rest as it is, dp={others} would use them all." if left == 0 else ""
    raise ScenarioError(
        f"{where}: {product} = {layout.world} rank{'s' if layout.world > 1 else ''}, the cluster"
        f" has {gpus} GPUs. {advice or 'Change the degrees or the cluster until they agree.'}"
    )
