"""The `collectives` workload: all at once, each in a group and stream of its own."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.star import Star

from commsim.engine import simulate
from commsim.errors import ScenarioError
from commsim.graph import Graph
from commsim.libraries import LibrarySection, make_library
from commsim.sections import decode
from commsim.workload import CollectiveSection, build_collectives


def collectives(*calls: dict[str, Any], world_size: int | None = None) -> Graph:
    section = decode(list(calls), tuple[CollectiveSection, ...], "x.yaml")
    return build_collectives(section, world_size=world_size).graph


def test_the_group_is_all_ranks_unless_given() -> None:
    graph = collectives(
        {"op": "all_reduce", "bytes": "1MiB"},
        {"op": "broadcast", "bytes": "8kB", "group": [2, 0], "root": 2},
        world_size=4,
    )
    assert [group.ranks for group in graph.groups] == [(0, 1, 2, 3), (2, 0)]
    assert graph.collectives.size.tolist() == [2**20, 8000]
    assert graph.collectives.root.tolist() == [-1, 2]


def test_without_a_cluster_the_groups_say_who_there_is() -> None:
    graph = collectives({"op": "all_gather", "bytes": "1MiB", "group": [1, 5]})
    assert graph.lane_rank.tolist() == [1, 5]


def test_all_start_together_even_on_the_same_ranks() -> None:
    call = {"op": "all_reduce", "bytes": "1MiB"}
    graph = collectives(call, call, world_size=4)
    timeline = simulate(graph, Star(4), library=make_library(LibrarySection()))
    assert set(timeline.arrive.tolist()) == {0}
    assert set(timeline.start.tolist()) == {0}


def test_splits_say_who_sends_how_much_to_whom() -> None:
    graph = collectives(
        {"op": "all_to_all_v", "group": [0, 1], "splits": [["0B", "3kB"], ["1kB", "1kB"]]}
    )
    assert graph.collectives.splits == (((0, 3000), (1000, 1000)),)
    assert graph.collectives.size.tolist() == [3000]  # the largest sum that a member sends


REDUCE = {"op": "all_reduce", "bytes": "1MiB"}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({"op": "allreduce", "bytes": "1MiB"}, ".0.op: no collective 'allreduce'. Did you mean"),
        ({"op": "all_reduce"}, ".0: the setting 'bytes' is missing"),
        ({**REDUCE, "root": 0}, ".0.root: all_reduce has no root"),
        ({"op": "reduce", "bytes": "1MiB"}, ".0: reduce needs a root"),
        ({"op": "reduce", "bytes": "1MiB", "root": 7, "group": [0, 1]}, ".0.root: rank 7 is not"),
        ({**REDUCE, "group": [0, 4]}, ".0.group: no rank 4: there are 4 ranks"),
        ({**REDUCE, "group": [0, -1]}, ".0.group: no rank -1"),
        ({**REDUCE, "group": [0, 0]}, ".0.group: give at least one rank, and each only once"),
        ({"op": "barrier", "bytes": "1MiB"}, ".0.bytes: barrier moves no bytes"),
        ({"op": "all_to_all_v", "group": [0, 1]}, ".0: all_to_all_v needs splits"),
        (
            {"op": "all_to_all_v", "group": [0, 1], "splits": [["1kB", "1kB"]]},
            ".0.splits: give 2 rows of 2 sizes",
        ),
        ({**REDUCE, "splits": [["1kB"]]}, ".0.splits: all_reduce has no splits"),
        ({"op": "all_reduce", "bytes": 1024}, "has no unit"),
        ({"op": "all_reduce", "byte": "1MiB"}, "Did you mean 'bytes'"),
    ],
)
def test_what_cannot_be_is_refused_with_its_path(call: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        collectives(call, world_size=4)
    assert words in str(caught.value)


def test_no_collective_and_no_ranks_are_refused() -> None:
    with pytest.raises(ScenarioError, match="the list is empty"):
        collectives(world_size=4)
    with pytest.raises(ScenarioError, match=r"\.0: without a cluster the group must be given"):
        collectives(REDUCE)
