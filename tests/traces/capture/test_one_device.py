"""What programs ask of devices and tensors, where there is one device."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("named", [("cuda",), ("cuda:3",), (2,), ("cuda", 1)], ids=str)
def test_cuda_is_the_one_device_wherever_torch_is_told_one(named):
    from commsim.traces.capture.one_device import OnOneDevice

    with OnOneDevice():
        here = torch.device(*named)
        assert here.type == "cpu"
        assert torch.device("cpu").type == "cpu"
        assert torch.device("meta").type == "meta"
    with OnOneDevice(), pytest.raises(TypeError):
        torch.device(True, object())


@pytest.mark.parametrize("device", ["cuda", "cuda:1", 0, torch.device("cuda", 1)], ids=str)
def test_tensors_are_made_and_moved_there(device):
    from commsim.traces.capture.one_device import OnOneDevice

    with OnOneDevice():
        made = torch.ones(3, device=device, pin_memory=True)
        assert made.device.type == "cpu"
        assert not made.is_pinned()
        assert made.to(device).device.type == "cpu"
        assert made.to(device, torch.float64).dtype == torch.float64
        assert made.cuda().device.type == "cpu"
        assert made.pin_memory() is made
        assert torch.ones(3, device="meta").device.type == "meta"
        assert made.to(torch.int64).dtype == torch.int64
        assert made.to(dtype=torch.float64).dtype == torch.float64
        assert made.to(device=device).device.type == "cpu"
        assert torch.full((2,), 3, dtype=torch.int64).tolist() == [3, 3]


def test_random_numbers_come_from_any_device():
    from commsim.traces.capture.one_device import GeneratorAnywhere

    assert GeneratorAnywhere("cuda").device.type == GeneratorAnywhere().device.type == "cpu"


def test_what_names_the_device():
    from commsim.traces.capture.one_device import _is_cuda, _is_number

    assert [_is_cuda(x) for x in ("cuda", "cuda:1", "cudax", "cpu", 0, None)] == [
        True, True, False, False, False, False,
    ]  # fmt: skip
    assert [_is_cuda(torch.device(x)) for x in ("cuda", "cuda:1", "cpu")] == [True, True, False]
    assert [_is_number(x) for x in (0, 3, True, False, "0", None, 1.0)] == [
        True, True, False, False, False, False, False,
    ]  # fmt: skip


def test_modules_move_there_and_run_as_they_are_written(monkeypatch):
    from commsim.traces.capture import one_device

    notes: list[str] = []
    monkeypatch.setattr(one_device, "recorder", SimpleNamespace(note=notes.append))
    for owner, name in (
        (torch._C._nn, "_parse_to"), (torch, "compile"), (torch.nn.Module, "compile"),
        (torch.nn.Module, "cuda"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, getattr(owner, name))  # as it was, after the test
    one_device.modules_on_one_device()
    module = torch.nn.Linear(2, 2)
    for moved in (
        module.to("cuda"), module.to("cuda:1"), module.to(3), module.to(device="cuda"),
        module.to(torch.device("cuda", 1)), module.cuda(), module.cuda(2),
    ):  # fmt: skip
        assert moved is module
        assert module.weight.device.type == "cpu"
    assert module.to("cuda", torch.float64).weight.dtype == torch.float64
    assert module.to(torch.float32).weight.dtype == torch.float32
    assert module.to("meta").weight.device.type == "meta"
    assert notes == []
    assert torch.compile(module) is module
    assert torch.compile(mode="max-autotune")(module) is module
    module.compile()
    assert len(notes) == 3
