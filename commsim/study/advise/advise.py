"""
Which layout to train with: all that fit, the fastest first, with reasons.

Every layout gets a cheap lower bound of its step time. Those with the lowest bounds are checked
for memory, exactly and without a run, and get a tighter bound, the floor. Those that fit are
simulated in the order of their floors until no floor left is below the best step times found. So
the answer is the best of the whole space, not of a sample.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import msgspec
import yaml
from msgspec.structs import replace

from commsim._version import __version__
from commsim.errors import ScenarioError
from commsim.files import write_json, write_text
from commsim.follow import Follow, unfollowed
from commsim.metrics import Metrics
from commsim.scenario import Scenario, read_scenario, scenario_from
from commsim.study.advise.infeasible import nothing_fits
from commsim.study.advise.kinds import LayoutKind, best_of_kinds
from commsim.study.advise.layouts import LEAST_BLOCK, Candidate, candidate_of
from commsim.study.advise.reasons import facts, reasons, waits_for
from commsim.study.advise.search import MOST, SLACK, Known, Search, search
from commsim.study.advise.settings import run_whole, settings_of, with_settings
from commsim.study.advise.simulate import Pool, Ran, Worker, workers
from commsim.study.advise.stacks import OtherStack, other_stacks
from commsim.units import GIB, format_time
from commsim.workload import chosen_kind

__all__ = ["Advice", "Ranked", "advise"]


_ELSEWHERE = 3
"""So many of the best are run on other stacks."""


class Progress(Protocol):
    """Receives the progress of a search."""

    def begin(self, what: str, total: int | None) -> None:
        """A part of the work begins that has `total` pieces; None: unknown."""

    def tick(self) -> None:
        """One piece is done."""


class Ranked(msgspec.Struct, frozen=True):
    """A simulated layout: its place, how to run it, its figures, and why it is as it is."""

    rank: int
    candidate: Candidate
    settings: dict[str, Any]
    metrics: Metrics
    memory_gib: float
    floor_s: float
    waits_for: tuple[str, ...]
    reasons: tuple[str, ...]

    @property
    def name(self) -> str:
        """The layout in one line."""
        return self.candidate.name

    @property
    def cost_per_1e9_tokens(self) -> float | None:
        """Money per 1e9 tokens; None if no prices are known."""
        cost = self.metrics.cost
        return None if cost is None else cost["per_1e9_tokens"]

    def to_dict(self) -> dict[str, Any]:
        """Return the layout as JSON."""
        metrics = self.metrics.to_dict()
        kept = ("step_time_s", "tokens_per_s", "mfu", "bubble_fraction", "breakdown", "cost")
        return {
            "rank": self.rank,
            "name": self.name,
            "training": self.settings,
            **{key: metrics[key] for key in kept},
            "memory_gib": self.memory_gib,
            "cost_per_1e9_tokens": self.cost_per_1e9_tokens,
            "floor_s": self.floor_s,
            "waits_for": list(self.waits_for),
            "reasons": list(self.reasons),
        }


class Advice(msgspec.Struct, frozen=True):
    """The best layouts for a scenario's model and cluster.

    `given` is the layout that the scenario itself describes, if it is one that was tried and
    fits; `kinds` the best of each other kind of layout. Of the layouts that can run `considered`
    have a bound, the `judged` with the lowest were looked at for memory, `fit` of these fit, and
    `simulated` were run. All are judged on one `stack`; `others` say what the first of them take on
    others. `best` is the first layout as the plain data of a scenario, whose run gives its figures
    to the digit; None if a loaded `Scenario` was given.
    """

    scenario: str
    stack: str
    layouts: tuple[Ranked, ...]
    given: Ranked | None
    kinds: tuple[LayoutKind, ...]
    others: tuple[OtherStack, ...]
    facts: tuple[str, ...]
    considered: int
    judged: int
    fit: int
    simulated: int
    notes: tuple[str, ...]
    best: dict[str, Any] | None = None

    def __repr__(self) -> str:
        best = self.layouts[0]
        step = format_time(best.metrics.step_time_s * 1e12)
        return f"Advice({self.scenario!r}, best of {self.considered}: {best.name}, step {step})"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of `commsim advise`."""
        return {
            "schema": 1,
            "commsim": __version__,
            "scenario": self.scenario,
            "stack": self.stack,
            "considered": self.considered,
            "judged": self.judged,
            "fit": self.fit,
            "simulated": self.simulated,
            "facts": list(self.facts),
            "layouts": [one.to_dict() for one in self.layouts],
            "given": None if self.given is None else self.given.to_dict(),
            "kinds": [{"kind": one.kind, "says": one.says} for one in self.kinds],
            "other_stacks": [
                msgspec.structs.asdict(one) | {"setting": one.setting} for one in self.others
            ],
            "notes": list(self.notes),
        }

    def save_scenario(self, path: str | Path) -> None:
        """Write the first layout as a scenario.

        Raises:
            ScenarioError: a loaded `Scenario` was asked about, whose text is not known.
        """
        if self.best is None:
            raise ScenarioError(
                f"{path}: what was asked about was loaded before. Ask with its file or name."
            )
        write_text(Path(path), yaml.safe_dump(self.best, sort_keys=False))

    def save_json(self, path: str | Path) -> None:
        """Write `to_dict` to a file."""
        write_json(self.to_dict(), Path(path))


def advise(
    scenario: Scenario | str | Path,
    sets: Iterable[str] = (),
    *,
    top: int = 5,
    executor: str = "serial",
    progress: Progress | None = None,
    follow: Follow = unfollowed,
) -> Advice:
    """Return the `top` fastest layouts for the model, batch and cluster of a training scenario.

    `executor` runs the simulations, as `sweep`'s does: processes, processes:N, serial, dask or
    dask:ADDRESS. The answer does not depend on it. `progress` hears what is being done, `follow` is
    given a function that says which share of a run of the best layout is done.

    Raises:
        ScenarioError: not a training scenario, or no layout that can run fits; by how much it
            fails and what would fit; no such executor.
    """
    data = None
    if not isinstance(scenario, Scenario):
        data, where, folder, name = read_scenario(scenario, sets)
        scenario = scenario_from(data, where, folder=folder, default_name=name)
    _check(scenario, top)
    progress = progress or _Silent()
    with workers(scenario, executor) as pool:
        found = _opened(pool.local, progress)
        progress.begin("simulating", None)
        search(pool, found, top=top, tick=progress.tick)
        if not found.ran:
            raise ScenarioError(nothing_fits(scenario, list(found.smallest()), found.considered))
        given = _given(pool, found)
        progress.begin("running the best layout whole", None)
        _settle(scenario, pool.local, found, follow)
        progress.begin("running the best on other software", None)
        advice = _advice(scenario, pool.local, found, given, top)
        best = None if data is None else with_settings(data, advice.layouts[0].settings)
        return replace(advice, best=best)


class _Silent:
    def begin(self, what: str, total: int | None) -> None:
        """Say nothing."""

    def tick(self) -> None:
        """Say nothing."""


def _check(scenario: Scenario, top: int) -> None:
    kind = chosen_kind(scenario.file.workload, where=f"{scenario.where}: workload")
    if kind != "training":
        raise ScenarioError(
            f"{scenario.where}: workload.{kind}: advise is about training. Give a scenario with"
            " workload: {training: ...}, like llama3-405b."
        )
    section, file = scenario.file.workload.training, scenario.file
    if file.cluster is None:
        raise ScenarioError(f"{scenario.where}: cluster is missing: advise needs one.")
    if file.engine.network != "fluid":
        raise ScenarioError(
            f"{scenario.where}: engine.network: advise simulates identical ranks once, which"
            " needs fluid. Leave it out."
        )
    if top < 1:
        raise ScenarioError(f"--top {top}: give 1 or more.")
    assert section is not None


def _opened(worker: Worker, progress: Progress) -> Search:
    """Return the search of all layouts, with a bound for each."""
    judge = worker.judge
    progress.begin("bounding", sum(1 for _ in judge.degrees()))
    found = Search(judge)
    found.open(progress.tick)
    if not found.considered:
        raise ScenarioError(
            f"no layout can run: {worker.section.batch.global_} sequences, {judge.shape.layers}"
            f" layers and {judge.shape.heads} heads go with no degrees whose product is"
            f" {worker.cluster.world_size} GPUs. Change the batch or the cluster."
        )
    return found


def _given(pool: Pool, found: Search) -> Candidate | None:
    """Return the scenario's own layout if it is one of those that fit; simulated like them."""
    candidate = candidate_of(pool.local.section)
    judged = None if candidate is None else found.known(candidate)
    if judged is None or not judged.fits:
        return None
    if judged.candidate not in found.ran:
        found.ran[judged.candidate] = pool.local.run(judged.candidate)
    return judged.candidate


def _settle(scenario: Scenario, worker: Worker, found: Search, follow: Follow) -> None:
    """Run the first layout whole, as `commsim run` does, until the first is one that was."""
    whole: set[Candidate] = set()
    while (first := _in_order(found)[0].candidate) not in whole:
        found.ran[first] = run_whole(scenario, worker, first, follow)
        whole.add(first)


def _in_order(found: Search) -> list[Ran]:
    """Return the layouts that were simulated, the fastest first."""
    return sorted(found.ran.values(), key=lambda one: (one.metrics.step_time_s, one.candidate))


def _advice(
    scenario: Scenario, worker: Worker, found: Search, given: Candidate | None, top: int
) -> Advice:
    order = _in_order(found)
    own = next((at for at, one in enumerate(order, 1) if one.candidate == given), None)
    best = tuple(_ranked(place, one, worker, found) for place, one in enumerate(order[:top], 1))
    return Advice(
        scenario=scenario.name,
        stack=str(worker.section.compute.stack),
        layouts=best,
        given=None if own is None else _ranked(own, order[own - 1], worker, found),
        kinds=best_of_kinds(found, best[0].candidate),
        others=tuple(other_stacks(scenario, worker, order[: min(top, _ELSEWHERE)])),
        facts=tuple(facts(worker, found, best[0].metrics)),
        considered=found.considered,
        judged=len(found.judged),
        fit=sum(one.fits for one in found.judged.values()),
        simulated=len(found.ran),
        notes=(
            *_notes(worker, found, top),
            *_shortened(found.ran.values()),
            *_untried(found, best[-1].metrics.step_time_s),
            *_below_floors(found),
        ),
    )


def _ranked(rank: int, one: Ran, worker: Worker, found: Search) -> Ranked:
    return Ranked(
        rank=rank,
        candidate=one.candidate,
        settings=settings_of(worker, one.candidate),
        metrics=one.metrics,
        memory_gib=one.memory / GIB,
        floor_s=found.judged[one.candidate].floor,
        waits_for=tuple(waits_for(one.metrics)),
        reasons=tuple(reasons(one, found)),
    )


def _untried(found: Search, slowest: float) -> tuple[str, ...]:
    """Say how many layouts were left out although their floors left hope."""
    left = sum(known > Known.BOUND and least <= slowest for least, _, known in found.queue)
    if not left or len(found.ran) < MOST:
        return ()
    return (
        f"{left} more layouts have floors under the last of these, and were not simulated: the"
        f" {MOST} with the lowest floors were",
    )


def _below_floors(found: Search) -> tuple[str, ...]:
    """Say so if runs were faster than their floors: others might be, that were not run."""
    below = [
        1 - one.metrics.step_time_s * SLACK / found.judged[one.candidate].floor
        for one in found.ran.values()
    ]
    most = max(below)
    if most <= 0:
        return ()
    count = sum(one > 0 for one in below)
    return (f"{count} simulated layouts were up to {most:.1%} faster than their floors",)


def _shortened(ran: Iterable[Ran]) -> tuple[str, ...]:
    """Say how many layouts were timed by shorter steps."""
    count = sum(one.short for one in ran)
    if not count:
        return ()
    return (
        f"{count} of those simulated have long steps: timed by two with fewer microbatches, as each"
        " further one adds the same time (within 0.2 %)",
    )


def _notes(worker: Worker, found: Search, top: int) -> tuple[str, ...]:
    judged = len(found.judged)
    fit = sum(one.fits for one in found.judged.values())
    return (
        f"{found.considered} layouts can run: all degrees (cp down to {LEAST_BLOCK} tokens per"
        " rank); ddp, zero-1, zero-2, fsdp (which is zero-3), hsdp by node; gpipe, 1f1b,"
        " interleaved_1f1b with 2 or 4 virtual stages, zb_h1; micro 1 to 64; recompute"
        f" {', '.join(worker.judge.recomputes)}; every tp_overlap, and sequence parallelism,"
        " wherever tp is above 1",
        *worker.judge.remarks,
        f"{judged} of them have bounds low enough to be judged, of which {fit} fit;"
        f" {found.estimated} were estimated by models of few layers and {len(found.ran)} simulated;"
        f" the others would take longer than the slowest of the"
        f" best {top} with nothing else on the links",
        "memory: parameters, gradients, optimizer, activations at the schedule's peak, buffers, and"
        " estimates of the CUDA context, NCCL's buffers and the allocator's slack",
    )
