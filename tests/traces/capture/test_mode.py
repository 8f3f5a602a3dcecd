"""What memory a captured program takes: storages that change their size."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from commsim.graph import Phase
from commsim.traces.capture.records import Sync

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


@pytest.mark.parametrize(("between", "told"), [(6, True), (7, False)])
def test_who_asks_for_an_overflow_is_looked_for_among_eight_callers(between, told):
    from commsim.traces.capture import mode

    def ask(more: int) -> bool:
        return ask(more - 1) if more else mode._overflow_is_asked_for()

    def has_Overflow() -> bool:  # noqa: N802
        return ask(between)

    assert has_Overflow() is told


@pytest.mark.parametrize(
    ("dtype", "value", "none"),
    [
        (torch.bool, False, False), (torch.int64, 1, 0), (torch.uint8, 1, 0),
        (torch.float16, 1.0, 0.0), (torch.complex64, 1 + 0j, 0j),
    ],
)  # fmt: skip
@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.OPTIMIZER])
def test_a_value_that_a_gpu_would_tell_is_1_and_the_program_waits_for_it(
    dtype, value, none, phase, monkeypatch
):
    """An optimizer's own questions, as whether to skip a step, are no waits."""
    from commsim.traces.capture import mode

    records: list[object] = []
    notes: list[str] = []
    seen = SimpleNamespace(phase=phase, add=records.append, note=notes.append)
    monkeypatch.setattr(mode, "recorder", seen)
    found = mode.value_of(torch.zeros(1, dtype=dtype))
    assert (found, type(found)) == (value, type(value))
    waits = 0 if phase == Phase.OPTIMIZER else 1
    assert records == [Sync(0)] * waits
    assert len(notes) == waits

    def overflow() -> object:
        return mode.value_of(torch.zeros(1, dtype=dtype))

    assert overflow() == none
    known = SimpleNamespace(constant=torch.tensor(5))
    assert mode.value_of(known) == 5
    assert len(records) == 2 * waits


@pytest.mark.parametrize(
    ("size", "given", "drawn"),
    [
        (3, (5,), 1), (3, (2,), 1), (3, (1,), 0), (3, (2, 9), 2), (3, (0, 9), 1), (3, (0, 1), 0),
        (3, (-5, -1), -2), (2**12, (5,), 1), (2**12 + 1, (5,), None), (1, (5,), 1), (0, (5,), None),
    ],
)  # fmt: skip
def test_few_random_integers_are_known_to_be_1_or_the_nearest_that_could_be(size, given, drawn):
    from torch._subclasses.fake_tensor import FakeTensorMode

    from commsim.traces.capture import mode

    op = torch.ops.aten.randint.low if len(given) == 2 else torch.ops.aten.randint.default
    with FakeTensorMode():
        out = torch.empty(size, dtype=torch.int64)
        mode._draw(op, out, (*given, [size]), {})
    if drawn is None:
        assert out.constant is None
    else:
        assert out.constant.tolist() == [drawn] * size
