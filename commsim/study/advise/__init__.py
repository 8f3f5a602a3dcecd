"""
Which layout to train with: every layout that fits, ranked by simulated step time, with reasons.

In: a training scenario. Out: an `Advice`. `layouts` lists candidates, `judge` drops those that do
not fit and bounds the rest from below (`floor`, `traffic`), `simulate` runs those that can win,
`reasons` and `kinds` explain the ranking, `infeasible` says why nothing fits.
"""

from commsim.study.advise.advise import Advice, Ranked, advise

__all__ = ["Advice", "Ranked", "advise"]
