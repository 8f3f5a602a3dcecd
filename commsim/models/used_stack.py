"""The stack of a compute model: as it is on the GPU, with the attention that was asked for."""

from __future__ import annotations

from msgspec.structs import replace

from commsim.cluster import GpuSpec
from commsim.errors import ScenarioError
from commsim.models.compute_section import ComputeSection
from commsim.models.constants import Stack, generation_of, read_constants, stack_on
from commsim.models.kernels import WIDE

__all__ = ["used_stack"]


def used_stack(
    name: str, section: ComputeSection, gpu: GpuSpec, precision: str, *, where: str
) -> Stack:
    """Return the constants of stack `name` on a GPU, with the attention of a section.

    Raises:
        ScenarioError: an unknown stack, or an attention that is not made for the GPU.
    """
    stack, asked = stack_on(name, gpu, where=f"{where}.stack"), section.attention
    if precision in WIDE:  # fused kernels are made for 2-byte entries
        return replace(stack, attention="unfused")
    if asked is None:
        return stack
    generation = generation_of(gpu)
    if asked != "unfused" and generation is not None:
        made = read_constants().generations[generation].attentions
        if asked not in made:
            raise ScenarioError(
                f"{where}.attention: {asked} is not made for {gpu.name}. Give"
                f" {', '.join(made)} or unfused, or leave it out."
            )
    return replace(stack, attention=asked)
