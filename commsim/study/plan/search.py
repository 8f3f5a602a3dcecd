"""
Sizes by their bounds, then their floors, then by simulations: each only if that leaves hope, of
the deadline and of the budget.

Per kind of node the smallest size whose bound makes the deadline is found by bisection, then floors
and runs go upwards until a run makes it. Layouts of that size and of larger ones are run if
their floor could cost less than the cheapest run so far, or be faster than the fastest that the
budget allows.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from concurrent.futures import Executor

from commsim.cluster import build_cluster
from commsim.errors import ScenarioError
from commsim.follow import Follow
from commsim.metrics import hourly_price
from commsim.study.plan.option import PlanOption, Sized
from commsim.study.plan.question import NodeKind, PlanQuestion, node_counts

__all__ = ["PlanSearch"]

_RANGE = 2.0
"""Larger sizes are looked at up to so many times the smallest that makes it."""

_RECOMPUTED = 4 / 3
"""GPU-hours of a size over those of a larger one, at most: the larger one may do without computing
the forward pass again, and has no other way to compute less."""

_AHEAD = 4
"""So many runs are begun at once by an executor; those that turn out needless change nothing."""


class PlanSearch:
    """What is known of all sizes of all kinds; `run` may be interrupted at any time.

    `executor` runs the simulations, None: this process; it does not change the answer. `runs`:
    simulations that may be spent. `left` counts the sizes whose floors left hope when they
    were.
    """

    def __init__(
        self,
        question: PlanQuestion,
        *,
        usual: bool,
        runs: int,
        progress: Callable[[str], None],
        follow: Follow,
        executor: Executor | None = None,
    ) -> None:
        self._executor = executor
        self._question, self._usual = question, usual
        self._progress, self._follow = progress, follow
        self.simulated = 0
        self.at_least: dict[tuple[str, int], float] = {}
        """Days of a size that was ruled out by what it takes at least."""
        self._runs = self.runs_left = runs
        self.left = 0
        self.nothing: list[str] = []
        """Kinds on which no size makes it, in words."""
        self._sized: dict[tuple[str, int], Sized | None] = {}
        self._first: dict[str, int] = {}

    def run(self) -> None:
        """Search: the smallest of each kind, then what is cheaper, then what is faster; at last the
        winners are run whole, as `commsim run` does.

        Raises:
            ScenarioError: one node of each kind has more GPUs than may be looked at.
        """
        if not any(self._sizes(kind) for kind in self._question.kinds):
            names = " and of ".join(kind.name for kind in self._question.kinds)
            raise ScenarioError(
                f"--most-gpus {self._question.most_gpus}: one node of {names} has more. Give a"
                " larger number."
            )
        for kind in self._question.kinds:
            self._smallest(kind)
        self._cheaper()
        self._faster()
        while rough := [one for one in self.winners if one is not None and not one.whole]:
            self._progress(f"running the layout of {rough[0].name} whole")
            size = self._sized[rough[0].kind, rough[0].nodes]
            assert size is not None
            size.run_whole(self._follow)

    @property
    def winners(self) -> tuple[PlanOption | None, PlanOption | None, PlanOption | None]:
        """The smallest (by GPUs paid), the cheapest and the fastest option that makes it."""
        good = self._good()
        priced = [option for option in good if option.cost is not None]
        return (
            min(good, key=lambda one: (one.paid_gpus, one.days), default=None),
            min(priced, key=lambda one: (one.cost or 0.0, one.days), default=None),
            min(good, key=lambda one: (one.days, one.gpus), default=None),
        )

    @property
    def stack(self) -> str:
        """The software that all of it is reckoned on."""
        return next((size.stack for size in self._sized.values() if size is not None), "")

    @property
    def remarks(self) -> tuple[str, ...]:
        """What of the constants of compute was never fitted, on all kinds that were simulated."""
        tried = [size for size in self._sized.values() if size is not None and size.best]
        return tuple(dict.fromkeys(one for size in tried for one in size.remarks))

    @property
    def causal_share(self) -> float | None:
        """What MFU would be, of what it is, by causal attention; None if nothing was simulated."""
        shares = [size.causal_share for size in self._sized.values() if size and size.best]
        return shares[0] if shares else None

    @property
    def options(self) -> list[PlanOption]:
        """The best layout of each size that was simulated."""
        sizes = [size.best for size in self._sized.values() if size is not None]
        return [best for best in sizes if best is not None]

    def makes_it(self, option: PlanOption) -> bool:
        """Say whether an option is in time and within the budget."""
        question = self._question
        in_time = question.seconds is None or option.days * 86400 <= question.seconds
        return in_time and (
            question.budget is None or (option.cost is not None and option.cost <= question.budget)
        )

    @property
    def deadline(self) -> float:
        """The days that there are."""
        seconds = self._question.seconds
        return float("inf") if seconds is None else seconds / 86400

    def smaller(self, option: PlanOption) -> list[int]:
        """Return the counts of nodes of an option's kind below its own, the least first."""
        kind = next(one for one in self._question.kinds if one.name == option.kind)
        return [nodes for nodes in self._sizes(kind) if nodes < option.nodes]

    def _sizes(self, kind: NodeKind) -> list[int]:
        one = self._question.scenario(kind, 1)
        assert one.file.cluster is not None
        cluster = build_cluster(one.file.cluster, one.where)
        spec = cluster.specs[0]
        if self._question.budget is not None and hourly_price(cluster) is None:
            raise ScenarioError(
                f"--budget: {kind.name} has no price, and none is taken as zero. Put a cluster file"
                f" in its place: {{preset: {kind.name}, prices: {{gpu_hour: {{price: ...,"
                " source: ..., date: ...}}}."
            )
        most = self._question.most_gpus // spec.gpus
        return list(node_counts(spec.domain_nodes, most))

    def _size(self, kind: NodeKind, nodes: int) -> Sized | None:
        """Return a size, made once; None if no layout can run on it."""
        key = (kind.name, nodes)
        if key not in self._sized:
            self._progress(f"bounding {nodes} {kind.name}")
            found = Sized(self._question, kind, nodes, usual=self._usual, executor=self._executor)
            self._sized[key] = found if found.bound_days() is not None else None
        return self._sized[key]

    def _smallest(self, kind: NodeKind) -> None:
        """Find the smallest size that makes the deadline, by runs."""
        sizes, costs = self._sizes(kind), []
        for nodes in sizes[self._from(kind, sizes) :]:
            size = self._size(kind, nodes)
            cost = None if size is None else self._least_cost(size)
            if cost is not None and not self._within(cost):
                costs.append(cost)
                if not self._within(cost / _RECOMPUTED):
                    break
            elif size is not None and self._tries(size):
                self._first[kind.name] = nodes
                return
        if costs:
            self.nothing.append(
                f"{kind.name}: no size makes it within the budget (at least {min(costs):,.0f})"
            )
            return
        known = [
            (days, nodes) for (name, nodes), days in self.at_least.items() if name == kind.name
        ]
        best = min(known, default=None)
        told = f"{best[1]:,} nodes take at least {best[0]:.3g} days" if best else "no layout fits"
        self.nothing.append(
            f"{kind.name}: no size up to {self._question.most_gpus:,} GPUs makes it ({told})"
        )

    def _from(self, kind: NodeKind, sizes: list[int]) -> int:
        """Return the place of the first size whose bound makes the deadline, by bisection."""
        low, high = 0, len(sizes) - 1
        while low < high:
            middle = (low + high) // 2
            size = self._size(kind, sizes[middle])
            days = None if size is None else size.bound_days()
            if days is not None and days <= self.deadline:
                high = middle
            else:
                if days is not None:
                    self.at_least[kind.name, sizes[middle]] = days
                low = middle + 1
        return low

    def _tries(self, size: Sized) -> bool:
        """Run layouts of a size, lowest floor first, until one makes it or none can."""
        key = (size.kind.name, size.nodes)
        while (days := size.floor_days()) is not None and days <= self.deadline:
            if not self._allows(size, days) or not self._spend():
                return False
            size.begin(_AHEAD)
            option = self._ran(size)
            if option is not None and option.days <= self.deadline:
                return True
        if size.best is None and days is not None:
            self.at_least[key] = days
        return False

    def _allows(self, size: Sized, days: float) -> bool:
        cost = size.cost_of(days)
        return self._question.budget is None or (cost is not None and self._within(cost))

    def _within(self, cost: float) -> bool:
        return self._question.budget is None or cost <= self._question.budget

    @staticmethod
    def _least_cost(size: Sized) -> float | None:
        """Return what no layout of a size can cost less than."""
        days = size.bound_days()
        return None if days is None else size.cost_of(days)

    def _cheaper(self) -> None:
        """Run what could cost less than the cheapest run."""

        def value(size: Sized, days: float) -> float | None:
            return size.cost_of(days) if days <= self.deadline else None

        self._improve(value, lambda: min(self._costs(), default=0.0))

    def _faster(self) -> None:
        """Run what could be faster than the fastest run, as far as the budget allows."""

        def value(size: Sized, days: float) -> float | None:
            return days if self._allows(size, days) else None

        self._improve(value, lambda: min((o.days for o in self._good()), default=float("inf")))

    def _improve(
        self, value: Callable[[Sized, float], float | None], best: Callable[[], float]
    ) -> None:
        """Run the layout whose floor has the least `value`, as long as that is below the `best`."""
        queue: list[tuple[float, int, Sized]] = []

        def put(place: int, size: Sized) -> None:
            days = size.bound_days()  # floors take long: only where the bound leaves hope
            hope = None if days is None else value(size, days)
            if hope is None or hope >= best():
                return
            days = size.floor_days()
            least = None if days is None else value(size, days)
            if least is not None:
                heapq.heappush(queue, (least, place, size))

        for place, size in enumerate(self._larger()):
            put(place, size)
        while queue and queue[0][0] < best():
            _, place, size = heapq.heappop(queue)
            if not self._spend():
                self.left += sum(least < best() for least, _, _ in queue)
                return
            size.begin()
            for _, _, other in heapq.nsmallest(_AHEAD - 1, queue):
                other.begin()
            self._ran(size)
            put(place, size)

    def _good(self) -> list[PlanOption]:
        return [option for option in self.options if self.makes_it(option)]

    def _costs(self) -> list[float]:
        return [option.cost for option in self._good() if option.cost is not None]

    def _larger(self) -> Iterator[Sized]:
        """Yield the smallest size of each kind that made it, and those up to twice as large."""
        for kind in self._question.kinds:
            first = self._first.get(kind.name)
            for nodes in self._sizes(kind) if first is not None else ():
                if first is not None and first <= nodes <= first * _RANGE:
                    size = self._size(kind, nodes)
                    if size is not None:
                        yield size

    def _spend(self) -> bool:
        if self.runs_left <= 0:
            self.left += 1
            return False
        self.runs_left -= 1
        return True

    def _ran(self, size: Sized) -> PlanOption | None:
        run = f"run {self._runs - self.runs_left} of at most {self._runs}"
        self._progress(f"simulating {size.nodes} {size.kind.name}, {run}")
        option = size.run_next(self._follow)
        self.simulated += option is not None
        return option
