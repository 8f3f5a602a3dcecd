"""How large an all-to-all may be whose messages are sent one by one."""

from __future__ import annotations

import pytest

from commsim.engine import message_level
from commsim.graph import GraphBuilder


@pytest.mark.parametrize(
    ("kinds", "pairs"),
    [
        ((), 0), (("all_reduce",), 0), (("all_to_all",), 12), (("all_reduce", "all_to_all"), 12),
        (("all_to_all_v",), 12),
    ],
)  # fmt: skip
def test_each_of_four_ranks_sends_to_the_three_others(
    kinds: tuple[str, ...], pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no exchange counts for none, however many ranks there are."""
    asked: list[int] = []
    monkeypatch.setattr(message_level, "check_size", lambda count, *words: asked.append(count))
    build = GraphBuilder()
    lanes = [build.lane(rank) for rank in range(6)]
    four, six = build.group("four", range(4)), build.group("six", range(6))
    for lane in lanes:
        build.compute(lane, 1, name="w", stream="s")
        build.collective(lane, six, "all_reduce", 8, stream="s")
    for kind in kinds:
        for lane in lanes[:4]:
            splits = (2,) * 4 if kind == "all_to_all_v" else None
            build.collective(lane, four, kind, 8, stream="s", splits=splits)
    message_level.check_exchanges(build.build())
    assert asked == [pairs]
