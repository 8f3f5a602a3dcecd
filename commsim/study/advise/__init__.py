"""
Which layout to train with: every layout that fits, ranked by simulated step time, with reasons.

In: a training scenario. Out: an `Advice`. `layouts` lists candidates, `judge` drops those that do
not fit and bounds the rest from below (`floor`, `traffic`), `few_layers` estimates and `simulate`
runs those that can win, in the order of `search`; `reasons` and `kinds` explain the ranking,
`infeasible` says why nothing fits,
`settings` writes a layout down, `stacks` tries the best under other software.
`usual` offers the same steps one by one, for studies of many
clusters.
"""

from commsim.study.advise.advise import Advice, Ranked, advise
from commsim.study.advise.layouts import Candidate
from commsim.study.advise.reasons import waits_for
from commsim.study.advise.settings import with_settings
from commsim.study.advise.simulate import Ran
from commsim.study.advise.usual import LayoutQueue

__all__ = [
    "Advice",
    "Candidate",
    "LayoutQueue",
    "Ran",
    "Ranked",
    "advise",
    "waits_for",
    "with_settings",
]
