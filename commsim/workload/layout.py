"""
Which rank sits where: the degrees of the parallel axes, and their order over the ranks.

With order (tp, cp, dp, pp), fastest first, rank = tp + TP (cp + CP (dp + DP pp)), as Megatron
numbers them: neighbours on the first axis are neighbours in the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from commsim.errors import ScenarioError

__all__ = ["AXES", "Layout", "check_world", "make_layout"]

AXES = ("tp", "cp", "dp", "pp")


@dataclass(frozen=True, slots=True)
class Layout:
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

    def along(self, axis: str, at: Mapping[str, int]) -> tuple[int, ...]:
        """Return the ranks that differ from the place `at` only along `axis`, in its order."""
        return tuple(self.rank({**at, axis: index}) for index in range(self.degree(axis)))


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
    used = [f"{axis}={layout.degree(axis)}" for axis in AXES if layout.degree(axis) > 1]
    product = " x ".join(used or ["dp=1"])
    others, left = divmod(gpus, layout.world // layout.degree("dp"))
    advice = f"With the rest as it is, dp={others} would use them all." if left == 0 else ""
    raise ScenarioError(
        f"{where}: {product} = {layout.world} rank{'s' if layout.world > 1 else ''}, the cluster"
        f" has {gpus} GPUs. {advice or 'Change the degrees or the cluster until they agree.'}"
    )
