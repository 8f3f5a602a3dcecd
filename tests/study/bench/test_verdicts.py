"""Ring or tree is answered where no size changes the answer, too."""

from __future__ import annotations

from commsim.study.bench.verdicts import Timed, verdicts

MIB = 2**20


def rows(**times: list[float]) -> list[Timed]:
    """Return rows of 1 MiB and 2 MiB by algorithms that take so long."""
    return [
        Timed("all_reduce", size * MIB, algo, took)
        for algo, each in times.items()
        for size, took in zip((1, 2), each, strict=True)
    ]


def test_who_wins_everywhere_is_named() -> None:
    (told,) = verdicts(rows(Ring=[3, 3], Tree=[1, 2]))
    assert told == "all_reduce: Tree is the fastest at every size asked for (1 MiB to 2 MiB)"


def test_who_wins_nowhere_is_named_with_where_it_comes_nearest() -> None:
    (told,) = verdicts(rows(Ring=[5, 3], Tree=[1, 4], NVLS=[3, 4]))
    assert told.startswith("all_reduce: NVLS is nowhere the fastest (1 MiB to 2 MiB)")
    assert told.endswith("nearest at 2 MiB, 1.33 times as long as Ring")


def test_the_fastest_protocol_speaks_for_an_algorithm() -> None:
    slow = Timed("all_reduce", MIB, "Tree", 9.0)
    assert verdicts([slow, *rows(Ring=[3, 1], Tree=[1, 2])]) == []


def test_one_algorithm_alone_has_nobody_to_beat() -> None:
    assert verdicts(rows(Ring=[3, 3])) == []
