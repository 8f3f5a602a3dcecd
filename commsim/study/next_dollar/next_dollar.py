"""
`next_dollar`: what the next dollar should buy, by runs of the scenario with more and with less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from commsim.cluster import ClusterSection
from commsim.errors import ScenarioError, did_you_mean
from commsim.executors import ExecutorName
from commsim.scenario import read_scenario, scenario_from
from commsim.study.next_dollar.alternatives import Alternative, SettingChange, setting_changes
from commsim.study.next_dollar.money import doubled_price
from commsim.study.next_dollar.reasons import hurts_words, idle_reason, link_uses
from commsim.study.next_dollar.resources import BETTER, Resource, resources_of
from commsim.study.next_dollar.runs import ChangedRuns
from commsim.study.next_dollar.upgrades import NOTICED, NextDollar, ResourceChange, Upgrade
from commsim.study.run import Result, run

if TYPE_CHECKING:
    pass

__all__ = ["next_dollar"]

_UNMOVED = 1e-4  # of the step: 10 % of what moves less when halved and doubled is not run
_SHOWN = 5e-4  # of the step: what a table in per cent shows
_FURTHER = (4.0, 8.0, 16.0)  # times, for where a gain ends
_FOLLOWED = 3  # resources whose gain is followed
_LEAST = 1 / 64  # share of what there is, below which no loss is looked for
_ROUNDS = 4  # halvings of the range in which a loss begins
_MANY_OPS = 20_000  # from here on runs are worth a process each


def next_dollar(
    scenario: str | Path | Mapping[str, Any],
    sets: Iterable[str] = (),
    *,
    prices: Mapping[str, float] | None = None,
    executor: str | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> NextDollar:
    """Run a scenario with each resource halved, 10 % worse, 10 % better and doubled.

    `prices` says what twice as much of a resource costs, by its key ("nic"), in the currency of
    the cluster's price per GPU and hour; without it, `prices` of a bought cluster say it of NICs,
    links between switches and nodes. `executor` is one of `sweep`'s; without it large
    scenarios go to processes.

    Raises:
        ScenarioError: the scenario cannot run, has no cluster, or a price is of nothing it has.
    """
    for key, price in (prices or {}).items():
        if not 0 <= price < math.inf:
            raise ScenarioError(f"--price {key}={price:g}: give a price of zero or more.")
    if executor is not None:
        ExecutorName.read(executor)
    data, where, folder, name = read_scenario(scenario, sets)
    if isinstance(data, Mapping):  # else it is refused as no scenario
        data = {key: value for key, value in data.items() if key != "sweep"}
    loaded = scenario_from(data, where, folder=folder, default_name=name)
    base = run(loaded)
    resources = resources_of(loaded.file, base.cluster, where)
    _check_prices(prices or {}, resources)
    if executor is None:
        executor = "processes" if len(base.timeline.graph) > _MANY_OPS else "serial"
    runs = ChangedRuns(data, where, folder, executor, progress)
    search = _Search(base, runs)
    found = search.upgrades(resources)
    assert loaded.file.cluster is not None
    section = loaded.file.cluster
    upgrades = [_priced(one, base, section, where, prices or {}) for one in found]
    order = ("hardware", "size", "setting")
    upgrades.sort(key=lambda one: (order.index(one.kind), -(one.saved_s or 0.0)))
    others = search.alternatives(setting_changes(loaded.file, base, where))
    return NextDollar(loaded.name, base, tuple(upgrades), len(runs) + 1, others)


class _Search:
    """The rounds of runs that one base run asks for."""

    def __init__(self, base: Result, runs: ChangedRuns) -> None:
        self._base, self._runs = base, runs
        self._step = base.metrics.step_time_s
        self._uses = link_uses(base.timeline)

    def upgrades(self, resources: list[Resource]) -> list[Upgrade]:
        """Run each resource's changes, then follow gains and losses to their ends."""
        self._run(resources, BETTER[-1:])
        self._run((one for one in resources if not self._idle(one)), BETTER[:1])
        moved = [one for one in resources if one.kind == "hardware" and self._moves(one)]
        self._run(moved, BETTER[1:-1])
        following = self._leading(resources)
        for better in _FURTHER:
            self._run(following, (better,))
            following = [one for one in following if self._saturates(one, better) is None]
        saturates = {one.key: self._saturates(one) for one in self._leading(resources)}
        idle = [one for one in resources if self._uses.of(one.links)[0] and not self._gains(one)]
        hurts = self._hurts(idle)
        return [self._upgrade(one, saturates.get(one.key), hurts.get(one.key)) for one in resources]

    def alternatives(self, changes: list[SettingChange]) -> tuple[Alternative, ...]:
        """Run other settings; those that save most come first, those that cannot run last."""
        self._runs.run(one.sets for one in changes)
        found = [self._alternative(one) for one in changes]
        return tuple(sorted(found, key=lambda one: (one.saved_s is None, -(one.saved_s or 0.0))))

    def _alternative(self, change: SettingChange) -> Alternative:
        ran = self._runs.result(change.sets)
        if ran is None:
            error = self._plain_error(change.sets)
            return Alternative(change.title, change.sets, error=error)
        step, memory = float(ran["step_time_s"]), ran["memory_gib"]
        fits = None if memory is None else bool(memory["fits"])
        return Alternative(change.title, change.sets, step, self._step - step, fits)

    def _run(self, resources: Iterable[Resource], better: Iterable[float]) -> None:
        wanted = [one.sets(times) for times in better for one in resources]
        self._runs.run(sets for sets in wanted if sets is not None)

    def _saved(self, resource: Resource, better: float) -> float | None:
        sets = resource.sets(better)
        step = None if sets is None else self._runs.step(sets)
        return None if step is None else self._step - step

    def _idle(self, resource: Resource) -> bool:
        """Say whether less of a resource cannot be felt: nothing goes over it (or it is room, not
        speed), and twice as much changed nothing.
        """
        unused = bool(resource.links) and not self._uses.of(resource.links)[0]
        if not unused and resource.key != "gpu_memory":
            return False
        saved = self._saved(resource, BETTER[-1])
        return saved is not None and abs(saved) <= _UNMOVED * self._step

    def _moves(self, resource: Resource) -> bool:
        if self._idle(resource):
            return False
        changes = [self._saved(resource, better) for better in (BETTER[0], BETTER[-1])]
        return any(abs(saved) > _UNMOVED * self._step for saved in changes if saved is not None)

    def _gains(self, resource: Resource) -> bool:
        return (self._saved(resource, 2.0) or 0.0) >= NOTICED * self._step

    def _leading(self, resources: list[Resource]) -> list[Resource]:
        gaining = [one for one in resources if one.kind == "hardware" and self._gains(one)]
        return sorted(gaining, key=lambda one: -(self._saved(one, 2.0) or 0.0))[:_FOLLOWED]

    def _saturates(self, resource: Resource, upto: float = _FURTHER[-1]) -> float | None:
        """Return the factor beyond which another doubling saves less than what is noticed; None if
        none does of those `upto` a factor.
        """
        before, times = self._saved(resource, 2.0), 2.0
        for better in (one for one in _FURTHER if one <= upto):
            saved = self._saved(resource, better)
            if saved is None or before is None:
                return None
            if saved - before < NOTICED * self._step:
                return times
            before, times = saved, better
        return None

    def _hurts(self, resources: list[Resource]) -> dict[str, float]:
        """Return the share of each resource at which the step is longer by what is noticed."""
        low = {one.key: 0.5 for one in resources}
        high = dict.fromkeys(low, 1.0)
        left = list(resources)
        found: list[Resource] = []
        while left:
            self._runs.run(s for one in left if (s := one.sets(low[one.key])) is not None)
            felt = [one for one in left if self._felt(one, low[one.key])]
            found += felt
            left = [one for one in left if one not in felt and low[one.key] > _LEAST]
            for one in left:
                high[one.key], low[one.key] = low[one.key], low[one.key] / 2
        for _ in range(_ROUNDS):
            middle = {one.key: (low[one.key] * high[one.key]) ** 0.5 for one in found}
            self._runs.run(s for one in found if (s := one.sets(middle[one.key])) is not None)
            for one in found:
                side = low if self._felt(one, middle[one.key]) else high
                side[one.key] = middle[one.key]
        return {one.key: low[one.key] for one in found}

    def _felt(self, resource: Resource, share: float) -> bool:
        return -(self._saved(resource, share) or 0.0) >= NOTICED * self._step

    def _upgrade(self, resource: Resource, saturates: float | None, hurts: float | None) -> Upgrade:
        changes = tuple(self._change(resource, better) for better in BETTER)
        saved = changes[-1].saved_s
        return Upgrade(
            resource.key, resource.title, resource.kind, resource.now, changes, saved,
            saturates, hurts, why=self._why(resource, changes, saved, hurts),
        )  # fmt: skip

    def _change(self, resource: Resource, better: float) -> ResourceChange:
        sets = resource.sets(better)
        if sets is None:
            return ResourceChange(better, (), error="not to be had: all counts are whole numbers")
        if better < 1 and self._idle(resource):
            return ResourceChange(better, sets, self._step, 0.0)
        if better in BETTER[1:-1] and not (resource.kind == "hardware" and self._moves(resource)):
            if resource.kind == "hardware":
                return ResourceChange(better, sets, self._step, 0.0)
            return ResourceChange(better, (), error="only halved and doubled")
        step = self._runs.step(sets)
        saved = None if step is None else self._step - step
        return ResourceChange(better, sets, step, saved, self._plain_error(sets))

    def _plain_error(self, sets: tuple[str, ...]) -> str | None:
        """Return what was wrong with a change, without the file and the change that lead it."""
        error = self._runs.error(sets)
        return None if error is None else error.rpartition(f"{sets[-1]}): ")[2]

    def _why(
        self,
        resource: Resource,
        changes: tuple[ResourceChange, ...],
        saved: float | None,
        hurts: float | None,
    ) -> str:
        if resource.kind == "size" and len(changes[-1].sets) > 2:
            return f"twice as many take {changes[-1].sets[-1].rpartition('.')[2]}: the batch stays"
        if resource.kind != "hardware":
            return changes[-1].error or ""
        if saved is None:
            return changes[-1].error or ""
        if saved >= NOTICED * self._step:
            return ""
        told = idle_reason(resource.key, resource.links, self._uses, self._base)
        moved = max((abs(change.saved_s or 0.0) for change in changes), default=0.0)
        if not resource.links and resource.key != "gpu_memory" and moved > _SHOWN * self._step:
            told = "little of the critical path waits for it"
        if hurts is not None:
            told += f"; {hurts_words(resource.key, resource.now, hurts)}"
        if saved < -NOTICED * self._step:
            told += "; twice as much makes the step longer: the library chooses another way for it"
        return told


def _check_prices(prices: Mapping[str, float], resources: list[Resource]) -> None:
    known = [one.key for one in resources]
    for key in prices:
        if key not in known:
            raise ScenarioError(
                f"--price {key}: there is none of that.{did_you_mean(key, known)}"
                f" Known: {', '.join(known)}."
            )


def _priced(
    upgrade: Upgrade,
    base: Result,
    section: ClusterSection,
    where: str,
    prices: Mapping[str, float],
) -> Upgrade:
    """Return an upgrade with what it may cost, and what a second that it saves costs.

    `prices` are those said, by resource; otherwise the cluster's own prices count.
    """
    doubled = upgrade.changes[-1].step_time_s
    cluster, cost = base.cluster, base.metrics.cost
    if not doubled or upgrade.saved_s is None or upgrade.kind == "setting" or cluster is None:
        return upgrade
    per_hour = None if cost is None else cost.get("per_hour")
    if isinstance(per_hour, float):
        worth = per_hour * upgrade.saved_s / doubled
        upgrade = replace(upgrade, worth_per_hour=worth)
    if upgrade.resource in prices:
        whole = prices[upgrade.resource] * cluster.world_size
    else:
        bill = doubled_price(upgrade.resource, cluster, section, where)
        if bill is None:
            return upgrade
        whole = bill.per_hour
        upgrade = replace(upgrade, buys=bill.buys)
    saved = 3600 * (upgrade.saved_s or 0.0) / doubled
    return replace(
        upgrade, price_per_hour=whole, per_saved_second=whole / saved if saved > 0 else None
    )
