"""
What `fit_compute.py` fits with: its constants, and predictions of rows by other constants.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from fitted import Fitted
from published_split import StageRow, stage_ratios
from step_compute import compute_seconds
from training_rows import Row

from commsim.models import recipe_of

__all__ = ["Parameter", "Simulated", "Tangent", "read_parameters", "read_simulated"]

Array = np.ndarray
HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Parameter:
    """One constant that is fitted: its place, bounds, prior, and how far it may stray (log).

    `also` are places that have the same value: stacks that differ in settings only.
    """

    place: str
    low: float
    high: float
    prior: float
    stray: float = 0.5
    also: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """All places that the constant stands at."""
        return (self.place, *self.also)


def read_parameters() -> list[Parameter]:
    """Return the constants that are fitted, from `fit_compute.yaml`."""
    data = yaml.safe_load((HERE / "fit_compute.yaml").read_text())
    return [
        Parameter(place, **{**entry, "also": tuple(entry.get("also", ()))})
        for place, entry in data.items()
    ]


class Simulated:
    """The seconds that the engine predicts for rows by the constants `base`."""

    def __init__(self, seconds: dict[str, float], rows: Sequence[Row], base: Fitted) -> None:
        known = {row.case_id: row for row in rows}
        self.seconds = {case: value for case, value in seconds.items() if case in known}
        self._beside = {
            case: value - compute_seconds(known[case], base) for case, value in self.seconds.items()
        }
        self._computed: dict[tuple[str, int, int, int], float] = {}

    def predict(self, row: Row, fitted: Fitted) -> float:
        """Return the engine's seconds, changed by what the row computes by other constants."""
        generation = fitted.generations[fitted.generation_name(row.gpu_spec)]
        recipe = fitted.recipes.get(recipe_of(row.precision).name)
        key = (row.case_id, hash(str(generation)), hash(str(fitted.stack(row.stack))),
               hash(str(recipe)))  # fmt: skip
        if key not in self._computed:
            self._computed[key] = compute_seconds(row, fitted)
        return self._beside.get(row.case_id, 0.0) + self._computed[key]

    def ratios(self, stages: Sequence[StageRow], fitted: Fitted) -> Array:
        """Return predicted over published stage times."""
        return np.asarray(stage_ratios(stages, fitted)) if stages else np.ones(0)


class Tangent:
    """Predictions as straight lines through those of `simulated`, in each of `parameters`.

    A change of a constant by some percent moves a step almost in proportion, so that a fit by
    lines is that by the model, in a hundredth of the time.
    """

    def __init__(
        self,
        simulated: Simulated,
        rows: Sequence[Row],
        stages: Sequence[StageRow],
        base: Fitted,
        parameters: Sequence[Parameter],
    ) -> None:
        self.seconds = simulated.seconds
        self._parameters = parameters
        self._place = {row.case_id: at for at, row in enumerate(rows)}
        self._from = self._constants(base)
        self._begin = np.array([simulated.predict(row, base) for row in rows])
        self._ratios = np.log(simulated.ratios(stages, base))
        slopes, ratio_slopes = [], []
        for parameter, value in zip(parameters, self._from, strict=True):
            step = max(0.02 * value, 1e-4)
            moved = base.replaced(dict.fromkeys(parameter.places, value + step))
            after = np.array([simulated.predict(row, moved) for row in rows])
            slopes.append((after - self._begin) / step)
            ratio_slopes.append((np.log(simulated.ratios(stages, moved)) - self._ratios) / step)
        self._slope, self._ratio_slope = np.stack(slopes, 1), np.stack(ratio_slopes, 1)
        self._last: tuple[Fitted, Array] | None = None

    def predict(self, row: Row, fitted: Fitted) -> float:
        """Return a row's seconds."""
        at = self._place[row.case_id]
        return float(self._begin[at] + self._slope[at] @ self._moved(fitted))

    def ratios(self, stages: Sequence[StageRow], fitted: Fitted) -> Array:
        """Return predicted over published stage times."""
        return np.exp(self._ratios + self._ratio_slope @ self._moved(fitted))

    def _moved(self, fitted: Fitted) -> Array:
        if self._last is None or self._last[0] is not fitted:
            self._last = (fitted, self._constants(fitted) - self._from)
        return self._last[1]

    def _constants(self, fitted: Fitted) -> Array:
        return np.array([fitted.value(parameter.place) for parameter in self._parameters])


def read_simulated(files: Sequence[str], rows: Sequence[Row], base: Fitted) -> Simulated:
    """Return what `validate_training.py` wrote for rows that the engine predicted by `base`."""
    entries = [e for file in files for e in json.loads(Path(file).read_text())["rows"]]
    seconds = {e["case_id"]: e["predicted_s"] for e in entries if e["predicted_s"]}
    return Simulated(seconds, rows, base)
