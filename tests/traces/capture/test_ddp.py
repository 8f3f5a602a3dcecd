"""torch's DDP as captures stand in for it: what a script leaves out is what torch leaves out."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")


def test_defaults_of_ddp_are_torchs() -> None:
    from commsim.traces.capture.ddp import DistributedDataParallel as Ours

    Theirs = torch.nn.parallel.DistributedDataParallel
    for ours, theirs in ((Ours.__init__, Theirs.__init__), (Ours.join, Theirs.join)):
        known = inspect.signature(theirs).parameters
        for name, parameter in inspect.signature(ours).parameters.items():
            if name in known and parameter.default is not parameter.empty:
                default = known[name].default
                if name == "broadcast_buffers" and default is None:
                    default = True  # as newer torch reads what is left out
                assert parameter.default == default, name


def test_a_bucket_is_one_buffer_with_a_view_for_each_gradient() -> None:
    from commsim.traces.capture.ddp import _Bucket

    one = _Bucket([torch.zeros(2, 3, dtype=torch.float64)])
    assert (one.buffer.shape, one.buffer.dtype, one.missing, one.work) == (
        (6,), torch.float64, 1, None,
    )  # fmt: skip
    two = _Bucket([torch.zeros(2, 3), torch.zeros(4)])
    assert ([v.shape for v in two.views], two.missing) == ([(2, 3), (4,)], 2)
    two.views[1].fill_(7.0)
    assert two.buffer[6:].tolist() == [7.0] * 4


def a_model() -> Any:
    """Return weights of which one is frozen and one is left out, and buffers of which one is."""
    model = torch.nn.Module()
    model.used, model.frozen, model.other = (
        torch.nn.Parameter(torch.zeros(at + 2), requires_grad=at != 1) for at in range(3)
    )
    model.register_buffer("seen", torch.zeros(5))
    model.register_buffer("own", torch.zeros(6))
    return model


def test_what_takes_no_gradient_or_is_ignored_is_not_reduced(monkeypatch) -> None:
    from commsim.traces.capture import ddp

    monkeypatch.setattr(torch.distributed, "get_world_size", lambda group: 2)
    model = a_model()
    Wrapper = ddp.DistributedDataParallel
    Wrapper._set_params_and_buffers_to_ignore_for_model(model, ["other", "own"])
    wrapped = Wrapper(model)
    assert [len(p) for p in wrapped._params] == [2]
    assert [len(b) for b in wrapped._sent] == [5]
    assert wrapped._limits == [2**20, 25 * 2**20]
    assert Wrapper(model, bucket_cap_mb=2)._limits == [2 * 2**20] * 2
    assert [len(p) for p in Wrapper(a_model())._params] == [2, 4]
    assert not wrapped._joining
    assert not wrapped._rebuilt
    with pytest.raises(ValueError, match="mixed_precision: not captured"):
        Wrapper(model, mixed_precision=1)


@pytest.mark.parametrize(
    ("find", "static", "unused"),
    [(True, False, True), (True, True, False), (False, False, False), (False, True, False)],
)
def test_a_graph_that_stays_is_looked_at_once(find, static, unused, monkeypatch) -> None:
    from commsim.traces.capture import ddp

    monkeypatch.setattr(torch.distributed, "get_world_size", lambda group: 2)
    made = ddp.DistributedDataParallel(
        a_model(), find_unused_parameters=find, static_graph=static, bucket_cap_mb=1e-5
    )
    assert made._unused() is unused
    # Of 2 and 4 floats: of at most 10 bytes each apart, else all in the one that is built first.
    assert len(made._buckets) == (2 if unused else 1)
    if not static:
        made._set_static_graph()
        assert not made._unused()


def test_gradients_add_up_on_the_rank_for_a_while(monkeypatch) -> None:
    from commsim.traces.capture import ddp

    monkeypatch.setattr(torch.distributed, "get_world_size", lambda group: 2)
    made = ddp.DistributedDataParallel(a_model())
    with made.no_sync():
        assert not made.require_backward_grad_sync
        with made.no_sync():
            pass
        assert not made.require_backward_grad_sync
    assert made.require_backward_grad_sync
    made.register_comm_hook(None, print)
    with pytest.raises(RuntimeError, match="only be called once"):
        made.register_comm_hook(None, print)


def test_what_a_hook_chains_runs_once_when_the_bucket_is_waited_for(monkeypatch) -> None:
    """A hook that halves what it all-reduces: nothing runs before the wait, all runs but once."""
    from commsim.traces.capture.ddp import _Bucket
    from commsim.traces.capture.ddp_hooks import GradBucket, run_hook

    said: list[str] = []
    work = SimpleNamespace(wait=lambda: said.append("wait"))
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda tensor, async_op: work)

    def halved(state: str, bucket: GradBucket) -> Any:
        sent = torch.distributed.all_reduce(bucket.buffer(), async_op=True)

        def half(future: Any) -> Any:
            said.append(state)
            return future.value()[0] / 2

        return sent.get_future().then(half)

    one = _Bucket([torch.zeros(2)])
    one.buffer.fill_(6)
    waiting = run_hook(halved, "half", GradBucket(one, 1, 2))
    assert said == []
    assert waiting.wait().tolist() == [3, 3]
    assert waiting.wait().tolist() == [3, 3]
    assert said == ["wait", "half"]
    assert torch.distributed.all_reduce(one.buffer, async_op=True) is work


def test_a_hook_that_sends_nothing_is_done_at_once() -> None:
    from commsim.traces.capture.ddp import _Bucket
    from commsim.traces.capture.ddp_hooks import GradBucket, run_hook

    one = _Bucket([torch.zeros(2), torch.zeros(3)])
    bucket = GradBucket(one, 1, 2)
    one.buffer.fill_(6)
    more = run_hook(lambda state, given: given.buffer() + state, 1.0, bucket)
    assert more.wait().tolist() == [7.0] * 5
    done = torch.futures.Future()
    done.set_result("sent")
    assert run_hook(lambda state, given: done, None, bucket).wait() == "sent"
    assert (bucket.index(), bucket.is_last()) == (1, True)
    assert not GradBucket(one, 0, 2).is_last()
    bucket.set_buffer(torch.arange(5.0))
    assert [view.tolist() for view in bucket.gradients()] == [[0, 1], [2, 3, 4]]
