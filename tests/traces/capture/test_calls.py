"""Communication in the words of a workload graph: sizes, splits, groups and places."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture
def recorded(monkeypatch):
    """What is taken down, on stream 3, of a program that made two groups."""
    from commsim.traces.capture import calls
    from commsim.traces.capture.records import GroupMade

    seen: list[object] = []
    own = SimpleNamespace(add=seen.append, batch=4, tags={"phase": 1, "stage": 2, "microbatch": 5})
    monkeypatch.setattr(calls, "recorder", own)
    monkeypatch.setattr(calls, "current_stream", lambda: SimpleNamespace(number=3))
    monkeypatch.setattr(calls, "_groups", [GroupMade((4, 6), "a"), GroupMade((5, 7), "b")])
    return seen


def floats(*lengths):
    return [torch.ones(length) for length in lengths]


@pytest.mark.parametrize(
    ("kind", "given", "out", "size"),
    [
        ("all_reduce", {"tensors": floats(5)}, None, 20),
        ("all_reduce", {"tensors": floats(5, 2)}, None, 28),
        ("all_gather", {"output_tensor": torch.ones(8), "input_tensor": torch.ones(4)}, None, 32),
        ("all_gather", {"output_tensors": [floats(4, 4)], "input_tensors": floats(4)}, None, 32),
        ("all_gather", {"input": torch.ones(4)}, torch.ones(8), 32),
        ("gather", {"output_tensors": [], "input_tensors": floats(4)}, None, 16),
        ("gather", {"output_tensors": [floats(4, 4)], "input_tensors": floats(4)}, None, 32),
        ("reduce_scatter", {"output_tensor": torch.ones(4), "input_tensor": torch.ones(8)}, None,
         32),
        ("reduce_scatter", {"input": torch.ones(8)}, torch.ones(4), 32),
        ("broadcast", {"tensors": floats(3)}, None, 12),
        ("barrier", {"tensor": torch.ones(4)}, None, 0),
    ],
)  # fmt: skip
def test_a_size_is_that_of_the_largest_buffer_of_a_rank(kind, given, out, size):
    from commsim.traces.capture.calls import _size_of

    assert _size_of(kind, given, out, 2) == (size, ())


@pytest.mark.parametrize(
    ("given", "members", "splits"),
    [
        ({"input": torch.ones(6, 2), "input_split_sizes": [1, 5]}, 2, (8, 40)),
        ({"input": torch.ones(6, 2), "input_split_sizes": [3, 3]}, 2, ()),
        ({"input": torch.ones(6, 2), "input_split_sizes": []}, 2, ()),
        ({"input": torch.ones(6, 2)}, 2, ()),
        ({"input": torch.ones(0, 2), "input_split_sizes": [0, 0]}, 2, ()),
        ({"input_tensors": floats(1, 11)}, 2, (4, 44)),
        ({"input_tensors": floats(6, 6)}, 2, ()),
        ({"input_tensors": floats(6, 6)}, 3, (24, 24)),
    ],
)
def test_an_all_to_all_says_what_goes_to_whom_if_that_is_uneven(given, members, splits):
    from commsim.traces.capture.calls import _size_of

    total = sum(t.numel() for t in given.get("input_tensors", [given.get("input")])) * 4
    assert _size_of("all_to_all", given, None, members) == (total, splits)


def test_a_call_as_it_is_taken_down(recorded):
    from commsim.traces.capture.calls import _record_call
    from commsim.traces.capture.records import CapturedCall

    tags = {"phase": 1, "stage": 2, "microbatch": 5}
    given = {"tensors": [torch.ones(4, dtype=torch.bfloat16)], "async_op": False, "root_rank": 1}
    ranks = [5, 7]
    _record_call("broadcast", given, None, ranks, 9, functional=False)
    assert recorded.pop() == CapturedCall(
        "broadcast", 1, 8, 3, 9, False, "bfloat16", "", 7, (), **tags
    )
    _record_call("reduce", given, None, ranks, 9, functional=False)
    assert recorded.pop().root == 7
    _record_call("all_reduce", given | {"reduce_op": "SUM"}, None, ranks, 9, functional=True)
    assert recorded.pop() == CapturedCall(
        "all_reduce", 1, 8, 3, 9, True, "bfloat16", "sum", -1, (), **tags
    )
    _record_call("all_gather", {"input": torch.ones(2), "reduce_op": "sum", "src": 0},
                 torch.ones(4), ranks, 9, functional=False)  # fmt: skip
    found = recorded.pop()
    assert (found.internal, found.redop, found.root, found.size) == (True, "", 5, 16)
    _record_call("all_to_all", {"input": torch.ones(4), "input_split_sizes": [1, 3]}, None,
                 ranks, 9, functional=False)  # fmt: skip
    found = recorded.pop()
    assert (found.op, found.splits, found.root, found.size) == ("all_to_all_v", (4, 12), -1, 16)
    _record_call("barrier", {}, None, ranks, 9, functional=False)
    assert recorded.pop().dtype == ""
    _record_call("all_reduce", given, None, [5], 9, functional=False)
    assert recorded == []


@pytest.mark.parametrize(("name", "sends", "peer"), [("send", True, 7), ("recv_", False, 5)])
def test_a_message_as_it_is_taken_down(recorded, name, sends, peer):
    from commsim.traces.capture.calls import _record_message
    from commsim.traces.capture.records import CapturedMessage

    given = {"tensors": floats(2, 3), "dst": 1, "src": 0}
    _record_message(name, given | {"tag": 8}, [5, 7], 9)
    _record_message(name, {**given, "tensors": [], "tensor": torch.ones(1)}, [5, 7], 9)
    tags = {"phase": 1, "stage": 2, "microbatch": 5}
    assert recorded[0] == CapturedMessage(sends, peer, 1, 20, 3, 9, 4, 8, **tags)
    assert recorded[1].tag == 0


def test_a_group_is_the_last_made_of_its_ranks_else_a_new_one(recorded):
    from commsim.traces.capture.calls import _place, groups_made, made_group
    from commsim.traces.capture.records import GroupMade

    assert (_place([4, 6]), _place([5, 7]), _place([6, 4])) == (0, 1, 2)
    made_group(["4", 6], None)
    assert (_place([4, 6]), groups_made()[2:]) == (
        3,
        (GroupMade((6, 4), ""), GroupMade((4, 6), "")),
    )


def test_reductions_that_are_named_and_namespaces_that_communicate():
    from commsim.traces.capture.calls import _redop, is_communication

    assert [_redop(g) for g in ({"reduce_op": "AVG"}, {"reduce_op": 3}, {})] == ["avg", "", ""]
    assert is_communication("c10d")
    assert not is_communication("aten")


def test_a_wait_is_of_a_work_that_was_issued(recorded, monkeypatch):
    from commsim.traces.capture import calls
    from commsim.traces.capture.records import Waited

    monkeypatch.setattr(calls, "_issued", {5: None})
    known = torch.ones(2)
    monkeypatch.setattr(calls, "_pending", {id(known.untyped_storage()): 6})
    for work in (SimpleNamespace(seq_id=5), SimpleNamespace(seq_id=4), SimpleNamespace()):
        assert calls.wait_for_work(work) is True
    calls._wait_for(known)
    calls._wait_for(torch.ones(2))
    assert recorded == [Waited(5, 3), Waited(6, 3)]


def test_a_group_of_some_ranks_is_the_last_that_was_made_of_them(monkeypatch):
    from commsim.traces.capture import calls
    from commsim.traces.capture.records import GroupMade

    made = [GroupMade((0, 1), "dp"), GroupMade((0, 2), "tp"), GroupMade((0, 1), "again")]
    monkeypatch.setattr(calls, "_groups", made)
    assert [calls._place(ranks) for ranks in ([0, 1], [0, 2])] == [2, 1]
    assert calls._place([1, 0]) == 3
    assert made[3:] == [GroupMade((1, 0), "")]
    assert calls._place([1, 0]) == 3
    assert [calls._redop({"reduce_op": op}) for op in ("SUM", "avg", None, 3)] == [
        "sum", "avg", "", "",
    ]  # fmt: skip
    assert calls._redop({}) == ""
    assert calls._size(torch.ones(3, 2, dtype=torch.float64)) == 48
