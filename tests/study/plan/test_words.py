"""Sentences of a plan, of options whose every figure is worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from commsim.study.plan.option import PlanOption
from commsim.study.plan.question import node_counts, odd_part
from commsim.study.plan.search import PlanSearch
from commsim.study.plan.words import changes_of, decides_of, headline_of


def option(
    kind: str, nodes: int, days: float, cost: float | None = None, **more: Any
) -> PlanOption:
    fixed: dict[str, Any] = {
        "gpus": nodes * 8, "layout": "l", "step_s": 1.0, "mfu": None, "currency": "EUR",
        "per_hour": None, "energy_kwh": None, "waits": ("much",), "scenario": {}, "memory_gib": 1.0,
    }  # fmt: skip
    return PlanOption(kind=kind, nodes=nodes, days=days, cost=cost, **fixed | more)


def searched(*options: PlanOption, below: Any = (), late: Any = (), smaller: Any = ()) -> Any:
    return SimpleNamespace(
        options=options, at_least=dict(below), nothing=["nothing else"], deadline=30.0,
        makes_it=lambda one: one.kind not in late, smaller=lambda _one: smaller,
    )  # fmt: skip


STACK = "(--set workload.training.compute.stack=NAME takes another)."
A = option("a", 4, 20.0, 1000.0)
B = option("b", 8, 10.0, 1500.0)


def test_an_option_has_the_gpus_that_train_and_those_that_are_paid() -> None:
    assert A.name == "4 a (32 GPUs)"
    rack = option("a", 1500, 1.0, paid_nodes=1600)
    assert rack.name == "1,500 a (12,000 GPUs; 1,600 nodes, 12,800 GPUs paid)"
    assert (A.paid_gpus, rack.paid_gpus, option("a", 4, 1.0, paid_nodes=4).name) == (
        32, 12_800, "4 a (32 GPUs)",
    )  # fmt: skip
    assert not A.whole
    assert A.to_dict()["waits"] == ["much"]


def test_the_headline_names_each_winner_once() -> None:
    def told(*winners: PlanOption | None, **more: Any) -> str:
        return headline_of(
            {"stack": "megatron"}, *winners, **{"simulated": 1, "complete": True} | more
        )

    end = f" Reckoned on stack megatron {STACK}"
    assert told(A, A, B) == (
        "Smallest and cheapest: 4 a (32 GPUs), 20 days, 1,000 EUR; fastest: 8 b (64 GPUs), 10 days,"
        f" 1,500 EUR.{end}"
    )
    assert told(A, A, A).startswith("Smallest, cheapest and fastest: 4 a (32 GPUs), 20 days")
    assert told(option("a", 4, 20.0), None, None) == f"Smallest: 4 a (32 GPUs), 20 days.{end}"
    assert told(None, None, None) == f"Nothing makes it.{end}"
    assert told(None, None, None, simulated=0) == f"Nothing makes it.{end}"
    early = told(None, None, None, complete=False)
    assert early == f"Nothing that was simulated makes it.{end}"
    ended = told(None, None, None, complete=False, simulated=0)
    assert ended == "The search ended before anything was simulated: nothing is known yet."


def test_why_the_smallest_is_not_smaller() -> None:
    below = {("a", 3): 31.0, ("a", 2): 45.0, ("a", 4): 20.0, ("b", 3): 99.0}
    told = list(decides_of(searched(A, below=below), A, None, None))
    assert told == [
        "smallest: 3 a take at least 31 days", "its step: waits much", "nothing else",
    ]  # fmt: skip
    quick = option("a", 4, 20.0, mfu=0.5, waits=("x", "y"))
    told = list(decides_of(searched(quick), quick, None, None))
    assert told == ["its step: MFU 50.0%; waits x; y", "nothing else"]


def test_what_the_cheapest_is_cheaper_than() -> None:
    unpriced, dearer, late = (
        option("c", 4, 9.0),
        option("b", 9, 9.0, 1900.0),
        option("d", 1, 99.0, 1.0),
    )
    found = searched(A, unpriced, dearer, B, late, late=("d",))
    told = list(decides_of(found, None, A, None))
    assert told[0].startswith("cheapest: only of what has a price: none is known of c, which may")
    assert told[1:] == ["cheapest: 8 b (64 GPUs) cost 1,500 EUR, +50%", "nothing else"]


def test_what_the_fastest_costs_in_gpus() -> None:
    found = searched(A, B)
    told = list(decides_of(found, A, None, B))
    assert told[1] == "fastest: 2 times the GPUs of the smallest for 2 times the speed"
    assert len(list(decides_of(found, A, None, A))) == 2
    assert list(decides_of(found, None, None, B)) == ["nothing else"]


@pytest.mark.parametrize(
    ("seconds", "budget", "makes"),
    [
        (20 * 86400, None, True), (20 * 86400 - 1, None, False), (None, None, True),
        (None, 1000.0, True), (None, 999.9, False), (20 * 86400, 1000.0, True),
        (1, 1000.0, False),
    ],
)  # fmt: skip
def test_an_option_makes_it_up_to_the_last_second_and_the_last_coin(
    seconds: float | None, budget: float | None, makes: bool
) -> None:
    """Twenty days for 1,000."""
    asked = SimpleNamespace(seconds=seconds, budget=budget)
    search: Any = SimpleNamespace(_question=asked)
    assert PlanSearch.makes_it(search, A) is makes
    unpriced = option("c", 4, 20.0, None)
    assert PlanSearch.makes_it(search, unpriced) is (makes and budget is None)


@pytest.mark.parametrize(
    ("unit", "most", "counts"),
    [
        (1, 20, [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20]), (1, 3, [1, 2, 3]),
        (2, 16, [1, 2, 4, 6, 8, 10, 12, 14, 16]), (9, 44, [1, 3, 9, 18, 27, 36]),
        (9, 8, [1, 3]), (1, 0, []),
    ],
)  # fmt: skip
def test_sizes_by_quarters_of_whole_racks_and_parts_of_one(
    unit: int, most: int, counts: list[int]
) -> None:
    assert list(node_counts(unit, most)) == counts
    assert [odd_part(number) for number in (1, 8, 18, 72)] == [1, 1, 9, 9]


def question(sequences: int = 1024, seconds: float | None = 1.0) -> Any:
    return SimpleNamespace(seconds=seconds, sequences=sequences, sequence=4096)


def test_how_much_longer_steps_may_be_and_what_more_days_would_do() -> None:
    below = {("a", 3): 40.0, ("a", 2): 35.0}
    told = list(changes_of(searched(A, below=below), question(), A, None))
    assert told == [
        "4 a (32 GPUs) is done after 20 days: steps may be 50% longer (failures, data, a slower"
        " stack) before it is late",
        "with more than 35 days, 2 a could do",
    ]
    assert list(changes_of(searched(A), question(seconds=None), A, None)) == []


def test_a_price_at_which_another_would_be_the_cheapest() -> None:
    """1500 for 1000 at 6.4 EUR an hour for 64 GPUs: equal where a GPU costs two thirds of 0.1."""
    hired = option("b", 8, 10.0, 1500.0, per_hour=6.4)
    owned = option("b", 8, 10.0, 1500.0, per_hour=6.4, bought=5.0)
    told = "b would be the cheapest below 0.06667 EUR for a GPU and hour (now 0.1{})"
    assert list(changes_of(searched(A, hired), question(), None, A)) == [told.format("")]
    assert list(changes_of(searched(A, owned), question(), None, A)) == [
        told.format(", bought and powered")
    ]
    assert list(changes_of(searched(A, B), question(), None, A)) == []


@pytest.mark.parametrize(
    ("nodes", "sequences", "batch"),
    [
        (3, 1024, 1056),  # 24 GPUs: a multiple of 3; 1023, 1026 and so on to 1056 = 3 * 352
        (2, 1024, None),  # two nodes of 8 divide it already
        (3, 768, None),
        (1, 1024, None),  # done after 80 days, which is late
    ],
)
def test_a_batch_with_which_fewer_nodes_could_do(
    nodes: int, sequences: int, batch: int | None
) -> None:
    told = list(changes_of(searched(A, smaller=[nodes]), question(sequences), A, None))[1:]
    if batch is None:
        assert told == []
    else:
        days = 20 * 4 / nodes
        assert told[0].startswith(
            f"{nodes} a could take about {days:.3g} days with --batch-tokens "
        )
        tokens = int(told[0].split("--batch-tokens ")[1].split()[0])
        found, odd = tokens // 4096, 3
        assert tokens % 4096 == 0
        assert found % odd == 0
        assert abs(found - sequences) <= sequences / 16
        power = (found & -found) * odd
        # No multiple of the next power of two is as near as a sixteenth.
        assert abs(round(sequences / (2 * power)) * 2 * power - sequences) > sequences / 16
        assert told[0].endswith(
            f"({found:,} sequences, which {nodes * 8} GPUs divide; 1,024 are no multiple of 3)"
        )
