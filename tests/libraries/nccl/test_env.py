"""NCCL's variables: read into knobs, noted where they are not modelled, refused where unknown."""

from __future__ import annotations

import re

import msgspec
import pytest
from helpers.paths import ROOT

from commsim.errors import ScenarioError
from commsim.libraries.nccl.env import Knobs, knobs_of, variables
from commsim.libraries.nccl.shapes import PathType
from commsim.libraries.nccl.variables_page import variables_page

PACKAGE = ROOT / "commsim"
PAGE = ROOT / "docs" / "reference" / "nccl-variables.md"


def test_every_modelled_variable_is_a_knob_and_every_knob_a_variable() -> None:
    modelled = [v for v in variables().values() if v.does == "modelled" and not v.alias]
    fields = set(Knobs.__struct_fields__) - {"notes"}
    assert {each.field for each in modelled} == fields


def test_every_knob_is_read_somewhere() -> None:
    """A variable that nothing reads would be silently ignored."""
    sources = [path.read_text() for path in PACKAGE.rglob("*.py")]
    read = {name for text in sources for name in re.findall(r"knobs\.([a-z0-9_]+)", text)}
    assert set(Knobs.__struct_fields__) <= read


def test_the_table_and_the_knobs_have_the_same_defaults() -> None:
    defaults = {each.name: each.default for each in msgspec.structs.fields(Knobs)}
    for variable in variables().values():
        if variable.does == "modelled" and variable.default is not None:
            assert defaults[variable.field] == variable.default, variable.name


def test_an_empty_environment_leaves_the_defaults() -> None:
    assert knobs_of({}) == Knobs()


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("NCCL_ALGO", "Ring,Tree", "algo", "Ring,Tree"),
        ("NCCL_MAX_NCHANNELS", "8", "max_nchannels", 8),
        ("NCCL_MAX_NRINGS", "8", "max_nchannels", 8),
        ("NCCL_MIN_NCHANNELS", 4, "min_nchannels", 4),
        ("NCCL_BUFFSIZE", "0x100000", "buffsize", 1 << 20),
        ("NCCL_BUFFSIZE", "010", "buffsize", 8),
        ("NCCL_P2P_DISABLE", "1", "p2p_disable", True),
        ("NCCL_P2P_DISABLE", "0", "p2p_disable", False),
        ("NCCL_P2P_DISABLE", True, "p2p_disable", True),
        ("NCCL_NVLS_ENABLE", False, "nvls_enable", 0),
        ("NCCL_P2P_LEVEL", "NVL", "p2p_level", PathType.NVL),
        ("NCCL_P2P_LEVEL", "phb", "p2p_level", PathType.PHB),
        *(
            ("NCCL_P2P_LEVEL", str(number), "p2p_level", level)
            for number, level in enumerate(
                (PathType.LOC, PathType.PIX, PathType.PXB, PathType.PHB)
                + (PathType.SYS,) * 4  # no number is farther
            )
        ),
        ("NCCL_P2P_LEVEL", "999999999", "p2p_level", PathType.SYS),
        ("NCCL_P2P_LEVEL", "SYS", "p2p_level", PathType.SYS),
        ("NCCL_MAX_NCHANNELS", "-0x10", "max_nchannels", -16),
        ("NCCL_MAX_NCHANNELS", "-010", "max_nchannels", -8),
        ("NCCL_MAX_NCHANNELS", "0", "max_nchannels", 0),
        ("NCCL_P2P_DISABLE", "2", "p2p_disable", True),
        ("NCCL_NET_GDR_LEVEL", "5", "net_gdr_level", PathType.SYS),
        ("NCCL_THREAD_THRESHOLDS", "8 8 64 16 8 64", "thread_thresholds", (8, 8, 64, 16, 8, 64)),
    ],
)
def test_values(name: str, value: str | int, field: str, expected: object) -> None:
    knobs = knobs_of({name: value})
    assert getattr(knobs, field) == expected
    assert knobs.notes == ()


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("NCCL_ALG", "NCCL_ALGO"), ("NCCL_BUFSIZE", "NCCL_BUFFSIZE"), ("nccl_proto", "NCCL_PROTO")],
)
def test_an_unknown_variable_is_refused_with_a_suggestion(name: str, suggestion: str) -> None:
    with pytest.raises(ScenarioError, match=f"{name}: .*Did you mean '{suggestion}'"):
        knobs_of({name: "1"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_NTHREADS", "many"),
        ("NCCL_P2P_LEVEL", "NVLINK"),
        ("NCCL_P2P_DISABLE", "yes"),
        ("NCCL_P2P_LEVEL", "NET"),
        ("NCCL_P2P_LEVEL", "DIS"),
        ("NCCL_P2P_LEVEL", "-1"),
        ("NCCL_P2P_LEVEL", "1234567890"),
        ("NCCL_NET_MERGE_LEVEL", "NVLINK"),
    ],
)
def test_a_value_that_nccl_cannot_read_is_refused(name: str, value: str) -> None:
    with pytest.raises(ScenarioError, match=f"{name}={value}"):
        knobs_of({name: value})


def test_what_is_known_and_not_modelled_is_said() -> None:
    knobs = knobs_of({"NCCL_IB_QPS_PER_CONNECTION": "4", "NCCL_DEBUG": "INFO"})
    assert "NCCL_IB_QPS_PER_CONNECTION=4 is not modelled" in knobs.notes[0]
    assert "NCCL_DEBUG=INFO changes neither" in knobs.notes[1]
    assert msgspec.structs.replace(knobs, notes=()) == Knobs()


def test_settings_of_plugins_are_known_by_their_first_letters() -> None:
    (note,) = knobs_of({"NCCL_FASTRAK_NUM_FLOWS": "2"}).notes
    assert "not modelled" in note
    assert "Google" in note


def test_an_empty_value_is_taken_as_unset() -> None:
    knobs = knobs_of({"NCCL_ALGO": ""})
    assert knobs.algo == ""
    assert "as unset" in knobs.notes[0]


def test_the_newer_of_two_names_counts() -> None:
    knobs = knobs_of({"NCCL_MAX_NCHANNELS": "4", "NCCL_MAX_NRINGS": "16"})
    assert knobs.max_nchannels == 4
    assert "older name" in knobs.notes[0]


def test_the_page_of_variables_is_the_table() -> None:
    assert PAGE.read_text() == variables_page()
