"""
The next dollar: every resource made better and worse, one at a time, and what a step gains by it.

In: a scenario. Out: a `NextDollar`: per resource the step times that runs of the changed scenario
come to, where a gain ends, where a loss begins, and why nothing changes if nothing does.
`resources` says what can be changed and how, `alternatives` which settings besides, `runs` runs it,
`reasons` finds the words; `spare` asks the same of a few resources of one run. `what_if` moves
several at once.
"""

from commsim.study.next_dollar.alternatives import Alternative
from commsim.study.next_dollar.next_dollar import next_dollar
from commsim.study.next_dollar.spare import differing, spare_words
from commsim.study.next_dollar.upgrades import NextDollar, ResourceChange, Upgrade

__all__ = [
    "Alternative",
    "NextDollar",
    "ResourceChange",
    "Upgrade",
    "differing",
    "next_dollar",
    "spare_words",
]
