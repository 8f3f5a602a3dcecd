"""Programs in which all ranks do the same always run, the same way each time."""

from __future__ import annotations

from typing import Any

from helpers.share import examples
from hypothesis import given
from hypothesis import strategies as st

from commsim.cluster import Cluster
from commsim.engine import simulate
from commsim.libraries import for_groups, make_library
from commsim.libraries.section import LibrarySection
from commsim.sections import decode
from commsim.timeline import Timeline
from commsim.workload import ProgramSection, build_program

CLUSTER = Cluster.preset("dgx-h100")
GROUPS: dict[str, Any] = {
    "cpu": {"ranks": [0, 1, 2, 3], "backend": "gloo"},
    "gpu": {"ranks": [3, 2, 1, 0], "backend": "ideal"},
}
SIZES = st.sampled_from(["8B", "96kB", "4MiB"])


@st.composite
def one_call(draw: st.DrawFn, number: int) -> list[dict[str, Any]]:
    """Draw a call of all ranks, and maybe the wait that belongs to it at once."""
    group = draw(st.sampled_from(sorted(GROUPS)))
    word = draw(
        st.sampled_from(["all_reduce", "broadcast", "reduce", "all_gather", "barrier", "compute"])
    )
    if word == "compute":
        return [{"compute": draw(st.sampled_from(["10us", "1ms"]))}]
    fields: dict[str, Any] = {"group": group}
    if word != "barrier":
        fields["bytes"] = draw(SIZES)
    if word in ("broadcast", "reduce"):
        fields["root"] = draw(st.integers(0, 3))
    if draw(st.booleans()):
        fields["as"] = f"h{number}"
        waits = [{"wait": f"h{number}"}] if draw(st.booleans()) else []
        return [{word: fields}, *waits]
    return [{word: fields}]


@st.composite
def programs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw the calls that all four ranks make."""
    count = draw(st.integers(1, 7))
    return [call for number in range(count) for call in draw(one_call(number))]


def run(calls: list[dict[str, Any]]) -> Timeline:
    section = decode(
        {"groups": GROUPS, "ranks": dict.fromkeys(range(4), calls)}, ProgramSection, ""
    )
    graph = build_program(section, world_size=8, library="ideal").graph
    library = for_groups(make_library(LibrarySection("ideal")), graph)
    return simulate(graph, CLUSTER, library=library)


@examples(40)
@given(programs())
def test_what_all_ranks_do_alike_ends_and_is_the_same_again(calls: list[dict[str, Any]]) -> None:
    first, again = run(calls), run(calls)
    assert (first.arrive <= first.start).all()
    assert (first.start <= first.end).all()
    assert first.end.tolist() == again.end.tolist()
    assert first.links.link_bytes().tolist() == again.links.link_bytes().tolist()


@examples(25)
@given(programs())
def test_waiting_for_everything_at_once_is_never_quicker(calls: list[dict[str, Any]]) -> None:
    """Blocking calls instead of asynchronous ones take at least as long."""
    blocking = [
        {
            word: {k: v for k, v in fields.items() if k != "as"}
            if isinstance(fields, dict)
            else fields
        }
        for call in calls
        for word, fields in call.items()
        if word != "wait"
    ]
    assert run(blocking).end_time >= run(calls).end_time * (1 - 1e-9)
