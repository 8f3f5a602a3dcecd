"""What memory a captured program takes: storages that change their size."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")


def test_a_storage_that_is_freed_and_taken_again_counts_what_changed(monkeypatch):
    """As FSDP does with gathered parameters: 400 bytes, none, 100, 300, and the end of all."""
    from commsim.traces.capture import mode

    changes: list[int] = []
    seen = SimpleNamespace(allocated=changes.append, freed=lambda size: changes.append(-size))
    monkeypatch.setattr(mode, "recorder", seen)
    tensor = torch.empty(100, dtype=torch.float32)
    storage = tensor.untyped_storage()
    mode.track_storage(tensor)
    for size in (0, 100, 300):
        mode.resized(storage, size)
    assert changes == [400, -400, 100, 200]
    del tensor, storage
    assert sum(changes) == 0


@pytest.mark.parametrize("asked", [True, False])
def test_only_who_asks_for_an_overflow_is_told_that_there_is_none(asked):
    """A thread of its own: nobody above asks, however few callers there are."""
    from commsim.traces.capture import mode

    answers: list[bool] = []

    def has_overflow() -> None:
        answers.append(mode._overflow_is_asked_for())

    def norm() -> None:
        answers.append(mode._overflow_is_asked_for())

    thread = threading.Thread(target=has_overflow if asked else norm)
    thread.start()
    thread.join()
    assert answers == [asked]
