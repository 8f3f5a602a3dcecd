"""
An algorithm step by step: as text, as a strip of panels (SVG), as a page that plays.

In: a walk through a chunk program (`collectives`). Out: text, SVG or one self-contained page.
"""

from commsim.charts.explain.page import explain_page
from commsim.charts.explain.svg import explain_svg
from commsim.charts.explain.text import explain_text, headline
from commsim.charts.explain.together import explain_together

__all__ = ["explain_page", "explain_svg", "explain_text", "explain_together", "headline"]
