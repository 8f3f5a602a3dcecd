"""What a program is told that asks for values."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(("entries", "written"), [(2**20, True), (2**20 + 1, False)])
def test_an_array_of_up_to_a_million_entries_can_be_written(entries, written, monkeypatch):
    from commsim.traces.capture import values

    monkeypatch.setattr(values, "value_of", lambda tensor: 1.0)
    made = values._array(torch.empty(entries, device="meta"))
    assert (made.shape, made[0], made[-1], made.flags.writeable) == ((entries,), 1, 1, written)
