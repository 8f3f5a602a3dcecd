"""The constants under fit: generations, stacks and recipes, read, replaced and written together."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from commsim.cluster import GpuSpec
from commsim.models import constants, kernels

CONSTANTS = Path(constants.__file__).with_name("constants.yaml")


@dataclass(frozen=True, slots=True)
class Fitted:
    """All constants of a prediction. A place is "ampere.matmul_efficiency" or "fp8_row.share"."""

    generations: dict[str, constants.GpuConstants]
    stacks: dict[str, constants.Stack]
    recipes: dict[str, constants.RecipeShare]
    of_gpu: dict[str, str]

    def generation_name(self, gpu: GpuSpec) -> str:
        """Return the generation of a GPU."""
        return self.of_gpu[gpu.compute_capability.split(".")[0]]

    def stack(self, name: str) -> constants.Stack:
        """Return the constants of a software stack."""
        return self.stacks[name]

    def with_attention(self, stack: constants.Stack, attention: str) -> constants.Stack:
        """Return a stack with another attention."""
        return msgspec.structs.replace(stack, attention=attention)

    def use_recipes(self) -> None:
        """Let products be priced by the recipes under fit."""
        kernels.recipe_share = lambda name: self.recipes[name].share  # type: ignore[attr-defined]

    def value(self, place: str) -> float:
        """Return the constant at `place`."""
        owner, path = self.parts(place)
        value: Any = self._owner(owner)
        for name in path:
            value = getattr(value, name)
        return float(value)

    def replaced(self, values: dict[str, float]) -> Fitted:
        """Return a copy with the constants at some places changed."""
        groups = [dict(self.generations), dict(self.stacks), dict(self.recipes)]
        for place, value in values.items():
            owner, path = self.parts(place)
            group: dict[str, Any] = next(group for group in groups if owner in group)
            group[owner] = _set(group[owner], path, value)
        return Fitted(*groups, self.of_gpu)  # type: ignore[arg-type]

    def parts(self, place: str) -> tuple[str, list[str]]:
        """Return the owner of a place, which may have dots in its name, and the way from there."""
        known = (*self.generations, *self.stacks, *self.recipes)
        owner = max((name for name in known if place.startswith(f"{name}.")), key=len)
        return owner, place[len(owner) + 1 :].split(".")

    def _owner(self, name: str) -> Any:
        return self.generations.get(name) or self.stacks.get(name) or self.recipes[name]


def _set(struct: Any, path: list[str], value: float) -> Any:
    if len(path) > 1:
        value = _set(getattr(struct, path[0]), path[1:], value)
    return msgspec.structs.replace(struct, **{path[0]: value})


def load_fitted() -> Fitted:
    """Return the constants as the file has them."""
    file = constants.read_constants()
    return Fitted(
        dict(file.generations), dict(file.stacks), dict(file.recipes), dict(file.capabilities)
    )


def save_fitted(fitted: Fitted, *, parameters: list[str]) -> None:
    """Write the fitted constants into the file, keeping comments and everything else."""
    text = CONSTANTS.read_text()
    for place in parameters:
        owner, path = fitted.parts(place)
        text = _written(text, owner, path, fitted.value(place))
    CONSTANTS.write_text(text)


def _written(text: str, owner: str, path: list[str], value: float) -> str:
    """Return the file with one value changed: `  owner:` ... `    field: value`."""
    head, body = text.split("\nrecipes:\n", 1)
    shown = f"{value:.4g}"
    inline = re.compile(rf"(?m)^(  {re.escape(owner)}: \{{.*?{path[0]}: )[\d.]+")
    body, found = inline.subn(rf"\g<1>{shown}", body, count=1)
    if not found:
        block = re.search(rf"(?ms)^  {re.escape(owner)}:.*?(?=^  \S|^\S|\Z)", body)
        assert block, owner
        body = body.replace(block[0], _field(block[0], path, shown))
    return f"{head}\nrecipes:\n{body}"


def _field(block: str, path: list[str], shown: str) -> str:
    """Return a block with one field changed, or added behind its first lines."""
    if len(path) > 1:  # flash: {forward: {share: a, ...}, backward: {share: b, ...}} per kernel
        kernel = re.compile(rf"(?ms)^( +{path[1]}: \{{.*?{path[2]}: \{{{path[3]}: )[\d.]+")
        new, found = kernel.subn(rf"\g<1>{shown}", block, count=1)
        assert found, f"{'.'.join(path)} is not written out in the file"
        return new
    line = re.compile(rf"(?m)^(    +){path[0]}: .*$")
    new, found = line.subn(rf"\g<1>{path[0]}: {shown}", block, count=1)
    if found:
        return new
    return re.sub(r"(?m)^(    source:)", rf"    {path[0]}: {shown}\n\1", block, count=1)
