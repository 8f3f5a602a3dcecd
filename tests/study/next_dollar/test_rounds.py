"""Which changes are run and what is said of them, of steps that are known for every change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from commsim.cluster import Cluster, ClusterSection
from commsim.errors import ScenarioError
from commsim.sections import decode
from commsim.study.next_dollar.alternatives import SettingChange
from commsim.study.next_dollar.next_dollar import _check_prices, _priced, _Search, next_dollar
from commsim.study.next_dollar.reasons import LinkUses, hurts_words, idle_reason
from commsim.study.next_dollar.resources import Resource
from commsim.study.next_dollar.upgrades import NextDollar, ResourceChange, Upgrade

STEP = 100.0  # of hundredths, so that a ten-thousandth is a whole number
WORSE, BETTER = 1 / 1.1, 1.1

Step = Callable[[float], float | None]


class Runs:
    """Runs whose step is a function of how many times better a resource is; None: an error."""

    def __init__(self, **steps: Step) -> None:
        self.steps = steps
        self.ran: list[tuple[str, float]] = []

    def run(self, changes: Iterable[tuple[str, ...]]) -> None:
        for sets in changes:
            one = self._read(sets)
            if one not in self.ran:
                self.ran.append(one)

    def step(self, sets: tuple[str, ...]) -> float | None:
        self.run([sets])
        key, times = self._read(sets)
        step = self.steps[key](times)
        return None if step is None else round(100 * step, 6)

    def error(self, sets: tuple[str, ...]) -> str | None:
        return f"x ({sets[-1]}): too little" if self.step(sets) is None else None

    def result(self, sets: tuple[str, ...]) -> dict[str, Any] | None:
        step = self.step(sets)
        fits = {"none": None, "full": {"fits": False}}.get(
            sets[0].partition("=")[0], {"fits": True}
        )
        return None if step is None else {"step_time_s": step, "memory_gib": fits}

    def _read(self, sets: tuple[str, ...]) -> tuple[str, float]:
        key, _, times = sets[-1].partition("=")
        return key, float(times)

    def of(self, key: str) -> list[float]:
        """Return the changes of a resource in the order in which they were run."""
        return [times for name, times in self.ran if name == key]


def resource(key: str, *, kind: str = "hardware", links: tuple[str, ...] = (), least: float = 0.0,
             most: float = 99.0, now: str = "now") -> Resource:  # fmt: skip
    def sets(better: float) -> tuple[str, ...] | None:
        return (f"{key}={better}",) if least <= better <= most else None

    return Resource(key, key, kind, now, sets, links)


def searching(uses: Any = (), **steps: Step) -> tuple[Any, Runs]:
    runs = Runs(**steps)
    made: Any = object.__new__(_Search)
    made._runs, made._step, made._uses = runs, 100 * STEP, LinkUses(dict(uses))
    made._base = SimpleNamespace(metrics=SimpleNamespace(memory_gib=None))
    return made, runs


def constant(step: float) -> Step:
    return lambda times: step


def test_what_doubling_moves_is_also_made_a_tenth_worse_and_better() -> None:
    """Steps of 100 s: a ten-thousandth, 0.01 s, is no move, and above it is one."""
    made, runs = searching(
        a=lambda times: 99.98 if times == 2.0 else STEP,
        b=lambda times: 99.99 if times == 2.0 else STEP,
        c=lambda times: 100.02 if times == 0.5 else STEP,
        d=lambda times: 99.0, e=lambda times: 99.98,
    )  # fmt: skip
    listed = [resource("a"), resource("b"), resource("c"), resource("d", kind="setting"),
              resource("e", kind="size")]  # fmt: skip
    found = {one.resource: one for one in made.upgrades(listed)}
    moved = sorted({0.5, WORSE, BETTER, 2.0})
    assert sorted(runs.of("a")) == sorted(runs.of("c")) == moved
    assert sorted(runs.of("b")) == sorted(runs.of("d")) == sorted(runs.of("e")) == [0.5, 2.0]
    assert [change.saved_s for change in found["b"].changes[1:3]] == [0.0, 0.0]
    assert [change.error for change in found["d"].changes[1:3]] == ["only halved and doubled"] * 2
    assert found["a"].saved_s == pytest.approx(2.0)


def test_less_of_what_nothing_goes_over_is_not_run() -> None:
    unused, used = resource("a", links=("x",)), resource("b", links=("y",))
    made, runs = searching({"y": ("link", 0.5)}, a=constant(STEP), b=constant(STEP),
                           c=lambda times: 101.0, gpu_memory=constant(STEP), d=constant(99.99),
                           e=constant(99.98))  # fmt: skip
    found = made.upgrades([
        unused, used, resource("c", links=("x",)), resource("gpu_memory"),
        resource("d", links=("x",)), resource("e", links=("x",)),
    ])  # fmt: skip
    assert runs.of("a") == runs.of("gpu_memory") == runs.of("d") == [2.0]
    assert set(runs.of("e")) == {0.5, WORSE, BETTER, 2.0}
    assert set(runs.of("b")) >= {2.0, 0.5}
    assert set(runs.of("c")) == {0.5, WORSE, BETTER, 2.0}  # moved, though nothing goes over it
    assert found[0].changes[0] == ResourceChange(0.5, ("a=0.5",), 100 * STEP, 0.0)
    assert found[0].why == "nothing goes over it"


def test_a_gain_ends_where_another_doubling_saves_less_than_a_hundredth() -> None:
    """Of 100 s: 1 s is noticed, 0.99 is not."""

    def step(**at: float) -> Step:
        known = {float(times[1:]): STEP - saved for times, saved in at.items()}
        return lambda times: known.get(times, STEP)

    made, runs = searching(
        a=step(x2=10.0, x4=11.0, x8=12.0, x16=13.0), b=step(x2=10.0, x4=10.99),
        c=step(x2=10.0, x4=11.0, x8=11.99), d=step(x2=10.0, x4=11.0, x8=12.0, x16=12.9),
        e=step(x2=0.99, x4=50.0), f=step(x2=1.0, x4=2.0, x8=2.5),
    )  # fmt: skip
    saturates = {key: made._saturates(resource(key)) for key in "abcd"}
    assert saturates == {"a": None, "b": 2.0, "c": 4.0, "d": 8.0}
    assert made._saturates(resource("d"), 4.0) is None
    assert made._saturates(resource("a", most=2.0)) is None
    assert [made._gains(resource(key)) for key in "ef"] == [False, True]
    runs.ran.clear()
    found = made.upgrades([resource(key) for key in "fabce"])
    assert {one.resource: one.saturates for one in found} == {
        "f": None, "a": None, "b": 2.0, "c": 4.0, "e": None,
    }  # fmt: skip
    assert 4.0 not in runs.of("f")  # three are followed
    assert 8.0 not in runs.of("b")
    assert 16.0 not in runs.of("c")


@pytest.mark.parametrize("begins", [0.9, 0.6, 0.3, 0.05, 1 / 64])
def test_less_is_felt_from_some_share_on(begins: float) -> None:
    """A step 1 s longer below a share of what there is: found to a sixteenth of an octave."""
    made, runs = searching(a=lambda times: STEP + (1.0 if times <= begins else 0.99))
    found = made._hurts([resource("a")])
    assert found["a"] <= begins
    halved = sum(begins < 1 / 2**power for power in range(1, 7)) + 1
    assert len(runs.of("a")) == halved + 4
    assert found["a"] * 2 ** (1 / 16) > begins * (1 - 1e-9)


def test_what_is_not_felt_at_a_64th_never_is() -> None:
    made, runs = searching(a=constant(100.99), b=lambda times: 101.0)
    assert set(made._hurts([resource("a"), resource("b")])) == {"b"}
    assert runs.of("a") == [1 / 2**power for power in range(1, 7)]


def test_a_loss_is_looked_for_where_links_are_used_and_more_gains_nothing() -> None:
    made, runs = searching(
        {"x": ("link", 0.5)}, a=constant(STEP), b=lambda times: STEP / times, c=constant(STEP)
    )
    found = made.upgrades([resource("a", links=("x",)), resource("b", links=("x",)),
                           resource("c", links=("y",))])  # fmt: skip
    assert 0.25 in runs.of("a")
    assert 0.25 not in runs.of("b")
    assert 0.25 not in runs.of("c")
    assert [one.hurts for one in found] == [None, None, None]


@pytest.mark.parametrize(
    ("key", "kind", "links", "step", "told"),
    [
        ("a", "hardware", (), lambda t: 99.0 if t == 2 else STEP, ""),
        ("a", "hardware", (), lambda t: 99.1 if t == 2 else STEP,
         "little of the critical path waits for it"),
        ("a", "hardware", (), lambda t: 100.051 if t < 1 else STEP,
         "little of the critical path waits for it"),
        ("a", "hardware", (), lambda t: 100.05 if t < 1 else STEP,
         "nothing on the critical path waits for it"),
        ("a", "hardware", ("x",), lambda t: 99.1 if t == 2 else STEP,
         "at most 50% full at any moment (link): something else sets the pace"),
        ("gpu_memory", "hardware", (), lambda t: 99.1 if t == 2 else STEP,
         "what it holds is not known"),
        ("a", "hardware", (), lambda t: 101.1 if t == 2 else STEP,
         "little of the critical path waits for it; twice as much makes the step longer: the"
         " library chooses another way for it"),
        ("a", "hardware", (), lambda t: 101.0 if t == 2 else STEP,
         "little of the critical path waits for it"),
        ("a", "hardware", (), lambda t: None if t == 2 else STEP, "too little"),
        ("a", "setting", (), lambda t: None if t == 2 else STEP, "too little"),
        ("a", "setting", (), constant(STEP), ""),
    ],
)  # fmt: skip
def test_why_more_saves_nothing(
    key: str, kind: str, links: tuple[str, ...], step: Step, told: str
) -> None:
    made, _ = searching({"x": ("link", 0.5)}, **{key: step})
    (found,) = made.upgrades([resource(key, kind=kind, links=links)])
    assert found.why.partition("; it begins")[0] == told


def test_what_cannot_be_had_is_told_and_the_change_of_the_batch_with_nodes() -> None:
    made, _ = searching(a=constant(90.0))
    (found,) = made.upgrades([resource("a", kind="size", most=1.5)])
    assert found.changes[-1] == ResourceChange(
        2.0, (), error="not to be had: all counts are whole numbers"
    )
    assert found.why == found.changes[-1].error
    three = Resource("a", "a", "size", "2", lambda times: ("n=1", "batch.micro=2", f"a={times}"))
    (found,) = made.upgrades([three])
    assert found.why == "twice as many take a=2.0: the batch stays".replace("a=2.0", "0")
    two = Resource("a", "a", "size", "2", lambda times: ("batch.micro=2", f"a={times}"))
    (found,) = made.upgrades([two])
    assert found.why == ""


def test_other_settings_what_saves_most_first_and_what_cannot_run_last() -> None:
    made, _ = searching(a=constant(99.0), b=lambda times: None, c=constant(90.0),
                        none=constant(101.0), full=constant(STEP))  # fmt: skip
    found = made.alternatives([SettingChange(key, (f"{key}=1",)) for key in
                               ("b", "a", "none", "full", "c")])  # fmt: skip
    assert [(one.title, one.saved_s, one.fits) for one in found] == [
        ("c", 1000.0, True), ("a", 100.0, True), ("full", 0.0, False), ("none", -100.0, None),
        ("b", None, None),
    ]  # fmt: skip
    assert found[-1].error == "too little"


def test_why_links_are_not_what_is_waited_for() -> None:
    uses = LinkUses({"a": ("one", 0.994), "b": ("two", 0.995), "c": ("three", 0.4)})
    result: Any = SimpleNamespace(metrics=SimpleNamespace(memory_gib={"fits": True, "peak": 12.34}))

    def told(key: str, *links: str) -> str:
        return idle_reason(key, links, uses, result)

    assert told("x", "c", "a") == (
        "at most 99% full at any moment (one): something else sets the pace"
    )
    assert told("x", "c", "b", "a") == (
        "full at times (two), but no step waits for that: other work covers it"
    )
    assert told("x", "d") == "nothing goes over it"
    assert told("gpu_memory") == "12.3 GiB at the peak: it fits; more changes no time by itself"
    assert told("nic_latency").startswith("that of the links is too little")
    assert told("compute") == "nothing on the critical path waits for it"
    result.metrics.memory_gib["fits"] = False
    assert "it does not fit" in told("gpu_memory")


def test_from_when_on_less_is_felt() -> None:
    assert hurts_words("uplinks", "2:1", 0.25) == "it begins to hurt at 8:1"
    assert hurts_words("uplinks", "even", 0.25) == "it begins to hurt at 25% of that"
    assert hurts_words("nic", "2:1", 0.25) == "it begins to hurt at 25% of that"


def test_prices_are_of_what_there_is_and_not_below_zero() -> None:
    listed = [resource("nic"), resource("nvlink")]
    _check_prices({"nic": 0.0, "nvlink": 2.5}, listed)
    with pytest.raises(ScenarioError, match=r"--price hbm: there is none of that. Known: nic, nvl"):
        _check_prices({"hbm": 1.0}, listed)
    for price in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ScenarioError, match="give a price of zero or more"):
            next_dollar("dp-pp-tp", prices={"nic": price})


def priced(saved: float | None = 25.0, doubled: float | None = 75.0, *, kind: str = "hardware",
           prices: Any = (), cost: Any = (("per_hour", 30.0),)) -> Upgrade:  # fmt: skip
    """Return an upgrade of eight GPUs, priced: a step of 75 s where it was 100."""
    changes = (ResourceChange(2.0, ("x=1",), doubled, saved),)
    upgrade = Upgrade("nic", "NICs", kind, "now", changes, saved, None, None)
    metrics = SimpleNamespace(cost=None if cost is None else dict(cost))
    base: Any = SimpleNamespace(cluster=Cluster.preset("dgx-h100"), metrics=metrics)
    section = decode({"preset": "dgx-h100"}, ClusterSection, "x")
    return _priced(upgrade, base, section, "x", dict(prices))


def test_a_price_over_what_it_saves() -> None:
    """0.5 for an hour of a GPU and eight of them: 4; 48 steps of 75 s an hour save 25 s each."""
    found = priced(prices={"nic": 0.5})
    assert found.price_per_hour == 4.0
    assert found.worth_per_hour == pytest.approx(30 * 25 / 75)
    assert found.per_saved_second == pytest.approx(4.0 / (48 * 25))
    little = priced(0.01, prices={"nic": 0.5})
    assert little.per_saved_second == pytest.approx(4.0 / (48 * 0.01))
    for saved in (0.0, -5.0):
        lost = priced(saved, prices={"nic": 0.5})
        assert (lost.price_per_hour, lost.per_saved_second) == (4.0, None)
    assert priced(cost=None, prices={"nic": 0.5}).worth_per_hour is None
    assert priced().price_per_hour is None
    for other in (priced(None, prices={"nic": 0.5}), priced(25.0, None, prices={"nic": 0.5}),
                  priced(kind="setting", prices={"nic": 0.5})):  # fmt: skip
        assert (other.price_per_hour, other.worth_per_hour) == (None, None)


def found_of(*upgrades: Upgrade, cost: Any = (("currency", "EUR"),), gpus: int = 8) -> NextDollar:
    """What is found of a step of 2 s."""
    metrics = SimpleNamespace(step_time_s=2.0, cost=None if cost is None else dict(cost))
    cluster = SimpleNamespace(world_size=gpus) if gpus else None
    result: Any = SimpleNamespace(metrics=metrics, cluster=cluster, notes=("a note",))
    return NextDollar("x", result, upgrades, 7)


def upgrade(saved: float | None, kind: str = "hardware", **more: Any) -> Upgrade:
    return Upgrade("nic", "NIC bandwidth", kind, "8 x 50 GB/s", (), saved, **more)


@pytest.mark.parametrize(
    ("saved", "best"), [(0.02, True), (0.0199, False), (None, False), (-1.0, False)]
)
def test_the_best_saves_a_hundredth_at_least(saved: float | None, best: bool) -> None:
    """The first hardware counts: a size or a setting is not bought by itself."""
    one = upgrade(saved)
    found = found_of(upgrade(1.0, "size"), upgrade(1.0, "setting"), one, upgrade(1.5))
    assert found.best is (one if best else None)
    if not best:
        assert found.headline == (
            "A step takes 2 s. Twice as much of any one thing saves less than 1% of it."
        )
    assert found_of().best is None


def test_the_headline_says_what_to_buy_and_what_it_may_cost() -> None:
    """A quarter of 2 s; 16 for an hour of eight GPUs."""
    begin = "A step takes 2 s. NIC bandwidth is worth most: twice 8 x 50 GB/s saves 25.0%"
    worth = upgrade(0.5, worth_per_hour=16.0)
    assert found_of(worth).headline == f"{begin}, and may cost 2 EUR per GPU-hour."
    assert found_of(worth, gpus=0).headline == f"{begin}, and may cost 16 EUR per GPU-hour."
    assert found_of(worth, cost=None).headline == f"{begin}."
    assert found_of(worth, cost=()).headline == f"{begin}."
    assert found_of(upgrade(0.5, saturates=4.0)).headline == (
        f"{begin}; beyond 4 times there is little more."
    )
    said = found_of(worth).to_dict()
    assert (said["schema"], said["runs"], said["notes"], said["currency"]) == (
        1, 7, ["a note"], "EUR",
    )  # fmt: skip
    assert repr(found_of(worth)) == "NextDollar('x', 1 resources, NIC bandwidth first)"
    assert repr(found_of()) == "NextDollar('x', 0 resources, nothing saves 1 %)"
