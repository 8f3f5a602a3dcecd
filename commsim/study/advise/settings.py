"""
A layout as settings: what to write under `training` for a run to be what was judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from commsim.follow import Follow, unfollowed
from commsim.scenario import Scenario
from commsim.study.advise.layouts import Candidate
from commsim.study.advise.simulate import Ran, Worker
from commsim.study.run import run
from commsim.units import GIB
from commsim.workload import TrainingSection
from commsim.workload.training import with_defaults

__all__ = ["run_whole", "settings_of", "with_settings"]

_OF_THE_STACK = ("stack", "cuda_graph")


def settings_of(worker: Worker, candidate: Candidate) -> dict[str, Any]:
    """Return what to write under `training` for a layout: with its stack, and all that follows from
    the stack, so that a run takes nothing else; settings as they are without a word are left out.
    """
    section = with_defaults(worker.judge.section(candidate), where="advise")[0]
    plain = {
        "parallel": section.parallel,
        "data_parallel": section.data_parallel,
        "batch": section.batch,
        "recompute": section.recompute,
    }
    found = {name: _plain(value) for name, value in plain.items()}
    for name, value in (("parallel", section.parallel), ("data_parallel", section.data_parallel)):
        unset = _plain(type(value)())
        found[name] = {
            key: set_to
            for key, set_to in found[name].items()
            if set_to != unset[key] or key in ("dp", "kind")
        }
    if section.parallel.tp == 1:
        found["parallel"].pop("tp_overlap", None)  # "none", which a scenario does not say there
    compute = section.compute
    found["compute"] = {key: one for key in _OF_THE_STACK if (one := getattr(compute, key))}
    return found


def with_settings(data: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario's plain data with the layout of `settings` in place of its own."""
    workload = data["workload"]
    training = workload["training"]
    kept = {k: v for k, v in training.items() if k not in ("recompute_every", "recompute_first")}
    compute = {**(training.get("compute") or {}), **settings["compute"]}
    made = {**workload, "training": {**kept, **settings, "compute": compute}}
    return {**data, "workload": made}


def run_whole(
    scenario: Scenario, worker: Worker, candidate: Candidate, follow: Follow = unfollowed
) -> Ran:
    """Return what `commsim run` says of a layout: nothing is shortened, and no ranks are taken
    for alike that differ slightly."""
    section: TrainingSection = worker.judge.section(candidate)
    replace = msgspec.structs.replace
    workload = replace(scenario.file.workload, training=section)
    file = replace(scenario.file, workload=workload, faults=None, sweep=None, goodput=None)
    metrics = run(replace(scenario, file=file), follow=follow).metrics
    assert metrics.memory_gib is not None
    memory = round(metrics.memory_gib["peak"] * GIB)
    return Ran(candidate, metrics, memory, bool(metrics.memory_gib["fits"]))


def _plain(value: Any) -> Any:
    """Return a section as plain data; sizes as people write them."""
    return msgspec.to_builtins(value, enc_hook=lambda size: f"{int(size)}B")
