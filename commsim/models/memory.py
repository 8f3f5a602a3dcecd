"""
Memory of one GPU: parameters, gradients, optimizer, activations, buffers; and whether it fits.

Mixed-precision Adam, bytes per parameter: 2 (parameter) + 2 (gradient) + 12 (fp32 parameter and
both moments) = 16 (Rajbhandari et al. 2020, ZeRO, section 3.1); Megatron keeps fp32 gradients
and comes to 18; fp32 training has 4 + 4 + 8. Over N ranks ZeRO stage 1 divides the optimizer
state, 2 the gradients too, 3 the parameters too.
"""

from __future__ import annotations

import msgspec

from commsim.errors import ScenarioError
from commsim.units import GIB

__all__ = [
    "MemoryUse",
    "StateBytes",
    "check_memory",
    "fits",
    "memory_text",
    "optimizer_entries",
    "state_bytes",
]

_WIDTH = {"fp32": 4, "tf32": 4}
_MASTER_AND_MOMENTS, _MOMENTS = 12, 8
_WORTH_SAYING = 0.05  # share of the whole


class StateBytes(msgspec.Struct, frozen=True):
    """What a rank holds for its parameters between steps, in bytes."""

    parameters: int
    gradients: int
    optimizer: int

    @property
    def total(self) -> int:
        """All three together."""
        return self.parameters + self.gradients + self.optimizer


class MemoryUse(msgspec.Struct, frozen=True):
    """The memory of one GPU at its peak, in bytes.

    `runtime` is what lies outside the framework's allocator: the CUDA context, NCCL's buffers.
    `slack_share` is the allowance for what the allocator holds on top of what is in use.
    """

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    buffers: int = 0
    runtime: int = 0
    slack_share: float = 0.0

    @property
    def used(self) -> int:
        """What tensors take: the first five."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.buffers

    @property
    def slack(self) -> int:
        """What the allocator holds on top of that: cached blocks, fragments."""
        return round(self.slack_share * self.used)

    @property
    def reserved(self) -> int:
        """What the framework's allocator holds: `torch.cuda.max_memory_reserved`."""
        return self.used + self.slack

    @property
    def total(self) -> int:
        """All of it."""
        return self.reserved + self.runtime


def state_bytes(
    parameters: int,
    *,
    precision: str = "bf16",
    zero_stage: int = 0,
    shards: int = 1,
    gradient_width: int | None = None,
    parameter_width: int | None = None,
    optimizer_width: int | None = None,
) -> StateBytes:
    """Return the state of `parameters` entries, divided over `shards` ranks as ZeRO does.

    `gradient_width` is 4 if gradients are kept in fp32 (Megatron with bf16);
    `parameter_width` and `optimizer_width` are those of stacks that keep parameters in fp32
    and so no copies (FSDP: 4 and 8), or everything in bf16.

    Raises:
        ValueError: a stage that ZeRO does not have.
    """
    if zero_stage not in (0, 1, 2, 3):
        raise ValueError(f"ZeRO has stages 0 to 3, not {zero_stage}")
    width = _WIDTH.get(precision, 2)
    per_entry = (
        (width if parameter_width is None else parameter_width, 3),
        (width if gradient_width is None else gradient_width, 2),
        (_optimizer_width(width) if optimizer_width is None else optimizer_width, 1),
    )
    return StateBytes(
        *(
            size * _shard(parameters, shards if zero_stage >= divided_from else 1)
            for size, divided_from in per_entry
        )
    )


def _optimizer_width(width: int) -> int:
    return _MOMENTS if width == 4 else _MASTER_AND_MOMENTS


def optimizer_entries(parameters: int, *, zero_stage: int, shards: int) -> int:
    """Return how many parameters a rank updates: its share from ZeRO stage 1 on."""
    return _shard(parameters, shards if zero_stage else 1)


def fits(use: MemoryUse, capacity: int) -> bool:
    """Return whether `use` is within `capacity` bytes; the allocator gives its slack back."""
    return use.total - use.slack <= capacity


def memory_text(use: MemoryUse, capacity: int, *, stage: int = -1, place: str = "") -> str:
    """Say where it fits or does not, by how much, and what it is made of, the largest part first.

    `place` names the GPU ("on GPU 0"); without it a `stage` from 0 on does. Parts under a
    twentieth of the whole are "other" together.
    """
    verdict = "fits" if fits(use, capacity) else "does not fit"
    if verdict == "fits" and use.total > capacity:
        verdict = "fits only without slack in the allocator"
    parts = {
        "parameters": use.parameters,
        "gradients": use.gradients,
        "optimizer": use.optimizer,
        "activations": use.activations,
        "buffers": use.buffers,
        "runtime": use.runtime,
        "slack": use.slack,
    }
    order = sorted(parts, key=lambda part: -parts[part])
    told = {name: parts[name] for name in order if parts[name] >= use.total * _WORTH_SAYING}
    told = told or {order[0]: parts[order[0]]}
    rest = use.total - sum(told.values())
    if _gib(rest) != _gib(0):
        told["other"] = rest
    place = place or (f"on stage {stage}" if stage >= 0 else "")
    left = capacity - use.total + (use.slack if use.total > capacity else 0)
    return (
        f"{verdict}: {_gib(use.total)} GiB of {_gib(capacity)} GiB{' ' * bool(place)}{place},"
        f" of which {', '.join(f'{name} {_gib(size)}' for name, size in told.items())}"
        f" ({_gib(abs(left))} GiB {'free' if left >= 0 else 'too much'})"
    )


def check_memory(use: MemoryUse, capacity: int, *, where: str, stage: int = -1) -> None:
    """Check that `use` fits into `capacity` bytes.

    Raises:
        ScenarioError: "does not fit: 91 GiB of 80 GiB on stage 0, of which activations 44, ...".
    """
    if not fits(use, capacity):
        raise ScenarioError(f"{where}: {memory_text(use, capacity, stage=stage)}.")


def _shard(entries: int, shards: int) -> int:
    return -(-entries // shards)


def _gib(size: int) -> str:
    value = size / GIB
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
