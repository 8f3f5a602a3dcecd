"""
Checks of training libraries that nothing can pass without a GPU or the other ranks.

Lightning looks at the type of its device, which is the one that stands in. DeepSpeed's ZeRO-3
compares lists by value with those of rank 0: they are sent as ever, and taken for the rank's own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

__all__ = ["pass_checks"]


def pass_checks() -> None:
    """Let the checks pass of each module of `_CHECKS`, as soon as it is imported."""
    sys.meta_path.insert(0, _Finder())


def _any_device(module: Any) -> None:
    module.CUDAAccelerator.setup_device = lambda self, device: None


def _same_lists(module: Any) -> None:
    lengths, contents = module.assert_lst_len_same_as_other_ranks, module.get_lst_from_rank0

    def same_length(values: list[int]) -> None:
        with suppress(RuntimeError):
            lengths(values)

    def same_values(values: list[int]) -> list[int]:
        contents(values)
        return values

    module.assert_lst_len_same_as_other_ranks = same_length
    module.get_lst_from_rank0 = same_values


_CHECKS: dict[str, Callable[[Any], None]] = {
    "lightning.fabric.accelerators.cuda": _any_device,
    "lightning.pytorch.accelerators.cuda": _any_device,
    "lightning_fabric.accelerators.cuda": _any_device,
    "pytorch_lightning.accelerators.cuda": _any_device,
    "deepspeed.runtime.zero.utils": _same_lists,
}


class _Finder(MetaPathFinder):
    """Finds modules as ever; those of `_CHECKS` are changed once they have run."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _CHECKS:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            run = loader.exec_module

            def run_and_change(module: ModuleType) -> None:
                run(module)
                _CHECKS[name](module)

            loader.exec_module = run_and_change
        return spec
