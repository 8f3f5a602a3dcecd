"""
Step times of deep models from runs with fewer layers, in the same layout.

Each further layer of a part adds the same time as long as the same thing limits the step; if that
changes (gradients that overlap more layers, a last stage that stops being the slowest), the step
grows faster from there on. So a line through two shallow models meets the step or stays below it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from commsim.models import ModelShape, is_moe_layer
from commsim.workload.training import TrainingSection, divide_layers

__all__ = ["KEPT", "carried_on", "thinned", "worth"]

KEPT = (2, 3)
"""The layers that the smallest part of a thin model keeps, in the first run and in the second."""
_LEAST = 9  # layers of the smallest part from which two thin runs cost much less than a whole one


def thinned(
    shape: ModelShape, section: TrainingSection, *, kept: int
) -> tuple[TrainingSection, int] | None:
    """Return `section` with fewer layers, equally many taken from each part, and how many.

    The smallest part keeps `kept`. None if layers differ otherwise than by a few dense ones at the
    start, or if a part has few layers already.
    """
    parallel = section.parallel
    dense = _dense(shape)
    parts = [
        len(part)
        for part in divide_layers(
            shape.layers, parallel.pp, parallel.virtual_stages, None, where="advise"
        )
    ]
    if dense is None or dense > parts[0]:
        return None
    least = min(parts[0] - dense, *parts[1:]) if len(parts) > 1 else parts[0] - dense
    if least < _LEAST:
        return None
    less = least - kept
    left = tuple(count - less for count in parts)
    return (
        msgspec.structs.replace(
            section,
            model=msgspec.structs.replace(section.model, layers=sum(left)),
            parallel=msgspec.structs.replace(parallel, layers_per_stage=left),
        ),
        less,
    )


def worth(shape: ModelShape, section: TrainingSection) -> bool:
    """Return whether two shallow models cost less than half of a run of the whole one."""
    return thinned(shape, section, kept=KEPT[0]) is not None


def carried_on(seconds: Sequence[float], less: Sequence[int]) -> float:
    """Return the step time of the whole model from those of two shallow ones."""
    (few, more), (fewer, fewest) = seconds, less
    return more + (more - few) * fewest / (fewer - fewest)


def _dense(shape: ModelShape) -> int | None:
    """Return how many layers come before the identical ones; None if kinds alternate."""
    kinds = [is_moe_layer(shape, layer) for layer in range(shape.layers)]
    first = kinds.index(kinds[-1])
    return first if all(kind == kinds[-1] for kind in kinds[first:]) else None
