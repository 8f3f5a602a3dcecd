"""What is asked of a plan, as it is read, and what is noted on the answer."""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from commsim.errors import ScenarioError
from commsim.study.plan import plan
from commsim.study.plan.option import PlanOption
from commsim.study.plan.plan import _notes, _plan
from commsim.study.plan.question import NodeKind, PlanQuestion, read_seconds, read_tokens
from commsim.study.plan.words import _near_multiple, changes_of

KIND = NodeKind("k", {"preset": "dgx-h100"})
RACK = NodeKind("r", {}, rack=18, used=16)


def question(
    sequences: int = 8, *kinds: NodeKind, seconds: float | None = None, **more: Any
) -> PlanQuestion:
    given: dict[str, Any] = {
        "model": "gpt2-124m", "tokens": 1e6, "seconds": seconds, "budget": None,
        "kinds": kinds or (KIND,), "sequence": 1024, "batch_tokens": sequences * 1024,
        "most_gpus": 8, "sets": (),
    }  # fmt: skip
    return PlanQuestion(**given | more)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("5M", 5e6), ("3B", 3e9), ("1.5T", 1.5e12), ("1_000", 1000.0), (7, 7.0),
        (" 2 T ", 2e12), ("2e+3", 2000.0), ("999_999T", 999_999e12),
    ],
)  # fmt: skip
def test_tokens(text: Any, tokens: float) -> None:
    assert read_tokens(text) == tokens


@pytest.mark.parametrize("text", ["0", "-1", "1e18", "1_000_000T", "2e-3", "T", "2K"])
def test_what_is_no_count_of_tokens(text: str) -> None:
    with pytest.raises(ScenarioError, match=f"--tokens {text}: give a count of tokens"):
        read_tokens(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("12h", 43_200), ("1.5d", 129_600), ("2w", 1_209_600), (0.5, 43_200),
     ("1157407d", 99_999_964_800)],
)  # fmt: skip
def test_days(text: Any, seconds: float) -> None:
    assert read_seconds(text) == seconds


@pytest.mark.parametrize("text", ["0d", "1157408d", "1e5", "2m"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ScenarioError, match=f"--in {text}: give a time"):
        read_seconds(text)


def test_steps_are_whole_sequences() -> None:
    """3,500 of 1,024 tokens are 3.4 sequences: three. A batch of less than half of one is one."""
    assert (question(8).sequences, question(8).steps) == (8, 1e6 / 8192)
    some = question(batch_tokens=3500, tokens=6144.0)
    assert (some.sequences, some.steps) == (3, 2.0)
    assert question(batch_tokens=100).sequences == 1
    training = question(8).data(KIND, 3)["workload"]["training"]
    assert training["batch"] == {"global": 8, "micro": 1}
    assert question(8).data(KIND, 3)["cluster"] == {"preset": "dgx-h100", "nodes": 3}


def test_nodes_of_whole_racks_are_paid() -> None:
    assert [RACK.paid(nodes) for nodes in (1, 8, 16, 32)] == [1, 8, 18, 36]
    assert [KIND.paid(nodes) for nodes in (1, 3)] == [1, 3]


class Searched:
    """A search that found `options`, of which the first is each winner."""

    stack, remarks, nothing, at_least = "megatron", ("a remark",), (), ()
    made: dict[str, Any]

    def __init__(self, *options: PlanOption, left: int = 0, share: float | None = 0.5) -> None:
        self.options, self.left, self.causal_share = list(options), left, share
        first = options[0] if options else None
        self.winners = (first, None if first is None or first.cost is None else first, first)
        self.simulated, self.deadline = len(options), 30.0
        self.at_least = {}  # type: ignore[assignment]

    def smaller(self, option: PlanOption) -> list[int]:
        return []

    def makes_it(self, option: PlanOption) -> bool:
        return True


def option(days: float = 1.0, cost: float | None = 1.0, **more: Any) -> PlanOption:
    fixed: dict[str, Any] = {
        "kind": "k", "nodes": 2, "gpus": 16, "layout": "", "step_s": 1.0, "mfu": None,
        "currency": "EUR", "per_hour": None, "energy_kwh": None, "waits": (), "scenario": {},
        "memory_gib": 1.0,
    }  # fmt: skip
    return PlanOption(days=days, cost=cost, **fixed | more)


def notes(found: Searched, asked: PlanQuestion, **flags: bool) -> list[str]:
    told: Any = found
    return _notes(asked, told, **{"usual": False, "interrupted": False} | flags)


def test_what_is_noted() -> None:
    plain = notes(Searched(option()), question(2000, tokens=2.048e9))
    assert plain == [
        "1,000 steps of 2,000 sequences of 1,024 tokens, without a pause: no failures and"
        " checkpoints (--set goodput.storage=200GB/s adds them) and no evaluation",
        "MFU counts full attention, as published tables do; by what a causal mask leaves of it,"
        " 0.5 of that",
        "a remark",
    ]
    failing = notes(Searched(option(), option(goodput=0.9)), question())
    assert failing[0].endswith("with failures and checkpoints by `goodput`; without evaluation")
    assert len(notes(Searched(share=None), question())) == 2
    usual = notes(Searched(option()), question(), usual=True)
    assert usual[-1].startswith("layouts: the usual ones")
    early = notes(Searched(option()), question(), interrupted=True)
    assert early[0].startswith("interrupted: the best of what was simulated")


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (1, "1 size has a floor that leaves hope and was not simulated: all runs were spent"),
        (2, "2 sizes have floors that leave hope and were not simulated: all runs were spent"),
    ],
)
def test_sizes_for_which_no_run_was_left(left: int, told: str) -> None:
    assert notes(Searched(option(), left=left), question())[0].startswith(told)


@pytest.mark.parametrize(
    ("options", "told"),
    [([option(cost=None)], True), ([option()], False), ([option(), option(cost=None)], False),
     ([], False)],
)  # fmt: skip
def test_without_a_price_none_is_the_cheapest(options: list[PlanOption], told: bool) -> None:
    found = notes(Searched(*options), question())
    assert any(note.startswith("no price is known of what makes it") for note in found) is told


@pytest.mark.parametrize(("sequences", "near"), [(512, 576), (4, 9), (20, 18), (26, 36), (9, 9)])
def test_a_batch_that_takes_racks_whole(sequences: int, near: int) -> None:
    """Nine times a power of two, the nearest by its exponent."""
    (told,) = [note for note in notes(Searched(option()), question(sequences, RACK, KIND))
               if note.startswith("r: 16 of the 18 nodes")]  # fmt: skip
    assert f"{sequences:,} sequences are no multiple of 9 (--batch-tokens {near * 1024} are" in told


def test_the_answer_has_the_question_and_the_options_by_their_days() -> None:
    slow, quick, small = option(3.0), option(2.0), option(2.0, gpus=8)
    asked = question(batch_tokens=3500, tokens=7000.0, seconds=86400.0 * 3)
    told: Any = Searched(slow, quick, small)
    made = _plan(asked, told, usual=True, interrupted=False)
    assert made.options == (small, quick, slow)
    assert made.question == {
        "model": "gpt2-124m", "tokens": 7000.0, "days": 3.0, "budget": None, "on": ["k"],
        "seq_len": 1024, "batch_tokens": 3072, "steps": 2, "stack": "megatron",
    }  # fmt: skip
    assert (made.simulated, made.complete) == (3, True)
    said = made.to_dict()
    assert (said["schema"], said["smallest"], said["cheapest"], said["fastest"]) == (1, 2, 2, 2)
    assert len(said["options"]) == 3
    assert not _plan(asked, told, usual=True, interrupted=True).complete
    told.left = 1
    assert not _plan(asked, told, usual=True, interrupted=False).complete
    assert _plan(question(), told, usual=True, interrupted=False).question["days"] is None


def test_a_plan_of_one_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least that may be asked for, and what is asked where nothing is said."""
    asked: list[Any] = []

    def searched(question: PlanQuestion, **settings: Any) -> Any:
        asked.append((question, settings))
        return SimpleNamespace(run=lambda: None)

    module = sys.modules["commsim.study.plan.plan"]
    monkeypatch.setattr(module, "PlanSearch", searched)
    monkeypatch.setattr(module, "_plan", lambda question, found, **flags: flags)
    least = {"seq_len": 1, "batch_tokens": 1, "most_gpus": 1, "runs": 1}
    made: Any = plan("gpt2-124m", tokens=1, on="dgx-h100", days=1, **least)  # type: ignore[arg-type]
    assert made == {"usual": True, "interrupted": False}
    (one, settings) = asked[0]
    assert (one.sequence, one.batch_tokens, one.most_gpus, settings["runs"]) == (1, 1, 1, 1)
    assert (one.seconds, one.budget, settings["usual"]) == (86400.0, None, True)
    made = plan("gpt2-124m", tokens=1, on="dgx-h100", days=1, budget=0.01, layouts="all")
    assert made["usual"] is asked[1][1]["usual"] is False
    defaults = {
        name: one.default for name, one in inspect.signature(plan).parameters.items()
    }  # fmt: skip
    assert defaults["seq_len"] == 8192
    assert defaults["batch_tokens"] == 4 * 2**20
    assert (defaults["most_gpus"], defaults["runs"]) == (8192, 12)


@pytest.mark.parametrize(
    ("sequences", "odd", "near"),
    [(64, 3, 60), (1024, 3, 960), (3, 3, 3), (2, 3, None), (16, 15, 15), (16, 17, None),
     (48, 9, 45), (15, 7, None), (32, 15, 30), (31, 15, 30)],
)  # fmt: skip
def test_the_nearest_batch_of_as_many_twos_as_a_sixteenth_allows(
    sequences: int, odd: int, near: int | None
) -> None:
    assert _near_multiple(sequences, odd) == near


def test_the_smallest_cluster_that_another_batch_allows_by_the_deadline() -> None:
    """Six nodes of three GPUs take 20 days: two would take 60, three 40, and four and five, of 12
    and 15 GPUs, 30 and 24. 64 sequences have no factor 3."""
    six = option(20.0, nodes=6, gpus=18)
    found: Any = Searched(six)
    found.smaller = lambda option: [2, 3, 4, 5]
    asked = question(64, seconds=30 * 86400.0)
    told = [line for line in changes_of(found, asked, six, None) if "--batch-tokens" in line]
    assert told == [
        f"4 k could take about 30 days with --batch-tokens {60 * 1024} (60 sequences, which 12"
        " GPUs divide; 64 are no multiple of 3)"
    ]
