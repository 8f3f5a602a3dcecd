"""What stages of a captured pipeline tell each other of their tensors."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("dynamic", "last", "sends"),
    [(False, False, True), (False, True, False), (True, False, False), (True, True, False)],
)
def test_a_stage_that_knows_its_shapes_tells_the_next(dynamic, last, sends, tmp_path, monkeypatch):
    """Where shapes are found as it runs, they are told then."""
    from commsim.traces.capture import pipelines

    how = SimpleNamespace(needs_dynamic=lambda meta, back: dynamic, DYNAMIC="d", STATIC="s")
    monkeypatch.setattr(pipelines, "InferenceMode", how)
    told = []
    made = pipelines._Metadata(tmp_path)
    monkeypatch.setattr(made, "send", lambda stage, meta, to: told.append((stage, to)))
    stage = SimpleNamespace(is_last=last, stage_index=4, _user_meta=SimpleNamespace(outputs=()))
    made.warm_up([stage], True, False)
    assert stage._inference_mode == ("d" if dynamic else "s")
    assert told == ([(stage, 5)] if sends else [])


def test_a_later_stage_tells_of_gradients_and_one_before_of_inputs(tmp_path, monkeypatch):
    from torch.distributed.pipelining._utils import _StageForwardMeta

    from commsim.traces.capture import pipelines

    monkeypatch.setattr(pipelines, "_PAUSE", 0.0)
    monkeypatch.setattr(pipelines, "_PATIENCE", -1.0)
    made = pipelines._Metadata(tmp_path)
    ranks = {1: 1, 2: 2, 3: 0}  # the third stage's rank comes before the second's
    stage = SimpleNamespace(stage_index=2, stage_index_to_group_rank=ranks, group_rank=2)
    with pytest.raises(ValueError, match="no captured rank has the stage before stage 2"):
        made.receive(stage, 1)
    forward = _StageForwardMeta(forward_metas=())
    made.send(SimpleNamespace(stage_index=1), forward, 2)
    assert made.receive(stage, 1) == forward
    made.send(stage, "of gradients", 1)  # those are known there
    assert made.last is not None
    assert [file.name for file in tmp_path.iterdir()] == ["stage-2.inputs"]


@pytest.mark.parametrize(("rank", "assumed"), [(3, True), (2, False), (1, False)])
def test_only_a_stage_of_a_later_rank_is_taken_to_have_outputs_as_the_last(
    rank, assumed, tmp_path, monkeypatch
):
    """The rank itself, and those before it, are captured before stage 5 of rank 2 asks."""
    from torch.distributed.pipelining._utils import _StageForwardMeta

    from commsim.traces.capture import pipelines

    monkeypatch.setattr(pipelines, "_PAUSE", 0.0)
    monkeypatch.setattr(pipelines, "_PATIENCE", -1.0)
    made = pipelines._Metadata(tmp_path)
    made.last = _StageForwardMeta(forward_metas=())
    ranks = {4: rank, 5: 2}
    stage = SimpleNamespace(stage_index=5, stage_index_to_group_rank=ranks, group_rank=2)
    if assumed:
        assert made.receive(stage, 4) == made.last
    else:
        with pytest.raises(ValueError, match="no captured rank has the stage before stage 5"):
            made.receive(stage, 4)
    assert (tmp_path / "stage-5.assumed").exists() is assumed
