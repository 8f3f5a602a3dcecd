"""
A comparison as one page: the answer, all runs on one time axis, and what differs.

In: a comparison of runs (`runs`) or of tables over sizes (`sizes`). Out: one HTML page (`page`).
"""

from commsim.charts.compare.formatting import (
    BANDS,
    NONE,
    difference_text,
    figure_text,
    kind_text,
    quantity_text,
)
from commsim.charts.compare.page import compare_page

__all__ = [
    "BANDS",
    "NONE",
    "compare_page",
    "difference_text",
    "figure_text",
    "kind_text",
    "quantity_text",
]
