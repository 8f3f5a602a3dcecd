"""
`calibrate` by recorded training steps: which GPU is slow, how fast the others are, a launch.

Slow is a GPU whose kernels take longer than the same kernels of the other ranks. How fast all are
is said by a scenario of the recorded training: its compute on the cluster as given against what was
recorded. Every second step is fitted to, the others are predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from commsim.cluster import cluster_from
from commsim.errors import TraceError
from commsim.metrics import breakdown
from commsim.scenario import example_path, read_scenario, scenario_from
from commsim.study.calibrate.predicted import BenchedMachine, machine_of
from commsim.study.run import run
from commsim.traces import RankPace, StepPace, load_trace
from commsim.units import PS_PER_NS, PS_PER_SECOND

__all__ = ["PacedStep", "SlowRank", "StepCalibration", "calibrate_steps"]

_SLOW = 1.1
"""Times the others, from which a GPU is called slow: GPUs of one kind differ by a few percent."""
_UNLIKE = 5.0
"""No GPU of a kind is so much faster or slower than another: model or batch were not those."""
_ROUNDS = 3  # of fitting: launches and latencies do not shrink with FLOP/s


class SlowRank(msgspec.Struct, frozen=True):
    """The GPU of a rank whose kernels take `times` as long as those of the others."""

    rank: int
    times: float

    @property
    def says(self) -> str:
        """What to look at, and what to type."""
        return (
            f"rank {self.rank}: the same kernels take {self.times:.3g} times as long as on the"
            " other ranks. Look at its clocks, temperature and power cap (--set"
            f" 'faults.slow_gpus=[{{rank: {self.rank}, factor: {self.times:.3g}}}]' simulates it)"
        )


class PacedStep(msgspec.Struct, frozen=True):
    """Compute of a recorded step of a rank in seconds, and what is predicted of it.

    `fitted_to`: whether the fit has seen it.
    """

    rank: int
    step: str
    measured_s: float
    given_s: float
    predicted_s: float
    fitted_to: bool


class StepCalibration(msgspec.Struct, frozen=True, eq=False):
    """A cluster fitted to recorded steps.

    `times` is how much longer GPUs compute than given, None without a scenario; `launch_s` what a
    launch takes, None if no kernel found its GPU idle. `before` and `after` are medians of
    |predicted / measured - 1| on steps left out of the fit, None if one step is recorded; without a
    scenario what is given is that all GPUs are alike.
    """

    cluster: dict[str, Any]
    slow: tuple[SlowRank, ...]
    times: float | None
    launch_s: float | None
    before: float | None
    after: float | None
    steps: tuple[PacedStep, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the part of the JSON of `commsim calibrate` on recorded steps."""
        found: dict[str, Any] = msgspec.to_builtins(
            {name: getattr(self, name) for name in self.__struct_fields__ if name != "cluster"}
        )
        return found


def calibrate_steps(
    traces: str | Path | Iterable[str | Path],
    cluster: str | Path | BenchedMachine,
    *,
    training: str | Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> StepCalibration:
    """Fit the GPUs of `cluster` (a preset or a cluster file) to Kineto traces of training steps.

    `training` is a scenario of the recorded training (its cluster is put aside): without it GPUs
    are compared with each other only. `progress` hears what is being done.

    Raises:
        TraceError: no trace, or none with a profiled step that computes on a GPU.
        ScenarioError: no such cluster or scenario, or one that cannot run on it.
    """
    machine = cluster if isinstance(cluster, BenchedMachine) else machine_of(cluster)
    given = [traces] if isinstance(traces, str | Path) else list(traces)
    recorded = load_trace(
        [example_path(path) for path in given],
        progress=lambda done, of: progress(f"reading traces: {done:,} of {of:,} done"),
    ).paces
    paces = {rank: pace for rank, pace in recorded.items() if pace.steps}
    if not paces:
        raise TraceError(
            f"{', '.join(map(str, given))}: no profiled step computes on a GPU. Record with"
            " ProfilerActivity.CUDA and a schedule, and call profiler.step() in the loop."
        )
    count = min(len(pace.steps) for pace in paces.values())
    steps = {rank: pace.steps[-count:] for rank, pace in paces.items()}
    shown = [place for place in range(count) if place % 2 == 0]
    ratios = {rank: _against_others(rank, steps) for rank in steps}
    pace_of = {rank: float(np.median(ratios[rank][shown])) for rank in steps}
    slow = {rank: times for rank, times in pace_of.items() if times >= _SLOW}
    launch = _launch(paces)
    fitted, base, times = machine, _alike(steps, ratios, shown), None
    expected = {rank: base[rank] * slow.get(rank, 1.0) for rank in steps}
    if training is not None:
        progress("fitting the speed of the GPUs by simulations of the training")
        base = _simulated(training, machine, steps)
        fitted, expected, times = _fit(training, machine, steps, shown, slow)
    if launch is not None:
        written = {"launch": f"{launch * 1e9:.4g}ns", "sources": _source(given, "launch")}
        fitted = fitted.having({"host": written})
    rows = tuple(
        PacedStep(
            rank, one.name, one.compute / PS_PER_SECOND, base[rank] / PS_PER_SECOND,
            expected[rank] / PS_PER_SECOND, place in shown,
        )
        for rank in steps
        for place, one in enumerate(steps[rank])
    )  # fmt: skip
    unseen = [row for row in rows if not row.fitted_to]
    return StepCalibration(
        cluster=_told(fitted, given, times),
        slow=tuple(SlowRank(rank, value) for rank, value in sorted(slow.items())),
        times=times,
        launch_s=launch,
        before=_error([(row.given_s, row.measured_s) for row in unseen]),
        after=_error([(row.predicted_s, row.measured_s) for row in unseen]),
        steps=rows,
        notes=tuple(_notes(len(steps), count, training)),
    )


def _against_others(rank: int, steps: Mapping[int, Sequence[StepPace]]) -> Any:
    """Return, by step, the time of a rank's kernels over that of the same kernels elsewhere.

    The same are those of a name that ran equally often; stages that share none stand at 1.
    """
    found = []
    for place, one in enumerate(steps[rank]):
        own = elsewhere = 0.0
        for name, (count, spent) in one.kernels.items():
            others = [
                other[place].kernels[name][1]
                for at, other in steps.items()
                if at != rank and other[place].kernels.get(name, (0,))[0] == count
            ]
            if others:
                own += spent
                elsewhere += float(np.median(others))
        found.append(own / elsewhere if elsewhere else 1.0)
    return np.array(found)


def _alike(
    steps: Mapping[int, Sequence[StepPace]], ratios: Mapping[int, Any], shown: Sequence[int]
) -> dict[int, float]:
    """Return the compute of each rank if its GPU were as the others', in ps."""
    return {
        rank: float(np.median([own[place].compute / ratios[rank][place] for place in shown]))
        for rank, own in steps.items()
    }


def _simulated(
    training: str | Path, machine: BenchedMachine, steps: Mapping[int, Any]
) -> dict[int, float]:
    """Return the compute of each recorded rank in a scenario on the machine, in ps."""
    data, where, folder, _ = read_scenario(training)
    given = scenario_from(data, where, folder=folder).file.cluster
    nodes = given.nodes if given is not None and isinstance(given.nodes, int) else 1
    moved = {**data, "cluster": {**machine.cluster, "nodes": nodes}}
    result = run(scenario_from(moved, where, folder=folder))
    graph, took = result.timeline.graph, breakdown(result.timeline).compute
    if graph.folding is not None:
        lane_of = graph.folding.lane_of.tolist()
    else:
        lane_of = np.argsort(graph.lane_rank).tolist()
    if max(steps) >= len(lane_of):
        raise TraceError(
            f"{training}: trains on {len(lane_of)} GPUs, and rank {max(steps)} is recorded. Give"
            " the scenario of the training that was recorded."
        )
    return {rank: float(took[lane_of[rank]]) for rank in steps}


def _fit(
    training: str | Path,
    machine: BenchedMachine,
    steps: Mapping[int, Sequence[StepPace]],
    shown: Sequence[int],
    slow: Mapping[int, float],
) -> tuple[BenchedMachine, dict[int, float], float]:
    """Return the machine whose GPUs take what was recorded, what each rank takes there, and how
    much longer than given that is, slow GPUs apart."""
    gpu = cluster_from({**machine.cluster, "nodes": 1}, machine.name).specs[0].gpu
    times, made = 1.0, machine
    predicted = _simulated(training, machine, steps)
    for _ in range(_ROUNDS):
        off = [
            steps[rank][place].compute / (predicted[rank] * slow.get(rank, 1.0))
            for rank in steps
            for place in shown
        ]
        times *= float(np.median(off))
        if not 1 / _UNLIKE < times < _UNLIKE:
            raise TraceError(
                f"{training}: recorded steps compute {times:.3g} times as long as its own: it is"
                " another training. Give the model, batch and layout that were recorded."
            )
        made = machine.having(
            {
                "gpu": {
                    "tflops": {name: flops / times for name, flops in gpu.tflops.items()},
                    "memory_bandwidth": f"{gpu.memory_bandwidth / times / 1e9:.6g}GB/s",
                }
            }
        )
        predicted = _simulated(training, made, steps)
    return made, {rank: predicted[rank] * slow.get(rank, 1.0) for rank in steps}, times


def _launch(paces: Mapping[int, RankPace]) -> float | None:
    took = [pace.launch for pace in paces.values() if pace.launch >= 0]
    return float(np.median(took)) / PS_PER_NS * 1e-9 if took else None


def _error(pairs: Sequence[tuple[float, float]]) -> float | None:
    if not pairs:
        return None
    return float(np.median([abs(predicted / measured - 1) for predicted, measured in pairs]))


def _source(traces: Sequence[str | Path], *fields: str) -> dict[str, str]:
    names = ", ".join(Path(path).name for path in traces)
    return dict.fromkeys(fields, f"fitted: commsim calibrate --trace {names}")


def _told(
    machine: BenchedMachine, traces: Sequence[str | Path], times: float | None
) -> dict[str, Any]:
    """Return the cluster file, with where the figures of its GPUs are from."""
    if times is not None:
        source = _source(traces, "tflops", "memory_bandwidth")
        machine = machine.having({"gpu": {"sources": source}})
    return dict(machine.cluster)


def _notes(ranks: int, count: int, training: str | Path | None) -> list[str]:
    notes = []
    if ranks == 1:
        notes.append("one rank is recorded: no GPU can be compared with others")
    if count == 1:
        notes.append("one step is recorded: no error can be said on steps left out")
    if training is None:
        notes.append(
            "without a scenario of the training (--training FILE) GPUs are compared with each"
            " other, and not with what the cluster should do"
        )
    return notes
