"""
Runs of one scenario with changes, each once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from commsim.study.sweep import Outcome, SweepPoint, point_of, run_points

__all__ = ["ChangedRuns"]


class ChangedRuns(msgspec.Struct):
    """Runs the scenario `data` with changes as `--set` takes them, and remembers the outcomes.

    `executor` is one of a sweep; `progress` hears how many runs are done of how many asked for.
    """

    data: Any
    where: str
    folder: str
    executor: str = "serial"
    progress: Callable[[int, int], None] = lambda done, of: None
    _known: dict[tuple[str, ...], Outcome] = msgspec.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._known)

    def run(self, changes: Iterable[tuple[str, ...]]) -> None:
        """Run what has not been run yet."""
        missing = [sets for sets in dict.fromkeys(changes) if sets not in self._known]
        keys: dict[str, tuple[SweepPoint, list[tuple[str, ...]]]] = {}
        for sets in missing:
            settings = tuple((path, value) for path, _, value in (s.partition("=") for s in sets))
            point = point_of(self.data, settings, self.where, self.folder)
            keys.setdefault(point.key, (point, []))[1].append(sets)
        before, of = len(self._known), len(self._known) + len(missing)
        self.progress(before, of)
        for outcome in run_points([point for point, _ in keys.values()], self.executor):
            for sets in keys[outcome.key][1]:
                self._known[sets] = outcome
            self.progress(len(self._known), of)

    def error(self, sets: tuple[str, ...]) -> str | None:
        """Return what was wrong with a change that has been run."""
        return self._known[sets].error

    def result(self, sets: tuple[str, ...]) -> dict[str, Any] | None:
        """Return the JSON of a change that has been run."""
        return self._known[sets].result

    def step(self, sets: tuple[str, ...]) -> float | None:
        """Return the step time (s) of a change, which is run if it has not been."""
        if sets not in self._known:
            self.run([sets])
        result = self._known[sets].result
        return None if result is None else float(result["step_time_s"])
