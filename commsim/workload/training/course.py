"""
The order in which a step's actions are issued, and which messages are posted with each.

Any order in which each action could run will do; messages from a neighbour are posted in the order
in which it sends them. Steps before the measured one may have fewer microbatches.
"""

from __future__ import annotations

from typing import NamedTuple

from commsim.workload.schedules import (
    Schedule,
    ScheduleStep,
    Work,
    execution_order,
    is_laid_out,
    is_schedule_file,
)
from commsim.workload.training.plan import TrainingPlan, schedule_of

__all__ = ["Course", "StepEnds", "course_of", "shorter_schedule", "warm_up"]

_ROUNDS = 2
"""How often a shorter step fills the pipeline: interleaved schedules are periodic from then on."""


class StepEnds(NamedTuple):
    """Positions: of each device's last action, each stage's first forward and last gradient."""

    final: dict[int, int]
    first: dict[int, int]
    last: dict[int, int]


class Course(NamedTuple):
    """A step's actions in an order in which each could run, those that run as one together.

    `posts`: the messages to post with each action that receives.
    """

    posts: dict[tuple[int, int], list[tuple[int, int, Work]]]
    limits: StepEnds
    together: list[tuple[ScheduleStep, ...]]


def course_of(schedule: Schedule) -> Course:
    """Return the order of a schedule's actions, with what is posted when."""
    order = list(execution_order(schedule))
    return Course(_posting_order(order), _limits(order), _together(order, schedule))


def _together(order: list[ScheduleStep], schedule: Schedule) -> list[tuple[ScheduleStep, ...]]:
    """Return the actions in order, those that run as one in one tuple."""
    found: list[tuple[ScheduleStep, ...]] = []
    for at in order:
        joins = at.position > 0 and schedule.is_paired(at.device, at.position - 1)
        if joins:
            found[-1] = (*found[-1], at)
        else:
            found.append((at,))
    return found


def _limits(order: list[ScheduleStep]) -> StepEnds:
    limits = StepEnds({}, {}, {})
    for at in order:
        limits.final[at.device] = at.position
        if at.action.work == Work.F:
            limits.first.setdefault(at.action.stage, at.position)
        elif at.action.work != Work.I:
            limits.last[at.action.stage] = at.position
    return limits


def _posting_order(order: list[ScheduleStep]) -> dict[tuple[int, int], list[tuple[int, int, Work]]]:
    """Return the messages (device, position, work) to post with each action that receives.

    Messages from one neighbour are posted in the order in which it sends them, even if they
    are needed in another.
    """
    sent: dict[tuple[int, int], list[tuple[int, int, Work]]] = {}
    place: dict[tuple[int, int], int] = {}
    for at in order:
        if at.feeds >= 0:
            messages = sent.setdefault((at.device, at.feeds), [])
            place[at.device, at.position] = len(messages)
            messages.append((at.device, at.position, at.action.work))
    posted: dict[tuple[int, int], int] = {}
    posts: dict[tuple[int, int], list[tuple[int, int, Work]]] = {}
    for at in order:
        if at.producer is not None:
            link = (at.producer[0], at.device)
            begin, end = posted.get(link, 0), place[at.producer] + 1
            posts[at.device, at.position] = sent[link][begin:end]
            posted[link] = max(begin, end)
    return posts


def warm_up(plan: TrainingPlan) -> int:
    """Return the microbatches of a shorter step."""
    return _ROUNDS * plan.layout.degree("pp")


def shorter_schedule(plan: TrainingPlan) -> Schedule | None:
    """Return the schedule with just enough microbatches; None if that would not be far fewer.

    One that was read from a file, or laid out for the times of its stages, stays as it is.
    """
    parallel, count = plan.section.parallel, warm_up(plan)
    fixed = is_schedule_file(parallel.schedule) or is_laid_out(parallel.schedule)
    if fixed or plan.microbatches < 2 * count:
        return None
    return schedule_of(plan.section, count, where=f"{plan.where}.parallel")
