"""
Whether a replay can be believed, in words: the line that it begins with, and a note.
"""

from __future__ import annotations

from typing import Any

from commsim.metrics import Metrics
from commsim.study.replay.errors import steps, worst
from commsim.study.replay.self_check import AccountCheck
from commsim.timeline import Timeline
from commsim.units import format_time

__all__ = ["headline", "is_trusted", "self_check_note"]

_TRUSTED = 0.05  # a self-check above this makes what-ifs doubtful
_HOST = 0.1  # of a step: waits for the host that a profiler may have made


def is_trusted(check: dict[str, Any], accounts: AccountCheck) -> bool:
    """Say whether the replay with recorded transfers met every step and its account."""
    return worst(check) <= _TRUSTED and not accounts.misses


def headline(measured: Timeline, metrics: Metrics, again: Timeline, accounts: AccountCheck) -> str:
    """Return the line that a replay begins with: its step, and whether to believe the account.

    `metrics` are those of `measured`, and `again` is its replay with the recorded transfers.
    """
    was, now = int(steps(measured).max()), int(steps(again).max())
    line = f"measured step {format_time(was)}, replayed {format_time(now)}"
    if accounts.misses:
        return f"{line}. DO NOT TRUST THE BREAKDOWN: {accounts.verdict()}."
    return f"{line}; {accounts.verdict()}.{_profiled(metrics)}"


def _profiled(measured: Metrics) -> str:
    """Return a sentence on waits for the host, which a profiler makes longer, "" without many."""
    parts = measured.breakdown
    if parts.host_s <= _HOST * parts.whole_s:
        return ""
    return " Profilers slow hosts: time a step without one before you act on waits for the host."


def self_check_note(check: dict[str, Any], accounts: AccountCheck) -> str:
    """Say how well the replay with recorded transfers meets the recording."""
    miss = worst(check)
    if miss > _TRUSTED:
        return (
            f"self-check: with recorded transfers the replay misses a rank's measured step by"
            f" {miss:.1%}: do not trust what-ifs."
        )
    if accounts.misses:
        return f"self-check: the account of time misses the recording: {accounts.verdict()}."
    return (
        f"self-check: with recorded transfers every step is met within {miss:.2%};"
        f" {accounts.verdict()}."
    )
