"""The account by which tests see that what a run says has moved: planted changes are seen."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from helpers.kept import account, moved

DATA: dict[str, Any] = {
    "commsim": "0.1.0",
    "step_s": 0.25,
    "who": ["a", "b"],
    "links": [{"name": f"link {at}", "bytes": 1000.0 + at} for at in range(10_000)],
}


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    data: Any = deepcopy(DATA)
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return dict(data)


@pytest.mark.parametrize("at", [0, 88, 89, 9999])
def test_a_thousandth_of_one_of_ten_thousand_is_seen(at: int) -> None:
    after = changed(("links", at, "bytes"), DATA["links"][at]["bytes"] * 1.001)
    assert moved(account(DATA), account(after)) == ["links[].bytes"]
    assert moved(account(DATA, depth=1), account(after, depth=1)) == ["links[]"]


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        (("step_s",), -0.25, ["step_s"]),
        (("step_s",), None, ["step_s"]),
        (("who",), ["b", "a"], ["who[]"]),
        (("who",), ["a", "b", "c"], ["who[]"]),
        (("links", 7, "name"), "link 8", ["links[].name"]),
        (("more",), 1, ["more"]),
    ],
)
def test_other_changes_are_seen(path: tuple[Any, ...], value: Any, place: list[str]) -> None:
    assert moved(account(DATA), account(changed(path, value))) == place


def test_an_exchange_of_neighbours_is_seen() -> None:
    links = DATA["links"]
    after = changed(("links",), [links[1] | {"bytes": 2e3}, links[0], *links[2:]])
    before = changed(("links",), [links[0], links[1] | {"bytes": 2e3}, *links[2:]])
    assert "links[].bytes" in moved(account(before), account(after))


def test_last_digits_and_the_version_are_not() -> None:
    after = changed(("links", 3, "bytes"), DATA["links"][3]["bytes"] * (1 + 1e-9))
    assert moved(account(DATA), account({**after, "commsim": "0.2.0"})) == []
