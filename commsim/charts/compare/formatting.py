"""
Figures of a comparison as people read them, on paper and in the terminal.
"""

from __future__ import annotations

from typing import Any

from commsim.units import format_time

__all__ = ["BANDS", "NONE", "difference_text", "figure_text", "kind_text", "quantity_text"]

NONE = "–"
BANDS = {"large": "16 MiB and above", "mid": "64 KiB to 16 MiB", "small": "below 64 KiB"}

_KINDS = {
    "scenario": "simulated",
    "result": "result",
    "replay": "replayed",
    "trace": "measured trace",
    "log": "measured by nccl-tests",
    "bench": "predicted",
    "cluster": "predicted",
}
_FINE, _COARSE = 100, 1000
_LEAST = 0.0005


def kind_text(kind: str) -> str:
    """Say what a side is: measured, simulated, predicted."""
    return _KINDS.get(kind, kind)


def quantity_text(row: dict[str, Any], currency: str | None) -> str:
    """Return the name of a row of figures, with the currency if it is money."""
    return f"{row['label']}, {currency}" if row["unit"] == "money" and currency else row["label"]


def figure_text(value: float | None, unit: str) -> str:
    """Write a figure in its unit: s, share, rate, number, GiB, money, W, kWh or J."""
    if value is None:
        return NONE
    if unit == "s":
        return format_time(value * 1e12)
    if unit == "share":
        return f"{value:.1%}"
    if unit == "GiB":
        return f"{value:.1f} GiB"
    if unit in ("rate", "W", "kWh", "J"):
        shown = f"{value:,.0f}" if abs(value) >= _FINE else f"{value:.3g}"
        return shown if unit == "rate" else f"{shown} {unit}"
    return f"{value:,.0f}" if abs(value) >= _COARSE else f"{value:.4g}"


def difference_text(value: float | None) -> str:
    """Write a signed share: "+4.2%", "0.0%"; nothing if there is none."""
    if value is None:
        return ""
    return "0.0%" if abs(value) < _LEAST else f"{value:+.1%}"
