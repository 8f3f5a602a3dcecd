"""
One cluster of a plan: from a bound to a floor to a simulated step, with days, money and energy.
"""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

import msgspec
from msgspec.structs import replace

from commsim.follow import Follow, unfollowed
from commsim.metrics import Metrics, bill_of, hourly_price, rated_power
from commsim.study.advise import Candidate, LayoutQueue, waits_for, with_settings
from commsim.study.plan.question import NodeKind, PlanQuestion
from commsim.study.run import Goodput, goodput_of, run
from commsim.units import GIB

__all__ = ["PlanOption", "Sized"]

_HOUR, _DAY = 3600.0, 86400.0
_WATTS_PER_KILOWATT = 1e3


class PlanOption(msgspec.Struct, frozen=True):
    """A cluster with its layout, simulated. `cost` and `energy_kwh` are of the whole training.

    `bought` is what owned nodes, switches and cables cost to buy; of that, `cost` has the share of
    the days. `goodput` is the share of the days that is progress; None if failures were not asked
    about.
    `paid_nodes` are the nodes of whole racks, where a part of each trains.
    `scenario` is the plain data that `commsim run` takes; where `whole`, the figures are those of
    that run to the digit, else they were found as `advise` finds them, within 0.2 %.
    """

    kind: str
    nodes: int
    gpus: int
    layout: str
    step_s: float
    days: float
    mfu: float | None
    currency: str | None
    per_hour: float | None
    cost: float | None
    energy_kwh: float | None
    waits: tuple[str, ...]
    scenario: dict[str, Any]
    memory_gib: float
    goodput: float | None = None
    paid_nodes: int | None = None
    bought: float | None = None
    whole: bool = False

    @property
    def name(self) -> str:
        """ "96 dgx-h100 (768 GPUs)"; where racks are paid for whole, with what is paid."""
        gpus = f"{self.gpus:,} GPUs"
        if self.paid_gpus != self.gpus:
            gpus += f"; {self.paid_nodes:,} nodes, {self.paid_gpus:,} GPUs paid"
        return f"{self.nodes:,} {self.kind} ({gpus})"

    @property
    def paid_gpus(self) -> int:
        """The GPUs of the nodes that are paid for: those of whole racks."""
        return self.gpus // self.nodes * (self.paid_nodes or self.nodes)

    def to_dict(self) -> dict[str, Any]:
        """Return the option, ready for JSON."""
        return {"name": self.name} | {
            name: list(value) if isinstance(value := getattr(self, name), tuple) else value
            for name in self.__struct_fields__
        }


class Sized:
    """So many nodes of a kind: what the training takes there at least, and what it takes."""

    def __init__(
        self,
        question: PlanQuestion,
        kind: NodeKind,
        nodes: int,
        *,
        usual: bool,
        executor: Executor | None = None,
    ) -> None:
        self._question = question
        self.kind, self.nodes = kind, nodes
        self._scenario = question.scenario(kind, nodes)
        self._layouts = LayoutQueue(self._scenario, usual=usual, executor=executor)
        cluster = self._layouts.cluster
        self.gpus = cluster.world_size
        bill = bill_of(cluster)
        self.bought = sum(line.total for line in bill) * kind.paid(nodes) / nodes if bill else None
        self.price = _times(kind.paid(nodes) / nodes, hourly_price(cluster))
        power = rated_power(cluster)
        self._power = None if power is None else power * kind.paid(nodes) / nodes
        self.remarks = self._layouts.remarks
        self.causal_share = self._layouts.causal_share
        self.stack = self._layouts.stack
        self.best: PlanOption | None = None
        self._layout: Candidate | None = None

    def bound_days(self) -> float | None:
        """Return days that no layout can be below; None if none can run."""
        return self._days(self._layouts.bound())

    def floor_days(self) -> float | None:
        """Return what the layouts left that fit take at least; None if none is left."""
        return self._days(self._layouts.floor())

    def cost_of(self, days: float) -> float | None:
        """Return what so many days cost; None without prices."""
        return None if self.price is None else self.price[1] * days * 24

    def begin(self, count: int = 1) -> None:
        """Let an executor begin what is likely to be simulated next."""
        self._layouts.begin(count)

    def run_next(self, follow: Follow = unfollowed) -> PlanOption | None:
        """Simulate the next layout; the best one so far stays in `best`."""
        ran = self._layouts.run_next(follow)
        if ran is None:
            return None
        option = self._option(ran.candidate, ran.metrics, ran.memory / GIB)
        if self.best is None or option.days < self.best.days:
            self.best, self._layout = option, ran.candidate
        return option

    def run_whole(self, follow: Follow) -> None:
        """Run the scenario of the best layout as `commsim run` does, and take its figures."""
        best = self.best
        if best is None or best.whole:
            return
        metrics = run(best.scenario, follow=follow).metrics
        assert metrics.memory_gib is not None
        assert self._layout is not None
        option = self._option(self._layout, metrics, float(metrics.memory_gib["peak"]))
        self.best = replace(option, whole=True)

    def _days(self, step: float | None) -> float | None:
        return None if step is None else step * self._question.steps / _DAY

    def _option(self, candidate: Candidate, metrics: Metrics, memory: float) -> PlanOption:
        step = metrics.step_time_s
        lasting = self._goodput(candidate, step)
        days = step * self._question.steps / _DAY
        if lasting is not None:
            days = days / lasting.goodput if lasting.goodput > 0 else float("inf")
        data = self._question.data(self.kind, self.nodes)
        data = with_settings(data, self._layouts.settings(candidate))
        hours = days * _DAY / _HOUR
        return PlanOption(
            kind=self.kind.name,
            nodes=self.nodes,
            gpus=self.gpus,
            layout=candidate.name,
            step_s=step,
            days=days,
            mfu=metrics.mfu,
            currency=None if self.price is None else self.price[0],
            per_hour=None if self.price is None else self.price[1],
            cost=self.cost_of(days),
            energy_kwh=None if self._power is None else self._power / _WATTS_PER_KILOWATT * hours,
            waits=tuple(waits_for(metrics)),
            scenario=data,
            memory_gib=memory,
            goodput=None if lasting is None else lasting.goodput,
            paid_nodes=self.kind.paid(self.nodes),
            bought=self.bought,
        )

    def _goodput(self, candidate: Candidate, step: float) -> Goodput | None:
        """Return what failures leave of the days, if the question has a section `goodput`."""
        file = self._scenario.file
        if file.goodput is None or file.workload.training is None:
            return None
        return goodput_of(
            file.goodput,
            self._layouts.cluster,
            parameters=self._layouts.parameters,
            precision=file.workload.training.precision,
            replicas=candidate.degrees.dp,
            step_time_s=step,
            where="--set goodput",
        )


def _times(factor: float, price: tuple[str, float] | None) -> tuple[str, float] | None:
    return None if price is None else (price[0], price[1] * factor)
