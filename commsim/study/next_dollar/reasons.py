"""
Why more of something saves nothing, and how much less of it would be felt.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from commsim.metrics import link_resource, use_over_time
from commsim.study.run import Result
from commsim.timeline import Timeline

__all__ = ["LinkUses", "hurts_words", "idle_reason", "link_uses"]

_FULL = 0.995


class LinkUses(msgspec.Struct, frozen=True):
    """Of each resource that is links: the busiest one's name, and the most it was ever used."""

    most: Mapping[str, tuple[str, float]]

    def of(self, links: tuple[str, ...]) -> tuple[str, float]:
        """Return the name and the most use of the busiest link of some resources; ("", 0)."""
        return max((self.most[one] for one in links if one in self.most), key=_share, default=_NONE)


_NONE = ("", 0.0)


def _share(pair: tuple[str, float]) -> float:
    return pair[1]


def link_uses(timeline: Timeline) -> LinkUses:
    """Return how much the links of a run were ever used, by resource."""
    links = timeline.links
    most: dict[str, tuple[str, float]] = {}
    for link in np.unique(links.load_link).tolist():
        resource = link_resource(links.names[link], links.kinds[link])
        use = use_over_time(timeline, np.array([link]), points=_POINTS)
        share = float(use.share.max(initial=0.0))
        if share > most.get(resource, _NONE)[1]:
            most[resource] = (links.names[link], share)
    return LinkUses(most)


_POINTS = 2**62  # the exact step function: a mean would hide the moment when a link is full


def idle_reason(resource: str, links: tuple[str, ...], uses: LinkUses, result: Result) -> str:
    """Say why more of a resource would save nothing."""
    if links:
        name, share = uses.of(links)
        if not name:
            return "nothing goes over it"
        if share >= _FULL:
            return f"full at times ({name}), but no step waits for that: other work covers it"
        return f"at most {share:.0%} full at any moment ({name}): something else sets the pace"
    if resource == "gpu_memory":
        memory = result.metrics.memory_gib
        if memory is None:
            return "what it holds is not known"
        fits = "it fits" if memory["fits"] else "it does not fit"
        return f"{memory['peak']:.3g} GiB at the peak: {fits}; more changes no time by itself"
    if resource.endswith("_latency"):
        return "that of the links is too little to be felt; what a library's step takes stays"
    return "nothing on the critical path waits for it"


def hurts_words(resource: str, now: str, factor: float) -> str:
    """Say from when on less of a resource is felt; `factor` is the share of what there is now."""
    if resource == "uplinks" and ":" in now:
        ratio = float(now.partition(":")[0]) / factor
        return f"it begins to hurt at {ratio:.2g}:1"
    return f"it begins to hurt at {factor:.0%} of that"
