"""The tuning constants of each release."""

from __future__ import annotations

import pytest

from commsim.errors import ScenarioError
from commsim.libraries import LibrarySection, make_library
from commsim.libraries.nccl.tuning.releases import OLDEST, is_release, release_of
from commsim.libraries.nccl.tuning.tables import DEFAULT_VERSION, tables_of, versions


@pytest.mark.parametrize("version", [f"2.{minor}" for minor in range(18, 31)])
def test_every_release_has_a_whole_table(version: str) -> None:
    tables = tables_of(version)
    for generation in tables.ll_max:
        assert all(value > 0 for value in tables.tree_channel[generation])
        assert all(value > 0 for value in tables.ring_ll128_channel[generation])
    assert set(tables.latency) == {"nvlink", "pci", "net"}


@pytest.mark.parametrize(
    ("version", "since"),
    [
        ("2.18", "2.18"),
        ("2.18.6", "2.18"),
        ("2.26", "2.25"),
        ("2.28.3", "2.28"),
        ("2.28", "2.28.9"),
        ("2.29.2", "2.29"),
        ("2.30.7", "2.30"),
        ("2.21.5+cuda12.4", "2.21"),
    ],
)
def test_a_release_reads_the_last_layer_not_newer(version: str, since: str) -> None:
    assert tables_of(version).since == since


def test_the_default_is_known() -> None:
    assert tables_of(DEFAULT_VERSION).since == "2.27.5"
    assert versions()[0] == "2.18"
    assert versions()[-1] == "2.30"


@pytest.mark.parametrize("version", ["2.17", "2.31", "3.0", "1.0"])
def test_a_release_outside_the_table_is_refused(version: str) -> None:
    with pytest.raises(ScenarioError, match=r"commsim knows 2\.18 to 2\.30"):
        tables_of(version)


def test_what_is_no_release_is_refused() -> None:
    with pytest.raises(ScenarioError, match="not a release"):
        tables_of("latest")


@pytest.mark.parametrize("version", ["9x", "2", "2.27x", "latest", "", "v2.27"])
def test_a_setting_that_is_no_release_is_named(version: str) -> None:
    assert not is_release(version)
    section = LibrarySection("nccl", version=version)
    with pytest.raises(
        ScenarioError, match=f"x.yaml: library.version: '{version}' is not a release of NCCL. Write"
    ):
        make_library(section, where="x.yaml")


def test_blackwell_has_its_own_rows_since_2_25() -> None:
    assert tables_of("2.24").generation(100) == "hopper"
    assert tables_of("2.25").generation(100) == "blackwell"
    assert tables_of("2.27").ring_ll128_channel["blackwell"] == (73.4, 73.4, 73.4)
    assert tables_of("2.30").ring_ll128_channel["blackwell"] == (40.0, 40.0, 40.0)


@pytest.mark.parametrize(
    ("version", "tree"), [("2.18", 28.0), ("2.22", 28.0), ("2.23", 4.0), ("2.30", 4.0)]
)
def test_the_tree_of_simple_lost_its_latency_in_2_23(version: str, tree: float) -> None:
    assert tables_of(version).latency["nvlink"]["Tree"][2] == tree


def test_a_layer_changes_only_what_it_says() -> None:
    older, newer = tables_of("2.19"), tables_of("2.20")
    assert older.latency == newer.latency
    assert (older.gathering, newer.gathering) == (
        ("Ring", "NVLS"),
        ("Ring", "CollNetDirect", "NVLS"),
    )
    assert tables_of("2.28").nvls_ratio == {}


@pytest.mark.parametrize("version", ["2.31", "2.32.1", "3.0"])
def test_a_newer_release_chooses_as_the_newest_that_is_known(version: str) -> None:
    release, (note,) = release_of(version)
    assert release == "2.30"
    assert note.startswith(f"NCCL {version} is newer than 2.30, the newest that commsim knows")
    assert release_of("2.30.7") == ("2.30.7", ())


@pytest.mark.parametrize(
    ("version", "older"), [("2.18.0", False), ("2.17.9", True), ("1.30", True)]
)
def test_an_older_release_than_the_oldest_is_a_guess(version: str, older: bool) -> None:
    release, notes = release_of(version)
    assert bool(notes) is older
    assert release == (OLDEST if older else version)
    assert all(f"NCCL {version} is older than {OLDEST}" in note for note in notes)


def test_what_has_no_number_is_taken_as_it_is() -> None:
    assert release_of("master") == ("master", ())
