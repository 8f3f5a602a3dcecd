"""The constants under fit: generations, stacks and links, read, replaced and written together."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import yaml
from closed_form import Links

from commsim.cluster.gpus import gpu_spec
from commsim.models import constants

HERE = Path(__file__).parent
LINKS = HERE / "closed_form.yaml"
CONSTANTS = Path(constants.__file__).with_name("constants.yaml")


@dataclass(frozen=True, slots=True)
class Fitted:
    """All constants of a prediction. A place is "ampere.matmul_efficiency" or "links.p2p"."""

    generations: dict[str, constants.GpuConstants]
    stacks: dict[str, constants.Stack]
    links: Links
    of_gpu: dict[str, str]

    def generation(self, gpu: str) -> constants.GpuConstants:
        """Return the constants of a GPU of the table."""
        return self.generations[self.of_gpu[gpu_spec(gpu).compute_capability.split(".")[0]]]

    def stack(self, name: str) -> constants.Stack:
        """Return the constants of a software stack."""
        return self.stacks[name]

    def value(self, place: str) -> float:
        """Return the constant at `place`."""
        owner, *path = place.split(".")
        value: Any = self._owner(owner)
        for name in path:
            value = getattr(value, name)
        return float(value)

    def replaced(self, values: dict[str, float]) -> Fitted:
        """Return a copy with the constants at some places changed."""
        generations, stacks, links = dict(self.generations), dict(self.stacks), self.links
        for place, value in values.items():
            owner, *path = place.split(".")
            if owner == "links":
                links = replace(links, **{path[0]: value})
            elif owner in generations:
                generations[owner] = _set(generations[owner], path, value)
            else:
                stacks[owner] = _set(stacks[owner], path, value)
        return Fitted(generations, stacks, links, self.of_gpu)

    def linked_as(self, other: Fitted) -> Fitted:
        """Return a copy with what only the closed form reads as `other` has it."""
        stacks = {
            name: msgspec.structs.replace(stack, pipeline_loss=other.stacks[name].pipeline_loss)
            for name, stack in self.stacks.items()
        }
        return Fitted(self.generations, stacks, other.links, self.of_gpu)

    def _owner(self, name: str) -> Any:
        if name == "links":
            return self.links
        return self.generations.get(name) or self.stacks[name]


def _set(struct: Any, path: list[str], value: float) -> Any:
    if len(path) > 1:
        value = _set(getattr(struct, path[0]), path[1:], value)
    return msgspec.structs.replace(struct, **{path[0]: value})


def load_fitted() -> Fitted:
    """Return the constants as the files have them."""
    file = constants.read_constants()
    links = Links(**yaml.safe_load(LINKS.read_text())) if LINKS.exists() else Links()
    return Fitted(dict(file.generations), dict(file.stacks), links, dict(file.capabilities))


def save_fitted(fitted: Fitted, *, parameters: list[str]) -> None:
    """Write the fitted constants into the files, keeping comments and everything else."""
    text = CONSTANTS.read_text()
    for place in parameters:
        owner, *path = place.split(".")
        if owner != "links":
            text = _written(text, owner, path, fitted.value(place))
    CONSTANTS.write_text(text)
    links = {name: round(value, 4) for name, value in asdict(fitted.links).items()}
    head = "# Links of the closed form, written by fit_compute.py; see closed_form.Links.\n"
    LINKS.write_text(head + yaml.safe_dump(links, sort_keys=False))


def _written(text: str, owner: str, path: list[str], value: float) -> str:
    """Return the file with one value changed: `  owner:` ... `    field: value`."""
    block = re.search(rf"(?ms)^  {re.escape(owner)}:.*?(?=^  \S|^\S|\Z)", text)
    assert block, owner
    line = re.compile(rf"(?m)^(    +){path[0]}: .*$")
    old = block[0]
    if len(path) == 1:
        shown = f"{value:.4g}"
        new, found = line.subn(rf"\g<1>{path[0]}: {shown}", old, count=1)
    else:  # flash: one line per kernel, {forward: a, backward: b}
        kernel = re.compile(rf"(?m)^( +{path[1]}: \{{.*?{path[2]}: )[\d.]+")
        new, found = kernel.subn(rf"\g<1>{value:.4g}", old, count=1)
    assert found, f"{owner}.{'.'.join(path)} is not written out in the file"
    return text.replace(old, new)
