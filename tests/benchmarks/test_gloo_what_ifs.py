"""What-ifs on recorded programs of Gloo, and the same programs as they really ran changed."""

from __future__ import annotations

import sys

import pytest
from helpers.paths import ROOT, TESTS

sys.path.insert(0, str(ROOT / "benchmarks"))
from gloo_what_ifs import WhatIf, outcome

RECORDED = TESTS / "data" / "gloo_what_ifs"


@pytest.mark.parametrize(
    "what_if", [WhatIf(509, 2, "half"), WhatIf(502, 4, "twice"), WhatIf(7109, 4, "none")]
)
def test_a_what_if_comes_true(what_if: WhatIf) -> None:
    """A receive that was waited for late had come long before: half the work shortens the step.

    In 7109 the last rank has a broadcast from the late one, and not from the root.
    """
    found = outcome(what_if, RECORDED / what_if.name)
    assert found.error < 0.02
    assert abs(found.before / found.really - 1) > 0.2
