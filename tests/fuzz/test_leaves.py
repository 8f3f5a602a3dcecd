"""JSON of traces and logs, each leaf replaced: read with finite figures, or refused in a line."""

from __future__ import annotations

import json
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
from helpers.fuzz_inputs import INPUTS, valid
from helpers.leaves import HOSTILE, fault_of, leaves, replaced

SOME = 5  # by default, one of so many damages
NAMES = ("chakra.0.json", "param_rank0.json", "fr_rank0.json", "tests.json", "rank0.json",
         "et_rank0.json")  # fmt: skip


def faults(name: str, folder: Path, step: int) -> list[str]:
    """Return what is wrong with how an input is read, with every `step`th damage of its leaves."""
    read = next(kind.read for kind in INPUTS if kind.name == name)
    data, file, found = json.loads(valid(name)), folder / name, []
    cases = ((path, value) for path in leaves(data) for value in HOSTILE)
    for path, value in islice(cases, 0, None, step):
        file.write_text(json.dumps(replaced(data, path, value)))
        if fault := fault_of(partial(read, file)):
            found.append(f"{path} = {value!r:.30}: {fault}")
    return found


@pytest.mark.parametrize("name", NAMES[:4])
def test_each_leaf_replaced(name: str, tmp_path: Path) -> None:
    assert faults(name, tmp_path, SOME) == []


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_each_leaf_replaced_by_all(name: str, tmp_path: Path) -> None:
    assert faults(name, tmp_path, 1) == []
