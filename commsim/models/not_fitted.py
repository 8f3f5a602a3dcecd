"""What of a compute model's constants no published step was fitted for."""

from __future__ import annotations

from commsim.models.constants import generation_of, read_constants
from commsim.models.kernels import KernelModel
from commsim.models.precision import recipe_of

__all__ = ["not_fitted"]


def not_fitted(kernels: KernelModel, name: str) -> tuple[str, ...]:
    """Return a sentence each for a GPU, a precision and a stack `name` without published steps."""
    generation = generation_of(kernels.gpu) or ""
    gpus = read_constants().fitted_gpus.get(generation, ())
    found = []
    if kernels.gpu.name not in gpus:
        found.append(f"not fitted on {kernels.gpu.name}: {generation.capitalize()}'s constants")
    if recipe_of(kernels.precision).name not in kernels.constants.fitted:
        found.append(
            f"no published step in {kernels.precision} on {generation.capitalize()} was fitted"
        )
    if generation not in kernels.stack.fitted:
        older = [
            other
            for other, stack in read_constants().stacks.items()
            if generation in stack.fitted and other.startswith(name)
        ]
        instead = f" (fitted there: {', '.join(older)})" if older else ""
        relative = read_constants().stacks[name].relative(generation, read_constants().stacks)
        instead += f": its kernels there move no less than {relative}'s" if relative else ""
        found.append(f"stack {name} was not fitted on {generation.capitalize()}{instead}")
    return tuple(found)
