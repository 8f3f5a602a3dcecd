"""The `compute` section of a training workload: the roofline model, or figures to use instead."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from commsim.sections import Section
from commsim.units import Duration

__all__ = ["ComputeSection", "MeasuredTimes"]

Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Scale = Annotated[float, msgspec.Meta(gt=0)]
Spread = Annotated[float, msgspec.Meta(ge=0, le=0.2)]


class MeasuredTimes(Section, frozen=True, kw_only=True):
    """Times of one microbatch on a rank, as measured. `backward` is that of the input gradient;
    without `weight` it holds both."""

    forward: Duration
    backward: Duration
    weight: Duration = Duration(0)


class ComputeSection(Section, frozen=True, kw_only=True):
    """How compute times are found. Left out, all follow the roofline model of the GPU.

    `cuda_graph`: what is issued as graphs and waits for no host: nothing, attention and router of
    layers with experts, or the full step; without it, as the stack does. `efficiency`: every FLOP
    takes 1/(efficiency x dense peak), and nothing else takes time but the optimizer. `scale`
    multiplies all times. `spread` is the standard deviation of the speeds of GPUs of a kind, as a
    share: all wait for the slowest; without it, as was fitted for the generation. `stack` names
    the software (see the reference page), `attention` how it computes attention. `layer`,
    `embedding`, `head` and `optimizer` are measured times that replace the model's.
    """

    efficiency: Share | None = None
    scale: Scale = 1.0
    spread: Spread | None = None
    stack: str | None = None
    cuda_graph: Literal["none", "experts", "full"] | None = None
    attention: Literal["unfused", "fa1", "fa2", "fa3", "cudnn"] | None = None
    layer: MeasuredTimes | None = None
    embedding: MeasuredTimes | None = None
    head: MeasuredTimes | None = None
    optimizer: Duration | None = None
