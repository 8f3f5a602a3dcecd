"""
What-ifs if a recording does not tell host work from waiting: run both ways, best and worst.

Beside an async call of Gloo a gap of a CPU thread may be `Work.wait()` or work, and without Python
frames nobody knows. The replay takes gaps that end with a call for waiting. A changed run is
replayed again with all of them as work; the truth lies between, gap by gap.
"""

from __future__ import annotations

from msgspec.structs import replace

from commsim.study.replay.errors import steps
from commsim.study.run import Result
from commsim.timeline import Timeline
from commsim.units import PS_PER_MS, PS_PER_SECOND, format_time

__all__ = ["bounded", "is_unsure"]


def is_unsure(unsure: int) -> bool:
    """Say whether so much time of unknown use (ps, all ranks) can change a conclusion."""
    return unsure > PS_PER_MS


def bounded(result: Result, unsure: int, other: Timeline) -> Result:
    """Return a what-if's result with the steps of both readings of its gaps.

    `other` is the same what-if with the gaps, `unsure` ps in all, as work.
    """
    waiting, working = int(steps(result.timeline).max()), int(steps(other).max())
    best, worst = sorted((waiting, working))
    said = (
        f"what-if: {format_time(unsure)} of the ranks are waiting or work, nobody recorded which:"
        f" the step is between {format_time(best)} and {format_time(worst)}. Record with"
        " with_stack=True to tell."
    )
    bounds = {
        "unknown_s": unsure / PS_PER_SECOND,
        "best_step_s": best / PS_PER_SECOND,
        "worst_step_s": worst / PS_PER_SECOND,
    }
    extra = {**result.extra, "host_work": bounds}
    return replace(result, notes=(*result.notes, said), extra=extra)
