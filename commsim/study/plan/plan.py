"""
`plan`: which cluster, how large, in which layout, for so many tokens in so many days.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from commsim._version import __version__
from commsim.errors import ScenarioError
from commsim.executors import ExecutorName
from commsim.files import write_json, write_text
from commsim.follow import Follow, unfollowed
from commsim.models import model_preset
from commsim.study.plan.option import PlanOption
from commsim.study.plan.question import (
    NodeKind,
    PlanQuestion,
    node_kinds,
    odd_part,
    read_seconds,
    read_tokens,
    with_rack_parts,
)
from commsim.study.plan.search import PlanSearch
from commsim.study.plan.words import changes_of, decides_of, headline_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["ClusterPlan", "plan"]

_RUNS = 12


class ClusterPlan(msgspec.Struct, frozen=True):
    """The clusters that make it: `options` are the sizes that were simulated, in their best layouts
    and in the order of days; `simulated` counts the runs.

    `smallest`, `cheapest` and `fastest` are among them, None if none makes it or none has a
    price. `decides` says why, `changes` what would change it, `notes` what was assumed.
    `complete` is False if the search was interrupted or its runs were spent.
    """

    question: dict[str, Any]
    options: tuple[PlanOption, ...]
    smallest: PlanOption | None
    cheapest: PlanOption | None
    fastest: PlanOption | None
    decides: tuple[str, ...]
    changes: tuple[str, ...]
    notes: tuple[str, ...]
    simulated: int
    complete: bool

    @property
    def headline(self) -> str:
        """The answer: the smallest, the cheapest and the fastest, and on which stack."""
        return headline_of(
            self.question,
            self.smallest,
            self.cheapest,
            self.fastest,
            simulated=self.simulated,
            complete=self.complete,
        )

    def __repr__(self) -> str:
        told = "nothing makes it" if self.smallest is None else f"smallest {self.smallest.name}"
        return f"ClusterPlan({self.question['model']!r}, {self.simulated} simulated, {told})"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of `commsim plan`."""

        def place(option: PlanOption | None) -> int | None:
            return None if option is None else self.options.index(option)

        return {
            "schema": 1,
            "commsim": __version__,
            "headline": self.headline,
            "question": self.question,
            "options": [option.to_dict() for option in self.options],
            "smallest": place(self.smallest),
            "cheapest": place(self.cheapest),
            "fastest": place(self.fastest),
            "decides": list(self.decides),
            "changes": list(self.changes),
            "notes": list(self.notes),
            "simulated": self.simulated,
            "complete": self.complete,
        }

    def figures(self) -> list[Figure]:
        """Return the charts: money or GPUs against days, and the options as a table."""
        from commsim.charts import plan_figures

        return plan_figures(self.to_dict())

    def save(self, path: str | Path) -> None:
        """Write .json or .html. Raises ScenarioError for another suffix."""
        path = Path(path)
        if path.suffix == ".json":
            write_json(self.to_dict(), path)
        elif path.suffix == ".html":
            from commsim.charts import save_page

            save_page(self.figures(), path)
        else:
            raise ScenarioError(f"{path}: write .json or .html.")

    def save_scenarios(self, folder: str | Path) -> list[Path]:
        """Write smallest.yaml, cheapest.yaml and fastest.yaml, as far as there are such."""
        written = []
        for name in ("smallest", "cheapest", "fastest"):
            option: PlanOption | None = getattr(self, name)
            if option is not None:
                path = Path(folder) / f"{name}.yaml"
                path.parent.mkdir(parents=True, exist_ok=True)
                write_text(path, yaml.safe_dump(option.scenario, sort_keys=False))
                written.append(path)
        return written


def plan(
    model: str,
    *,
    tokens: float | str,
    on: Iterable[str] | str,
    days: float | str | None = None,
    budget: float | None = None,
    seq_len: int = 8192,
    batch_tokens: int = 2**22,
    most_gpus: int = 8192,
    sets: Iterable[str] = (),
    layouts: str = "usual",
    runs: int = _RUNS,
    executor: str = "serial",
    progress: Callable[[str], None] = lambda _: None,
    follow: Follow = unfollowed,
) -> ClusterPlan:
    """Return the clusters on which `model` (a preset) trains on `tokens` in `days`.

    `on` are presets or cluster files with prices. `days` may be text, like "30d". `sets` change the
    training, as "workload.training.precision=fp8-cs", or say what fails, as
    "goodput.storage=200GB/s": days, money and energy are then with failures and checkpoints.
    `layouts` "usual" tries those that people run, "all" what `advise` tries. `runs` simulations are
    spent at most; `executor` runs them, as `sweep`'s does, and does not change the answer. An
    interrupt (Ctrl-C) ends the search and returns what is there. `progress` hears what is being
    done, `follow` is given a function that says which share of that is done, where it is known.

    Raises:
        ScenarioError: an unknown model or cluster, no deadline and no budget, or a budget if a
            cluster has no price.
    """
    model_preset(model)
    if days is None and budget is None:
        raise ScenarioError("give a deadline (--in 30d) or a budget (--budget), or both.")
    if budget is not None and not 0 < budget < math.inf:
        raise ScenarioError(f"--budget {budget:g}: give an amount above zero that is finite.")
    if layouts not in ("usual", "all"):
        raise ScenarioError(f"--layouts {layouts}: give usual or all.")
    counts = {"--seq-len": seq_len, "--most-gpus": most_gpus, "--runs": runs}
    for option, count in counts.items():
        if count < 1:
            raise ScenarioError(f"{option} {count}: give 1 or more.")
    if batch_tokens < seq_len:
        raise ScenarioError(
            f"--batch-tokens {batch_tokens}: is less than one sequence of {seq_len} tokens."
        )
    asked = PlanQuestion(
        model=model,
        tokens=read_tokens(tokens),
        seconds=None if days is None else read_seconds(days),
        budget=budget,
        kinds=node_kinds(on.split(",") if isinstance(on, str) else on),
        sequence=seq_len,
        batch_tokens=batch_tokens,
        most_gpus=most_gpus,
        sets=tuple(sets),
    )
    question = with_rack_parts(asked)
    interrupted = False
    with ExecutorName.read(executor).opened() as opened:
        found = PlanSearch(
            question,
            usual=layouts == "usual",
            runs=runs,
            progress=progress,
            follow=follow,
            executor=opened,
        )
        try:
            found.run()
        except KeyboardInterrupt as stopped:
            if type(stopped) is not KeyboardInterrupt:  # SIGTERM: nobody waits for an answer
                raise
            interrupted = True
    return _plan(question, found, usual=layouts == "usual", interrupted=interrupted)


def _plan(
    question: PlanQuestion, found: PlanSearch, *, usual: bool, interrupted: bool
) -> ClusterPlan:
    smallest, cheapest, fastest = found.winners
    options = tuple(sorted(found.options, key=lambda one: (one.days, one.gpus)))
    return ClusterPlan(
        question={
            "model": question.model,
            "tokens": question.tokens,
            "days": None if question.seconds is None else question.seconds / 86400,
            "budget": question.budget,
            "on": [kind.name for kind in question.kinds],
            "seq_len": question.sequence,
            "batch_tokens": question.sequences * question.sequence,
            "steps": round(question.steps),
            "stack": found.stack,
        },
        options=options,
        smallest=smallest,
        cheapest=cheapest,
        fastest=fastest,
        decides=tuple(decides_of(found, smallest, cheapest, fastest)),
        changes=tuple(changes_of(found, question, smallest, cheapest)),
        notes=tuple(_notes(question, found, usual=usual, interrupted=interrupted)),
        simulated=found.simulated,
        complete=not interrupted and not found.left,
    )


def _pauses(found: PlanSearch) -> str:
    if any(option.goodput is not None for option in found.options):
        return "with failures and checkpoints by `goodput`; without evaluation"
    return (
        "without a pause: no failures and checkpoints (--set goodput.storage=200GB/s adds them) and"
        " no evaluation"
    )


def _notes(
    question: PlanQuestion, found: PlanSearch, *, usual: bool, interrupted: bool
) -> list[str]:
    notes = []
    if interrupted:
        notes.append("interrupted: the best of what was simulated until then")
    if found.left:
        notes.append(
            f"{_sizes(found.left)} hope and {'was' if found.left == 1 else 'were'} not simulated:"
            " all runs were spent (--runs gives more)"
        )
    if found.winners[1] is None and any(one.cost is None for one in found.options):
        notes.append(
            "no price is known of what makes it, so none is called the cheapest. A cluster file"
            " with `prices` in place of the preset's name adds one"
        )
    sequences = question.sequences
    notes.append(
        f"{question.steps:,.0f} steps of {sequences:,} sequences of {question.sequence:,} tokens,"
        f" {_pauses(found)}"
    )
    if found.causal_share is not None:
        notes.append(
            "MFU counts full attention, as published tables do; by what a causal mask leaves of it,"
            f" {found.causal_share:.3g} of that"
        )
    notes += found.remarks
    notes += [_rack(question, kind) for kind in question.kinds if kind.used < kind.rack]
    if usual:
        notes.append(
            "layouts: the usual ones (tp within NVLink, 1f1b, micro up to 4, zero-1 or fsdp);"
            " `commsim advise` on the scenario looks at all"
        )
    return notes


def _sizes(count: int) -> str:
    many = f"{count} sizes have floors that leave"
    return "1 size has a floor that leaves" if count == 1 else many


def _rack(question: PlanQuestion, kind: NodeKind) -> str:
    """Say why a part of each rack trains, and which batch would take racks whole."""
    odd = odd_part(kind.rack)
    sequences = odd * 2 ** round(math.log2(max(question.sequences / odd, 1)))
    return (
        f"{kind.name}: {kind.used} of the {kind.rack} nodes of an NVLink domain train, all are paid"
        f" for: layouts divide the batch, and {question.sequences:,} sequences are no multiple of"
        f" {odd} (--batch-tokens {sequences * question.sequence} are, and take racks whole)"
    )
