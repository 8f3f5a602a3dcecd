"""The usual layouts: every one within their rules, and each rule reached."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from commsim.models import MemoryUse
from commsim.scenario import scenario_from
from commsim.study.advise.judge import Judge, Judged
from commsim.study.advise.layouts import Candidate, Degrees
from commsim.study.advise.search import SLACK, Search
from commsim.study.advise.simulate import Worker
from commsim.study.advise.usual import LayoutQueue, UsualJudge

MODEL = {"layers": 12, "hidden": 1536, "heads": 12, "vocab": 1024, "seq_len": 512}


def test_tensor_parallelism_is_a_power_of_two_and_up_to_four_sequences_go_at_once() -> None:
    """Six GPUs of a node: twelve heads could be cut in three or six as well."""
    training = {"model": MODEL, "batch": {"global": 48, "micro": 1}}
    cluster = {"preset": "dgx-h100", "overrides": {"gpu": {"count": 6}, "nic": {"count": 6}}}
    worker = Worker(scenario_from({"cluster": cluster, "workload": {"training": training}}, "x"))
    usual = UsualJudge(worker.section, worker.cluster, worker.library)
    assert {one.tp for one in worker.judge.degrees()} == {1, 2, 3, 6}
    assert {one.tp for one in usual.degrees()} == {1, 2}
    shapes = [shape for degrees in usual.degrees() for _, shape in usual.shapes(degrees)]
    assert {shape.micro for shape in shapes} == {1, 2, 4}
    assert {shape.overlap for shape in shapes} == {"none", "ring"}
    assert all((shape.overlap == "ring") == (shape.degrees.tp > 1) for shape in shapes)


def usual_of(*given: tuple[int, int, int, int], sequences: int = 8, domain: int = 8) -> Any:
    """Return a judge of degrees (tp, pp, cp, dp) on two domains, the other one larger."""
    judge: Any = UsualJudge.__new__(UsualJudge)
    judge._section = SimpleNamespace(batch=SimpleNamespace(global_=sequences))
    judge._cluster = SimpleNamespace(domains=np.repeat([0, 1], [domain, domain + 8]))
    judge.given = [SimpleNamespace(tp=tp, pp=pp, cp=cp, dp=dp) for tp, pp, cp, dp in given]
    return judge


@pytest.mark.parametrize(
    ("degrees", "domain", "usual"),
    [
        ((1, 1, 1, 1), 8, True), ((8, 1, 1, 1), 8, True), ((16, 1, 1, 1), 8, False),
        ((16, 1, 1, 1), 32, True), ((32, 1, 1, 1), 32, False), ((3, 1, 1, 1), 8, False),
        ((6, 1, 1, 1), 8, False), ((1, 16, 1, 1), 8, True), ((1, 17, 1, 1), 8, False),
        # 8 sequences: ranks of a context are for what replicas do not need.
        ((1, 1, 2, 4), 8, False), ((1, 1, 2, 5), 8, True), ((1, 1, 4, 2), 8, False),
        ((1, 1, 1, 8), 8, True), ((1, 1, 9, 1), 8, True), ((1, 1, 8, 1), 8, False),
    ],
)  # fmt: skip
def test_degrees_that_people_run(
    degrees: tuple[int, int, int, int], domain: int, usual: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Judge, "degrees", lambda self: iter(self.given))
    judge = usual_of(degrees, domain=domain)
    assert list(judge.degrees()) == (judge.given if usual else [])


@pytest.mark.parametrize(
    ("tp", "micro", "schedule", "overlap", "usual"),
    [
        (1, 1, "1f1b", "none", True), (1, 4, "interleaved_1f1b", "none", True),
        (1, 5, "1f1b", "none", False), (1, 1, "gpipe", "none", False),
        (1, 1, "1f1b", "ring", False), (2, 1, "1f1b", "ring", True), (2, 1, "1f1b", "none", False),
    ],
)  # fmt: skip
def test_settings_that_people_run(
    tp: int, micro: int, schedule: str, overlap: str, usual: bool
) -> None:
    shape: Any = SimpleNamespace(
        degrees=SimpleNamespace(tp=tp), micro=micro, schedule=schedule, overlap=overlap
    )
    assert usual_of().allowed(shape) is usual


def test_shards_that_people_use(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = ["ddp", "zero-1", "zero-2", "fsdp", "hsdp"]
    monkeypatch.setattr(Judge, "shardings", lambda self, degrees: ways)
    assert usual_of().shardings(None) == ["ddp", "zero-1", "fsdp"]


class Queue(LayoutQueue):
    """Layouts by micro: those of `floors` fit, and a run of one takes and fits as `runs` says."""

    def __init__(
        self, floors: dict[int, float], runs: dict[int, tuple[float, bool]], *, elsewhere: bool
    ) -> None:
        self._search = Search(Waiting(floors))  # type: ignore[arg-type]
        self._opened = False
        self._begun = {}
        self.begun: list[int] = []
        self.here: list[int] = []

        def ran(one: Candidate) -> Any:
            step, fits = runs[one.micro]
            return SimpleNamespace(candidate=one, metrics=step, fits=fits)

        def begin(one: Candidate) -> Any:
            self.begun.append(one.micro)
            return lambda: ran(one)

        def run(one: Candidate, follow: Any) -> Any:
            self.here.append(one.micro)
            return ran(one)

        self._pool: Any = SimpleNamespace(elsewhere=elsewhere, run=begin)
        self._worker: Any = SimpleNamespace(run=run)


class Waiting:
    """Two degrees: relaxed layouts of 1 and of 5 s, and what they stand for."""

    recomputes = ("none",)

    def __init__(self, floors: dict[int, float]) -> None:
        self.floors = floors
        self.judged: list[int] = []

    def degrees(self) -> list[Degrees]:
        return [Degrees(8, 1, 1, 1, 1), Degrees(4, 2, 1, 1, 1)]

    def shardings(self, degrees: Degrees) -> list[str]:
        return ["ddp"]

    def relaxed(self, degrees: Degrees) -> list[tuple[float, Candidate, int]]:
        first = degrees.tp == 1
        return [(1.0 if first else 5.0, self._layout(degrees, 1 if first else 4), 1)]

    def variants(self, shape: Candidate) -> list[tuple[float, Candidate]]:
        """Three of the first, of 2, 3 and 4 s; one of the second, of 6."""
        bounds = {2.0: 1, 3.0: 2, 4.0: 3} if shape.degrees.tp == 1 else {6.0: 4}
        return [(bound, shape._replace(micro=micro)) for bound, micro in bounds.items()]

    def ways(self, shape: Candidate) -> list[Judged]:
        self.judged.append(shape.micro)
        floor = self.floors.get(shape.micro)
        use = MemoryUse(1 if floor else 999, 0, 0, 0)
        return [Judged(shape, use, 0, 100, floor or float("inf"))]

    def least(self, degrees: Degrees, shard: str, recompute: Any) -> Judged:
        return Judged(self._layout(degrees, 1), MemoryUse(1, 0, 0, 0), 0, 100, 0.0)

    @staticmethod
    def _layout(degrees: Degrees, micro: int) -> Candidate:
        return Candidate(degrees, "1f1b", 1, micro, "none", "ddp")


def micros(queue: LayoutQueue) -> list[int]:
    found = []
    while (ran := queue.run_next()) is not None:
        found.append(ran.candidate.micro)
    return found


def test_a_bound_is_that_of_a_layout_and_a_floor_of_one_that_fits() -> None:
    """The bound of the first relaxed layout is 1 s, of what it stands for 2. Of three with bounds
    below it, one does not fit: the lowest floor is 3.5."""
    queue = Queue({1: 4.5, 2: 3.5, 4: 7.0}, {}, elsewhere=False)
    assert queue.bound() == queue.bound() == pytest.approx(2.0 / SLACK)
    waiting: Any = queue._search.judge
    assert waiting.judged == []
    assert queue.floor() == queue.floor() == 3.5
    assert waiting.judged == [1, 2]
    nothing = Queue({}, {}, elsewhere=False)
    assert (nothing.floor(), nothing.run_next(), nothing.bound()) == (None, None, None)


def test_layouts_are_run_in_the_order_of_their_floors_but_for_those_that_do_not_fit() -> None:
    floors = {1: 4.5, 2: 3.5, 3: 9.0, 4: 7.0}
    runs = {1: (5.0, True), 2: (5.0, False), 3: (9.0, True), 4: (7.0, True)}
    queue = Queue(floors, runs, elsewhere=False)
    assert micros(queue) == [1, 4, 3]
    assert queue.here == [2, 1, 4, 3]


@pytest.mark.parametrize(("count", "begun"), [(1, [2]), (2, [2, 1]), (9, [2, 1])])
def test_what_an_executor_begins_is_judged_and_not_begun_again(
    count: int, begun: list[int]
) -> None:
    """Of four layouts two are judged before the lowest floor is known."""
    floors = {1: 4.5, 2: 3.5, 3: 9.0, 4: 7.0}
    runs = dict.fromkeys(floors, (1.0, True))
    queue = Queue(floors, runs, elsewhere=True)
    assert queue.floor() == 3.5
    queue.begin(count)
    queue.begin(count)
    assert queue.begun == begun
    assert micros(queue) == [2, 1, 4, 3]
    assert queue.here == [micro for micro in (2, 1, 4, 3) if micro not in begun]
    alone = Queue(floors, runs, elsewhere=False)
    alone.floor()
    alone.begin(9)
    assert alone.begun == []
