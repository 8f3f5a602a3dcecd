"""Groups that a program made, as axes: which of them stand next to each other."""

from __future__ import annotations

from commsim.traces.capture.axes import FoundAxes, message_axes
from commsim.traces.capture.records import (
    CapturedCall,
    CapturedMemory,
    CapturedMessage,
    GroupMade,
    Record,
    Recording,
)


def axes_of(*made: tuple[tuple[int, ...], str], world: int = 8) -> FoundAxes:
    return FoundAxes.of([GroupMade(*one) for one in made], world)


def rows(axes: FoundAxes) -> dict[str, list[list[int]]]:
    return {name: table.tolist() for name, table in axes.rows.items()}


MESH = axes_of(
    ((0, 1), "mesh_pp"), ((2, 3), "mesh_pp"), ((4, 5), "mesh_pp"),
    ((0, 2, 4), "mesh_dp"), ((1, 3, 5), "mesh_dp"),
)  # fmt: skip


def test_groups_that_follow_each_other_are_the_rows_of_an_axis() -> None:
    assert rows(MESH) == {"pp": [[0, 1], [2, 3], [4, 5]], "dp": [[0, 2, 4], [1, 3, 5]]}
    assert MESH.name_of == {
        (0, 1): "pp", (2, 3): "pp", (4, 5): "pp", (0, 2, 4): "dp", (1, 3, 5): "dp",
    }  # fmt: skip
    assert MESH.world == 8


def test_another_label_size_or_a_rank_again_begins_another_axis() -> None:
    assert rows(axes_of(((0, 1), "a"), ((2, 3), "b"))) == {"a": [[0, 1]], "b": [[2, 3]]}
    assert rows(axes_of(((0, 1), "a"), ((2, 3, 4), "a"))) == {"a": [[0, 1]], "a'": [[2, 3, 4]]}
    assert rows(axes_of(((0, 1), "a"), ((1, 2), "a"), ((0, 3), "a"))) == {
        "a": [[0, 1]],
        "a'": [[1, 2], [0, 3]],
    }
    third = axes_of(((0, 1), "a"), ((1, 2), "a"), ((2, 0), "a"))
    assert list(third.rows) == ["a", "a'", "a''"]


def test_a_group_without_a_name_of_one_rank_or_made_again() -> None:
    assert rows(axes_of(((0, 1), ""), ((2,), ""), ((2, 3), ""))) == {"group": [[0, 1], [2, 3]]}
    assert rows(axes_of(((0,), "a"), ((1,), "a"))) == {}
    assert rows(axes_of(((0, 1), "a"), ((2, 3), "a"), ((0, 1), "b"))) == {"a": [[0, 1], [2, 3]]}
    assert rows(axes_of(((0, 1), "a"), ((0, 1, 2), "b"), ((2, 3), "a"))) == {
        "a": [[0, 1]],
        "b": [[0, 1, 2]],
        "a'": [[2, 3]],
    }


def test_where_a_rank_stands() -> None:
    assert [MESH.row("pp", rank) for rank in (0, 3, 6)] == [[0, 1], [2, 3], []]
    assert [MESH.position("pp", rank) for rank in range(7)] == [0, 1, 0, 1, 0, 1, -1]
    assert MESH.position("dp", 4) == 2
    assert MESH.positions("pp").tolist() == [0, 1, 0, 1, 0, 1, -1, -1]
    assert MESH.positions("dp").tolist() == [0, 0, 1, 1, 2, 2, -1, -1]


def test_messages_name_their_axes_by_first_use() -> None:
    groups = (GroupMade((0, 1), "a"), GroupMade((0, 2), "b"), GroupMade((0, 3), "c"))
    axes = FoundAxes.of(groups, 4)
    records: tuple[Record, ...] = (
        CapturedCall("all_reduce", 2, 4, 0, 1, internal=True),
        *(CapturedMessage(True, 1, group, 4, 0, 2) for group in (1, 0, 1)),
    )
    recording = Recording(0, 4, "2.9", groups, ("compute",), records, CapturedMemory())
    assert message_axes(recording, axes) == ["b", "a"]
