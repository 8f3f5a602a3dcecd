"""Judge predictions of measured cases: errors by band and class, and peaks of bus bandwidth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from measured import Case

__all__ = ["BANDS", "Judged", "bands", "class_figures", "classes", "median", "peaks_within"]

BANDS = {"large": (16 << 20, float("inf")), "mid": (64 << 10, 16 << 20), "small": (0, 64 << 10)}
_WITHIN = 0.10


@dataclass
class Judged:
    """A case and the predicted seconds of its rows."""

    case: Case
    predicted: list[float]

    def good(self) -> Iterator[tuple[int, float, float]]:
        """Return (size, measured, predicted) of the unflagged rows."""
        for row, size, measured, predicted in zip(
            self.case.rows, self.case.sizes, self.case.seconds, self.predicted, strict=True
        ):
            if not row.get("flag"):
                yield size, measured, predicted

    def errors(self, band: str | None = None) -> list[float]:
        """Return signed errors of time of the unflagged rows, of one band or of all."""
        low, high = BANDS[band] if band else (0, float("inf"))
        return [p / m - 1 for size, m, p in self.good() if low <= size < high]

    def peak(self) -> tuple[float, float] | None:
        """Return the largest S / time, measured and predicted."""
        rows = list(self.good())
        if not rows:
            return None
        return max(s / m for s, m, _ in rows), max(s / p for s, _, p in rows)

    def factor(self) -> float:
        """Return busbw over algbw."""
        n = self.case.nodes * self.case.gpus_per_node
        if self.case.op == "all_reduce":
            return 2 * (n - 1) / n
        within = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
        return (n - 1) / n if self.case.op in within else 1.0


def trusted(cases: list[Judged]) -> list[Judged]:
    """Return the cases whose rows the bars count."""
    return [case for case in cases if case.case.trust == 3]


def bands(cases: list[Judged]) -> dict[str, dict[str, Any]]:
    """Return per band the count of trusted rows and the median of |error| (None without rows)."""
    found = {}
    for band in BANDS:
        errors = [abs(e) for case in trusted(cases) for e in case.errors(band)]
        found[band] = {
            "n": len(errors),
            "median_abs_err": float(np.median(errors)) if errors else None,
        }
    return found


def peaks_within(cases: list[Judged]) -> tuple[int, int]:
    """Return how many trusted cases have their peak within 10 %, and how many there are."""
    peaks = [peak for peak in (case.peak() for case in trusted(cases)) if peak]
    return sum(abs(p / m - 1) <= _WITHIN for m, p in peaks), len(peaks)


def class_figures(cases: list[Judged]) -> dict[str, dict[str, Any]]:
    """Return the figures of each class of systems."""
    found = {}
    for name in dict.fromkeys(case.case.sysclass for case in trusted(cases)):
        own = [case for case in cases if case.case.sysclass == name]
        within, count = peaks_within(own)
        found[name] = {"bands": bands(own), "peaks_within_10pct": within, "cases": count}
    return found


def classes(cases: list[Judged], show: Callable[[str], None]) -> None:
    """Print a line per class and per case."""
    for name, figures in class_figures(cases).items():
        text = " ".join(_percent(e["median_abs_err"]) for e in figures["bands"].values())
        show(f"{name:48} {text}  peaks {figures['peaks_within_10pct']} of {figures['cases']}")
    for case in cases:
        text = " ".join(
            f"{_percent(median(np.abs(case.errors(b))))} ({_percent(median(case.errors(b)))})"
            for b in BANDS
        )
        peak = case.peak()
        bias = _percent(peak[1] / peak[0] - 1) if peak else ""
        show(f"{case.case.case_id:40} {case.case.trust} {text}  peak {bias}")


def median(values: Any) -> float | None:
    """Return the median, None of nothing."""
    return float(np.median(values)) if len(values) else None


def _percent(value: float | None) -> str:
    return "     -" if value is None else f"{100 * value:6.1f}"
