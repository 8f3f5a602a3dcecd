"""The compute model of a GPU, a precision and a stack, chosen by name."""

from __future__ import annotations

from commsim.cluster import GpuSpec
from commsim.errors import ScenarioError
from commsim.models.compute import ComputeModel
from commsim.models.compute_section import ComputeSection
from commsim.models.constants import (
    default_stack,
    gpu_constants,
)
from commsim.models.kernels import KernelModel
from commsim.models.precision import peak_name
from commsim.models.used_stack import used_stack

__all__ = ["compute_model"]


def compute_model(
    gpu: GpuSpec,
    *,
    precision: str,
    section: ComputeSection | None = None,
    where: str = "training",
    gpus: int = 1,
) -> ComputeModel:
    """Return the compute model of `gpu` at `precision`, by any of its names (`PRECISION_NAMES`).

    `gpus` of its kind work in step.

    Without a stack in the section, that of DistributedDataParallel's users is taken.

    Raises:
        ScenarioError: the GPU has no such precision, its generation is unknown and no
            efficiency is given, or the stack is unknown.
    """
    section = section or ComputeSection()
    if not gpu.tflops.get(peak_name(precision)):
        having = ", ".join(gpu.tflops) or "none"
        raise ScenarioError(f"{where}.precision: {gpu.name} has no {precision}; it has {having}.")
    name = section.stack or default_stack("ddp")
    stack = used_stack(name, section, gpu, precision, where=f"{where}.compute")
    constants = gpu_constants(gpu, where=f"{where}.compute", flat=section.efficiency is not None)
    kernels = KernelModel(gpu, precision, constants, stack, section.efficiency)
    return ComputeModel(kernels, section, name, gpus)
