"""
Damaged inputs of every kind: an answer with finite numbers, or one of commsim's own errors.

`python -m pytest -m long tests/fuzz` tries `SEEDS` of each kind, as does
`python benchmarks/random_work.py inputs 0 30000` in several processes. What failed once stands in
`test_found.py`, as it was.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.fuzz_inputs import (
    EACH,
    INPUTS,
    NOT_KEPT,
    SEEDS,
    Input,
    account_of_answers,
    attempt,
    is_tried,
    valid,
)
from helpers.kept import kept, moved

every = pytest.mark.parametrize("kind", INPUTS, ids=lambda kind: kind.name)


@every
def test_the_valid_input_is_read(kind: Input, tmp_path: Path) -> None:
    path = tmp_path / kind.name
    path.write_bytes(valid(kind.name))
    kind.read(path)


@every
def test_a_damaged_input_is_read_or_refused(kind: Input, tmp_path: Path) -> None:
    """And as before, but where `benchmarks/kept_figures.py` wrote it again."""
    before = kept("damaged").get(kind.name, {})
    after = account_of_answers(kind, EACH, tmp_path)
    assert kind.name in NOT_KEPT or moved(before, after) == []


@pytest.mark.long
@every
def test_many_damaged_inputs_are_read_or_refused(kind: Input, tmp_path: Path) -> None:
    for seed in range(EACH, SEEDS):
        if is_tried(kind, seed):
            attempt(kind, seed, tmp_path)
