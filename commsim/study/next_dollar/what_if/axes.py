"""
The axes of a what-if: what a slider changes, and by how much.

    nic.bandwidth       a resource of the cluster, by factors: what `commsim next` changes
    nodes, micro        its size and settings of the step; nodes change the replicas with them
    microbatches        of each replica in a step, so that the global batch follows
    nodes=2,4,8         with values of one's own, for any of these or for any path of the scenario
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from commsim.cluster import Cluster
from commsim.errors import ScenarioError, did_you_mean
from commsim.scenario import Scenario
from commsim.study.next_dollar.resources import MICRO, Resource, resources_of
from commsim.study.sweep import axis_of

__all__ = ["MOST_POINTS", "Change", "WhatIfAxis", "axes_for", "axis_names"]

MOST_POINTS = 200
"""Runs that a page of sliders holds."""

Change = Callable[[Mapping[str, str]], dict[str, str]]
"""From the settings (path to text) that other axes have made to those that a place adds to them."""

_ALIASES = MappingProxyType(
    {
        "nic.bandwidth": "nic", "network": "nic", "nvlink.bandwidth": "nvlink",
        "pcie.bandwidth": "pcie", "gpu.flops": "compute", "flops": "compute",
        "hbm.bandwidth": "hbm", "gpu.memory": "gpu_memory", "nic.latency": "network_latency",
        "network.latency": "network_latency", "nvlink.latency": "nvlink_latency",
        "oversubscription": "uplinks", "cluster.nodes": "nodes", "batch.micro": "micro",
        "gpus": "nodes", "bucket_size": "bucket",
    }
)  # fmt: skip
_FACTORS = (
    (1 / 8, 1 / 4, 1 / 2, 3 / 4, 1.0, 3 / 2, 2.0, 4.0, 8.0),
    (1 / 4, 1 / 2, 3 / 4, 1.0, 3 / 2, 2.0, 4.0),
    (1 / 4, 1 / 2, 1.0, 2.0, 4.0),
    (1 / 2, 1.0, 2.0),
)
"""Factors of an axis without values, if there are one, two, three or four axes."""
_TRAINING = "workload.training"
_DP, _GLOBAL = f"{_TRAINING}.parallel.dp", f"{_TRAINING}.batch.global"


class WhatIfAxis(msgspec.Struct, frozen=True):
    """A slider: its name, what it is in words, what it shows at each place and changes there.

    `given` is the place at which the scenario is as it was given.
    """

    name: str
    title: str
    labels: tuple[str, ...]
    changes: tuple[Change, ...]
    given: int

    def __repr__(self) -> str:
        return f"WhatIfAxis({self.name!r}, {', '.join(self.labels)})"


class _Known(msgspec.Struct, frozen=True):
    """What a name stands for: its words, what there is now, and changing it so many times.

    `follows`: what it changes depends on other axes, even where it stays as it is. `offered` are
    the factors that are tried where no values are given.
    """

    title: str
    now: str
    number: float | None
    times: Callable[[float], Change | None]
    follows: bool = False
    offered: Callable[[float], bool] = lambda _: True


def axis_names(scenario: Scenario, cluster: Cluster | None) -> list[str]:
    """Return the names that a what-if of this scenario may vary without giving values."""
    return list(_known(scenario, cluster, {}))


def axes_for(
    scenario: Scenario, cluster: Cluster | None, data: Any, asked: Iterable[str]
) -> tuple[WhatIfAxis, ...]:
    """Return the axes of names, several in one text with commas, or of "NAME=a,b,c".

    `data` is the scenario's plain data.

    Raises:
        ScenarioError: nothing is asked for, a name that is unknown here or asked for twice, or
            more than MOST_POINTS points.
    """
    wanted = list(_split(asked))
    if not wanted:
        raise ScenarioError("--what-if: name what to vary, like nic.bandwidth,nodes.")
    known = _known(scenario, cluster, data)
    free = sum("=" not in one for one in wanted)
    if free > len(_FACTORS):
        raise ScenarioError(
            f"--what-if: {free} axes are too many for one page ({MOST_POINTS} runs). Name up to"
            f" {len(_FACTORS)}, or give values: nic.bandwidth=1,2."
        )
    factors = _FACTORS[max(0, max(free, min(len(wanted), len(_FACTORS))) - 1)]
    axes = [_axis(one, known, data, factors) for one in wanted]
    if any(axis.name == "microbatches" for axis in axes):  # the batch follows: none need be smaller
        axes = [_with_microbatches_as_given(axis) for axis in axes]
    names = [axis.name for axis in axes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ScenarioError(f"--what-if {twice}: is asked for twice.")
    count = 1
    for axis in axes:
        count *= len(axis.labels)
    if count > MOST_POINTS:
        told = " x ".join(f"{len(axis.labels)} of {axis.name}" for axis in axes)
        raise ScenarioError(
            f"--what-if: {told} are {count:,} runs, and a page holds {MOST_POINTS}. Give fewer"
            " values: nic.bandwidth=1,2; `commsim sweep` takes more."
        )
    # microbatches go last: the global batch follows from the replicas that the others leave
    return tuple(sorted(axes, key=lambda axis: axis.name == "microbatches"))


def _with_microbatches_as_given(axis: WhatIfAxis) -> WhatIfAxis:
    """Return the axis of nodes without smaller microbatches, any other as it is."""
    if axis.name != "nodes":
        return axis

    def kept(change: Change) -> Change:
        return lambda before: {k: v for k, v in change(before).items() if k != MICRO}

    labels = tuple(label.partition(",")[0] for label in axis.labels)
    changes = tuple(kept(change) for change in axis.changes)
    return msgspec.structs.replace(axis, labels=labels, changes=changes)


def _split(asked: Iterable[str]) -> Iterator[str]:
    for text in asked:
        parts = [text] if "=" in text else text.split(",")
        yield from (part.strip() for part in parts if part.strip())


def _known(scenario: Scenario, cluster: Cluster | None, data: Any) -> dict[str, _Known]:
    """Return what can be named: resources, then microbatches, then numbers of the file."""
    found: dict[str, _Known] = {}
    if cluster is not None and scenario.file.cluster is not None:
        for one in resources_of(scenario.file, cluster, scenario.where):
            found[one.key] = _of_resource(one)
    training = scenario.file.workload.training
    if training is not None:
        per_step = training.batch.global_ / (training.parallel.dp * training.batch.micro)
        if per_step == int(per_step):
            found["microbatches"] = _of_microbatches(
                int(per_step), training.parallel.dp, training.batch.micro
            )
    for path, value in _numbers(data):
        name = path.rpartition(".")[2]
        if name not in found and name not in ("dp", "global") and name not in _ALIASES:
            found[name] = _of_path(path, value)
    return found


def _of_resource(resource: Resource) -> _Known:
    def times(factor: float) -> Change | None:
        sets = resource.sets(factor)
        if sets is None:
            return None
        changed = {path: value for path, _, value in (one.partition("=") for one in sets)}
        return lambda _: changed

    number = None
    if resource.kind != "hardware":
        try:
            number = float(resource.now.replace(",", ""))
        except ValueError:
            number = None  # a size in words
    return _Known(resource.title, resource.now, number, times, offered=resource.offered)


def _of_microbatches(now: int, replicas: int, micro: int) -> _Known:
    def times(factor: float) -> Change | None:
        many = now * factor
        if many < 1 or many != int(many):
            return None

        def change(before: Mapping[str, str]) -> dict[str, str]:
            dp, each = int(before.get(_DP, replicas)), int(before.get(MICRO, micro))
            return {_GLOBAL: str(dp * each * int(many))}

        return change

    return _Known(
        "microbatches of a replica in a step", f"{now:,}", float(now), times, follows=True
    )


def _of_path(path: str, now: float) -> _Known:
    def times(factor: float) -> Change | None:
        value = now * factor
        if isinstance(now, int):
            if value < 1 or value != int(value):
                return None
            value = int(value)
        return lambda _: {path: f"{value:.12g}"}

    return _Known(path, f"{now:g}", float(now), times)


def _numbers(data: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of a scenario's plain data by their paths."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _numbers(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, int | float) and not isinstance(data, bool):
        yield path, data


def _axis(
    text: str, known: Mapping[str, _Known], data: Any, factors: tuple[float, ...]
) -> WhatIfAxis:
    named, equals, _ = text.partition("=")
    name = _ALIASES.get(named.strip(), named.strip())
    if name in known:
        one = known[name]
        if not equals:
            return _by_factors(name, one, factors)
        return _by_values(name, one, text)
    if equals:
        return _by_path(text, data)
    hint = did_you_mean(name, (*known, *_ALIASES))
    raise ScenarioError(
        f"--what-if {named}: is nothing that can be varied here.{hint} Known:"
        f" {', '.join(known) or 'no numbers'}; or any setting with its values, like"
        " library.env.NCCL_ALGO=Ring,Tree."
    )


def _by_factors(name: str, known: _Known, factors: tuple[float, ...]) -> WhatIfAxis:
    if name == "nodes" and sum(known.times(one) is not None for one in factors) < 2:
        factors = (1.0, 2.0, 4.0)  # one node, or replicas that cannot be halved
    offered = [one for one in factors if one == 1.0 or known.offered(one)]
    places = [(one, change) for one in offered if (change := known.times(one))]
    return _made(name, known, places)


def _made(name: str, known: _Known, places: list[tuple[float, Change]]) -> WhatIfAxis:
    given = next((at for at, (factor, _) in enumerate(places) if factor == 1.0), None)
    if given is None:
        places.append((1.0, lambda _: {}))
        places.sort(key=lambda place: place[0])
        given = next(at for at, (factor, _) in enumerate(places) if factor == 1.0)
    else:
        places[given] = (1.0, places[given][1] if known.follows else lambda _: {})
    title = known.title if known.number is not None else f"{known.title}, now {known.now}"
    return WhatIfAxis(
        name,
        title,
        tuple(_label(known, factor, change) for factor, change in places),
        tuple(change for _, change in places),
        given,
    )


def _label(known: _Known, factor: float, change: Change) -> str:
    if known.number is not None:
        changed = {} if known.follows else change({})
        smaller = f", micro {changed[MICRO]}" if MICRO in changed and len(changed) > 1 else ""
        return f"{known.number * factor:,.12g}{smaller}"
    return f"x{factor:.4g}"


def _by_values(name: str, known: _Known, text: str) -> WhatIfAxis:
    """Return the axis of a known name at values: counts if it is a count, else factors."""
    places = []
    for value in dict.fromkeys(axis_of(text, option="--what-if").values):
        try:
            number = float(value.removeprefix("x"))
        except ValueError:
            number = 0.0
        if not 0 < number < math.inf:
            what = "a count above zero" if known.number is not None else "a factor, like 2 for x2"
            raise ScenarioError(f"--what-if {text}: {value!r} is not {what}.")
        factor = number / known.number if known.number is not None else number
        change = known.times(factor)
        if change is None:
            raise ScenarioError(
                f"--what-if {text}: {value} cannot be had, as replicas and sequences are whole"
                f" numbers. There are {known.now} now."
            )
        places.append((factor, change))
    return _made(name, known, sorted(places, key=lambda place: place[0]))


def _by_path(text: str, data: Any) -> WhatIfAxis:
    """Return the axis of any path at values; the value in the file is among the places."""
    axis = axis_of(text, option="--what-if")
    now: Any = data
    for key in axis.path.split("."):
        now = now.get(key) if isinstance(now, Mapping) else None
    labels, changes = [], []
    given = None
    for at, value in enumerate(dict.fromkeys(axis.values)):
        labels.append(value)
        changes.append(_setting(axis.path, value))
        given = at if value == str(now) else given
    if given is None:
        labels.insert(0, "as given" if now is None else str(now)[:24])
        changes.insert(0, lambda _: {})
        given = 0
    return WhatIfAxis(axis.path, axis.path, tuple(labels), tuple(changes), given)


def _setting(path: str, value: str) -> Change:
    return lambda _: {path: value}
