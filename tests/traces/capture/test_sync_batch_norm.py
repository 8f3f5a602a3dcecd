"""`SyncBatchNorm` of a capture: what it computes, and what it sends."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("members", [1, 2])
def test_sync_batch_norm_is_batch_norm_of_what_its_ranks_have(
    training, tracked, members, monkeypatch
):
    """Alone, or not training, it is BatchNorm; of two, it sends 2 x 3 channels and a count."""
    from commsim.traces.capture import sync_batch_norm

    sent: list[Any] = []
    monkeypatch.setattr(sync_batch_norm, "_members", lambda group: members)
    monkeypatch.setattr(
        torch.distributed, "all_gather_into_tensor",
        lambda out, own, group: sent.append((out.numel(), own.tolist())),
    )  # fmt: skip
    monkeypatch.setattr(
        torch.distributed, "all_reduce", lambda sums, group: sent.append(sums.numel())
    )
    torch.manual_seed(0)
    x = torch.randn(4, 3, 5, 5)
    found, usual = (kind(3, track_running_stats=tracked).train(training)
                    for kind in (torch.nn.SyncBatchNorm, torch.nn.BatchNorm2d))  # fmt: skip
    of = [x.clone().requires_grad_() for _ in range(2)]
    outs = sync_batch_norm._forward(found, of[0]), usual(of[1])
    assert torch.allclose(*outs, atol=0.02)  # of n entries, or of n - 1
    if tracked:
        assert int(found.num_batches_tracked) == int(training)
    outs[0].square().sum().backward()
    outs[1].square().sum().backward()
    assert found.weight.grad.shape == found.bias.grad.shape == (3,)
    assert of[0].grad.shape == x.shape
    if members == 1 or not training:
        assert sent == []
        assert torch.allclose(of[0].grad, of[1].grad, atol=1e-5)
    else:
        (gathered, own), reduced = sent
        assert [gathered, len(own), own[-1], reduced] == [14, 7, 1.0, 6]
        assert torch.allclose(torch.tensor(own[:3]), x.mean((0, 2, 3)), atol=1e-5)
        assert torch.allclose(torch.tensor(own[3:6]), x.var((0, 2, 3)), atol=1e-5)


def test_sync_batch_norm_gives_only_the_gradients_that_are_asked_for(monkeypatch):
    from commsim.traces.capture import sync_batch_norm

    sent: list[Any] = []
    monkeypatch.setattr(sync_batch_norm, "_members", lambda group: 2)
    monkeypatch.setattr(torch.distributed, "all_gather_into_tensor", lambda *given: None)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda sums, group: sent.append(1))
    norm = torch.nn.SyncBatchNorm(3)
    norm.bias.requires_grad_(False)
    sync_batch_norm._forward(norm, torch.randn(4, 3)).sum().backward()
    assert (norm.bias.grad, norm.weight.grad.shape, sent) == (None, (3,), [])


def test_a_program_that_made_no_group_is_alone():
    from commsim.traces.capture.sync_batch_norm import _members

    assert _members(None) == 1
