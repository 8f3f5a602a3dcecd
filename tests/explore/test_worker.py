"""The worker: what it says first, and what it answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from commsim.errors import CommsimError, ScenarioError
from commsim.explore.worker import Exploration
from commsim.libraries.nccl.plans.group import NcclGroup


@pytest.fixture(scope="module")
def exploration() -> Exploration:
    return Exploration("llama3-8b")


@contextmanager
def planned_groups() -> Iterator[list[NcclGroup]]:
    """Hear of every communicator that is set up."""
    made: list[NcclGroup] = []
    start = NcclGroup.__init__

    def heard(group: NcclGroup, *args: Any) -> None:
        made.append(group)
        start(group, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NcclGroup, "__init__", heard)
        yield made


def said(exploration: Exploration, **request: Any) -> list[dict[str, Any]]:
    asked = {"chosen": {}, "ask": "run", **request}
    try:
        return list(exploration.answers(asked, lambda _: None))
    except CommsimError as problem:
        return [exploration.error(problem)]


def test_a_run_is_the_report_in_pieces(exploration: Exploration) -> None:
    _, found = said(exploration)
    assert found["kind"] == "run"
    assert "pipeline stages wait for each other" in found["headline"]
    assert {"breakdown", "bubble", "links", "topology"} <= {s["key"] for s in found["sections"]}
    assert found["numbers"]["step time"] == pytest.approx(2.376, rel=0.05)
    assert found["shape"] == {"gpus": 32, "dp": 8, "batch": 64, "seq_len": 8192}
    memory = found["memory"]
    assert sum(size for _, size in memory["parts"]) == pytest.approx(memory["peak"])
    assert found["cost"]["per_hour"] == pytest.approx(32 * 2.99)
    assert found["command"] == "commsim run llama3-8b"


def test_an_answer_is_kept_for_a_slider_that_comes_back(exploration: Exploration) -> None:
    heard: list[str] = []
    *_, found = exploration.answers({"ask": "run", "chosen": {"pp": 1}}, heard.append)
    (again,) = exploration.answers({"ask": "run", "chosen": {"pp": 1}}, heard.append)
    assert found == again
    assert found["shape"]["dp"] == 32
    assert heard.count("measuring") == 1


def test_the_step_comes_before_what_limits_it(exploration: Exploration) -> None:
    heard: list[str] = []
    answers = exploration.answers({"ask": "run", "chosen": {"microbatches": 4}}, heard.append)
    first = next(answers)
    assert heard[-1] == "measuring"  # neither limits nor sections have been looked for
    assert first["kind"] == "step"
    assert "sections" not in first
    assert re.fullmatch(r"A step takes \S+\ss, \S+% of it compute\.", first["headline"])
    last = next(answers)
    told = {key: value for key, value in last.items() if key not in ("kind", "sections")}
    assert {"kind": "step", **told, "headline": first["headline"]} == first
    assert last["headline"].startswith(first["headline"][:-1])


def test_what_is_kept_of_a_cluster_changes_no_answer() -> None:
    """Rings, trees and plans of one choice are those of the next on the same cluster."""
    moves = [{"tp": 2}, {"tp": 2, "algo": "ring"}, {"nic": 2.0}, {"tp": 2, "microbatches": 4}]
    moved = Exploration("llama3-8b")
    with planned_groups() as made:
        answers = [said(moved, chosen=chosen)[-1] for chosen in moves]
        moved.forget()
        made.clear()
        again = moved.answers({"ask": "run", "chosen": moves[-1]}, lambda _: None)
        next(again)
        assert not made
        assert next(again) == answers[-1]
    alone = [said(Exploration("llama3-8b"), chosen=chosen)[-1] for chosen in moves]
    assert [answer["kind"] for answer in answers] == ["run"] * len(moves)
    assert answers == alone


def test_a_report_says_how_to_run_it_again(exploration: Exploration) -> None:
    (found,) = said(exploration, ask="report", chosen={"microbatches": 16})
    assert found["html"].startswith("<!doctype html>")
    assert "commsim run llama3-8b --set workload.training.batch.global=128" in found["html"]


def test_curves_hold_the_fastest_protocol_of_each_algorithm(exploration: Exploration) -> None:
    (found,) = said(exploration, ask="curves", op="all_reduce", chosen={"algo": "ring"})
    assert {"Ring", "Tree"} <= set(found["curves"])  # all, whatever is chosen for the run
    for rows in found["curves"].values():
        assert len({row["size"] for row in rows}) == len(rows)
    assert len(found["chosen"]) == len(found["curves"]["Ring"])
    (none,) = said(exploration, ask="curves", op="rm -rf")
    assert none["kind"] == "error"


@pytest.mark.parametrize(
    ("chosen", "controls", "words"),
    [
        ({"tp": 2, "pp": 3}, "nodes tp pp cp", "does not divide the 32 GPUs"),
        ({"schedule": "interleaved_1f1b"}, "schedule", "virtual_stages"),
        ({"model": "gpt2-124m", "seq_len": 131072}, "seq_len", "1024 learned positions"),
        ({"library": "gloo", "algo": "nvls"}, "algo", "nvls"),
        ({"microbatches": 3}, "", "not among its values"),
    ],
)
def test_an_error_finds_its_control(
    exploration: Exploration, chosen: dict[str, Any], controls: str, words: str
) -> None:
    (found,) = said(exploration, chosen=chosen)
    assert (found["kind"], found["controls"]) == ("error", controls.split())
    assert words in found["message"]
    assert "\n" not in found["message"]


def test_a_scenario_without_a_choice_is_refused() -> None:
    with pytest.raises(ScenarioError, match="nothing to choose"):
        Exploration("p2p-nonblocking", ("cluster=null", "workload={program: {ranks: {0: []}}}"))


@pytest.mark.parametrize("name", ["1f1b", "all-gather", "llama3-405b", "two-jobs", "faults"])
def test_other_scenarios_can_be_explored(name: str) -> None:
    assert Exploration(name).hello()["controls"]
