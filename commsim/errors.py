"""
commsim's errors: everything a user can cause ends in one of these, never in a traceback.

CommsimError
  ScenarioError        the file or the flags describe something impossible      (exit code 2)
    UnitError          "400 Gbsp": not a quantity
    TopologyError      rank 12 cannot reach rank 40
  TraceError           a trace cannot be read, or lacks what replay needs       (exit code 3)
  DeadlockError        ranks wait for each other; names the ranks and the ops   (exit code 4)

A message has three parts: what was found, where (file and field as the user wrote them),
and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "CommsimError",
    "DeadlockError",
    "ScenarioError",
    "TopologyError",
    "TraceError",
    "UnitError",
    "did_you_mean",
]


class CommsimError(Exception):
    """Anything that a user can cause. `exit_code` is what the command line ends with."""

    exit_code = 2


class ScenarioError(CommsimError):
    """The scenario, the flags or the Python call describe something impossible."""


class UnitError(ScenarioError):
    """A quantity is not one: no unit, an unknown unit, or not a number."""


class TopologyError(ScenarioError):
    """The cluster cannot carry what is asked of it: an unreachable pair, a missing NIC."""


class TraceError(CommsimError):
    """A trace cannot be read, or does not hold what replay needs."""

    exit_code = 3


class DeadlockError(CommsimError):
    """Work is left and nothing can run; the message names who waits for whom."""

    exit_code = 4


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the nearest known words, or the empty string.

    Words that are hardly further off than the nearest are named with it. Capitals are as small.
    """
    word, every = word.lower(), {one.lower(): one for one in known}
    near = difflib.get_close_matches(word, every, n=3, cutoff=_SIMILAR)
    best = [one for one in near if _similarity(word, one) >= _similarity(word, near[0]) - _EQUAL]
    named = [repr(every[one]) for one in best]
    if len(named) > 1:
        return f" Did you mean {', '.join(named[:-1])} or {named[-1]}?"
    return f" Did you mean {named[0]}?" if named else ""


_SIMILAR = 0.6  # difflib's own default: below it, a suggestion is more often wrong than right
_EQUAL = 0.02  # similarities nearer than this do not tell one word from another


def _similarity(word: str, known: str) -> float:
    return difflib.SequenceMatcher(None, known, word).ratio()
