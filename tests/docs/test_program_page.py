"""The examples of the page on programs run; what it says one is told, one is told."""

from __future__ import annotations

import re

import pytest
import yaml
from helpers.paths import ROOT

from commsim.errors import ScenarioError
from commsim.scenario import scenario_from
from commsim.sections import decode
from commsim.study.run import run
from commsim.workload import ProgramSection, build_program
from commsim.workload.torch_names import OBJECT_CALLS, WORDS

PAGE = (ROOT / "docs/reference/program.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
TOLD = re.findall(r"^\| `(\{.*?\})` \| (.*?) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_examples_run(text: str) -> None:
    found = run(scenario_from(yaml.safe_load(text), "example"))
    assert found.timeline.end_time > 0


def test_the_page_has_every_word() -> None:
    for word in (
        *WORDS,
        *OBJECT_CALLS,
        "batch_isend_irecv",
        "coalesced",
        "synchronize",
        "new_group",
    ):
        assert f"`{word}" in PAGE, word


@pytest.mark.parametrize(("call", "words"), TOLD)
def test_what_one_is_told(call: str, words: str) -> None:
    members = 3 if "splits" in call else 4
    before = "{isend: {to: 1, bytes: 1B, as: sent}}, " if "wait" in call else ""
    text = f"ranks: {{0: [{before}{call}], 1: []}}"
    section = decode(yaml.safe_load(text), ProgramSection, "x.yaml")
    with pytest.raises(ScenarioError) as caught:
        build_program(section, world_size=members)
    assert words.rstrip(".") in str(caught.value)


def test_the_table_of_messages_is_found() -> None:
    assert len(TOLD) == 5
    assert len(EXAMPLES) == 5
