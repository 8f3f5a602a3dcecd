"""Runs as columns: the numbers that index the constants, and runs chosen and joined."""

from __future__ import annotations

import numpy as np

from commsim.libraries.nccl.timing.runs import ChunkShape, LinkKind, NicWay, Runs


def test_numbers_of_kinds():
    """Links index the table of constants, and the worst way of a group is the largest."""
    assert [(kind.name, kind.value) for kind in LinkKind] == [
        ("NVLINK", 0),
        ("PCIE", 1),
        ("SHM", 2),
    ]
    assert NicWay.DIRECT < NicWay.ROOT < NicWay.STAGED
    assert [way.value for way in NicWay] == [0, 1, 2]
    names = "RING CHAIN TREE NVLS NVLS_TREE COLLNET PAT EXCHANGE PAIR FAN"
    assert [(shape.name, shape.value) for shape in ChunkShape] == list(
        zip(names.split(), range(10), strict=True)
    )


def test_runs_chosen_and_joined(runs):
    one, two = runs(size=np.array([1.0, 2.0, 3.0])), runs(size=4.0, domains=1, ranks=8)
    every = Runs.joined([one, two])
    assert every.size.tolist() == [1, 2, 3, 4]
    assert len(every) == 4
    assert every.per_domain.tolist() == [8, 8, 8, 8]
    assert every.crosses.tolist() == [True, True, True, False]
    some = every.at(np.array([True, False, False, True]))
    assert (some.size.tolist(), some.domains.tolist()) == ([1, 4], [2, 1])
    assert every.at(np.array([3, 0])).size.tolist() == [4, 1]
