"""NCCL_ALGO and NCCL_PROTO: lists, exclusions, lists per operation."""

from __future__ import annotations

import pytest

from commsim.errors import ScenarioError
from commsim.libraries.nccl.tuning.algo_filter import allowed

NAMES = ("Tree", "Ring", "NVLS", "PAT")


def left(text: str, op: str = "all_reduce", *, per_function: bool = True) -> set[str] | None:
    found = allowed(text, NAMES, op=op, variable="NCCL_ALGO", per_function=per_function)
    return None if found is None else set(found)


@pytest.mark.parametrize(
    ("text", "op", "expected"),
    [
        ("", "all_reduce", None),
        ("Ring", "all_reduce", {"Ring"}),
        ("ring,TREE", "all_reduce", {"Ring", "Tree"}),
        ("^NVLS", "all_reduce", {"Ring", "Tree", "PAT"}),
        ("^NVLS,PAT", "broadcast", {"Ring", "Tree"}),
        ("allreduce:tree", "all_reduce", {"Tree"}),
        ("allreduce:tree", "all_gather", None),
        ("ring;allreduce:tree", "all_gather", {"Ring"}),
        ("ring;allreduce:tree", "all_reduce", {"Tree"}),
        ("ring;allgather:^ring", "all_gather", {"Tree", "NVLS", "PAT"}),
        ("ReduceScatter:pat;AllGather:ring", "reduce_scatter", {"PAT"}),
    ],
)
def test_lists(text: str, op: str, expected: set[str] | None) -> None:
    assert left(text, op) == expected


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"'rings' is none of .*Did you mean 'Ring'"):
        left("rings")


def test_an_unknown_operation_is_refused() -> None:
    with pytest.raises(ScenarioError, match="'all_reduce' is none of NCCL's operations"):
        left("all_reduce:ring")


def test_only_the_first_list_stands_without_an_operation() -> None:
    with pytest.raises(ScenarioError, match="only the first list"):
        left("allreduce:ring;tree")


def test_older_releases_read_no_operations() -> None:
    with pytest.raises(ScenarioError, match=r"came with 2\.24"):
        left("allreduce:ring", per_function=False)
    assert left("^ring", per_function=False) == {"Tree", "NVLS", "PAT"}
