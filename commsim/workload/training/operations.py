"""
How many operations a training will be, before any of them is made.
"""

from __future__ import annotations

from commsim.limits import check_size, op_bytes
from commsim.workload.training.plan import TrainingPlan

__all__ = ["check_operations"]

_LEAST_STEPS = 2  # by default: the one that is measured, and one before it


def check_operations(
    plan: TrainingPlan, each: int, *, lanes: int, earlier: int, unfolds: bool
) -> None:
    """Refuse a training of more operations than memory has room for.

    `each` are the work items of a microbatch on all lanes together, of which each is an operation
    at least; steps before the last have `earlier` microbatches. `unfolds`: every rank gets a lane,
    though ranks are alike.

    Raises:
        ScenarioError: with the counts, and what of them can be less.
    """
    steps, count = plan.section.steps, plan.microbatches
    many = each * (count + (steps - 1) * earlier)
    check_size(
        many, op_bytes(many, copied=unfolds),
        f"{plan.where}: the work: {_many(steps, 'step')} of {_many(count, 'microbatch', 'es')},"
        f" each of {_many(each, 'operation')} on {_many(lanes, 'lane')},",
        _less(plan, lanes=lanes, unfolds=unfolds),
    )  # fmt: skip


def _many(count: int, name: str, ending: str = "s") -> str:
    return f"{count:,} {name}{ending * (count > 1)}"


def _less(plan: TrainingPlan, *, lanes: int, unfolds: bool) -> str:
    """Return what makes the work less, of what there is more than one of."""
    ways = [
        *(["fewer steps"] if plan.section.steps > _LEAST_STEPS else []),
        *(["fewer microbatches (a smaller batch.global)"] if plan.microbatches > 1 else []),
        *(["fewer ranks"] if lanes > 1 else []),
        *(["fewer layers"] if plan.model.shape.layers > 1 else []),
    ]
    found = ["Let equal ranks fold (engine.fold: auto, network: fluid)."] if unfolds else []
    if ways:
        found.append(f"Take {', or '.join(ways)}.")
    return " ".join(found)
