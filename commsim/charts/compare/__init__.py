"""
A comparison as one page: the answer, all runs on one time axis, and what differs.

In: a comparison of runs (`runs`) or of tables over sizes (`sizes`). Out: one HTML page (`page`).
"""

from commsim.charts.compare.page import compare_page
from commsim.charts.compare.words import (
    BANDS,
    NONE,
    figure_text,
    kind_text,
    off_text,
    quantity_text,
)

__all__ = ["BANDS", "NONE", "compare_page", "figure_text", "kind_text", "off_text", "quantity_text"]
