"""NCCL's budget for its searches, with searches that answer as they are told."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from commsim.libraries.nccl.search.budget import Budget, SearchRun
from commsim.libraries.nccl.search.state import Trial
from commsim.libraries.nccl.shapes import PathType, Pattern
from commsim.libraries.nccl.topology import DeviceKind

ALL, ONE, SAME = 1 << 19, 1 << 14, 1 << 8


class Searches:
    """Facts of a system whose searches leave `left`, and improve the best if `improving`."""

    def __init__(self) -> None:
        self.improving, self.left = True, 0
        self.bound = SimpleNamespace(can_improve=lambda trial, best: self.improving)
        self.channels = self
        self.ran: list[tuple[int, int]] = []

    def run(self, trial, best, budget):
        self.ran.append((trial.bw_intra, budget))
        return self.left

    def reached(self, kind, limit):
        """Up to PXB there is no path but NVLink; to the network all are PIX."""
        if kind == DeviceKind.NET:
            return PathType.PIX
        return min(limit, PathType.NVL) if limit <= PathType.PXB else limit


@pytest.fixture
def searches():
    return Searches()


def trial(bandwidth, **changes):
    asked = {"bw_intra": bandwidth, "bw_inter": bandwidth, "same_channels": False} | changes
    return Trial(Pattern.RING, 1, 4, PathType.NVL, PathType.PIX, **asked)


def made(searches, *, found=1):
    best = trial(1, channels=found)
    return Budget(searches, best), best


@pytest.mark.parametrize(("same", "budget"), [(True, SAME), (False, ONE)])
def test_a_search_has_its_own_budget(searches, same, budget):
    budgets, _ = made(searches)
    run = budgets.run(trial(20, same_channels=same))
    assert run.time == 0
    assert searches.ran == [(20, budget)]


def test_a_search_that_cannot_improve_is_put_off(searches):
    budgets, _ = made(searches)
    searches.improving, searches.left = False, 7
    run = budgets.run(trial(20))
    assert (run.time, searches.ran) == (None, [])
    assert run.trial == trial(20)
    assert budgets.time_of(run) == 7
    assert run.time == 7
    assert budgets.time_of(run) == 7
    assert searches.ran == [(20, ONE)]


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ({}, False), ({"hops": 9}, False), ({"cross_nic": 2}, True), ({"bw_inter": 19}, True),
        ({"bw_intra": 19}, True), ({"min_channels": 2}, True), ({"max_channels": 5}, True),
        ({"same_channels": True}, True), ({"pattern": Pattern.TREE}, True),
        ({"type_intra": PathType.PXB}, False), ({"type_intra": PathType.PHB}, True),
        ({"type_inter": PathType.SYS}, False),
    ],
)  # fmt: skip
def test_searches_of_equal_inputs_are_run_once(searches, change, again):
    """Types count as far as there are paths of them."""
    budgets, _ = made(searches)
    budgets.run(trial(20))
    other = trial(20)
    for name, value in change.items():
        setattr(other, name, value)
    budgets.run(other)
    assert len(searches.ran) == 1 + again


def spend(budgets, searches, left):
    """Search once, of `left` units unspent; say whether NCCL would go on."""
    searches.left = left
    run = budgets.run(trial(1000 + len(searches.ran)))
    return run is not None and not budgets.is_spent_after(run)


def test_the_budget_of_all_is_32_searches(searches):
    """2^19 of 2^14 each; at 0 it is not spent yet, and below it is."""
    budgets, _ = made(searches)
    assert all(spend(budgets, searches, 0) for _ in range(32))
    assert not spend(budgets, searches, ONE - 1)


def test_time_left_over_is_given_back(searches):
    budgets, _ = made(searches)
    assert all(spend(budgets, searches, ONE) for _ in range(50))
    assert all(spend(budgets, searches, ONE // 2) for _ in range(64))
    assert not spend(budgets, searches, 0)


def test_a_perfect_search_leaves_less_than_nothing(searches):
    """NCCL adds the time left as it is: -1 for a search that ended perfect."""
    budgets, _ = made(searches)
    assert all(spend(budgets, searches, 0) for _ in range(31))
    assert not spend(budgets, searches, -1)


def test_without_a_channel_found_the_budget_never_ends(searches):
    budgets, best = made(searches, found=0)
    assert all(spend(budgets, searches, 0) for _ in range(40))
    best.channels = 1
    assert not spend(budgets, searches, 0)


def test_two_searches_may_give_back_at_once(searches):
    """What a search spent counts with the next whose time comes back: same order, then free."""
    budgets, _ = made(searches)
    for turn in range(40):
        searches.left = 0
        budgets.run(trial(turn, same_channels=True))
        if not spend(budgets, searches, 0):
            break
    assert turn == 31  # of 2^14 + 2^8 each: 2^19 holds 31.5


def put_off(budgets, searches, count, left=0):
    searches.improving, searches.left = False, left
    for turn in range(count):
        run = budgets.run(trial(5000 + turn))
        assert run is not None
        assert not budgets.is_spent_after(run)
    searches.improving = True


@pytest.mark.parametrize(("count", "ends"), [(31, False), (32, False), (33, True)])
def test_searches_put_off_are_run_if_they_may_have_spent_all(searches, count, ends):
    budgets, _ = made(searches)
    put_off(budgets, searches, count)
    assert searches.ran == []
    run = budgets.run(trial(20))
    assert (run is None) == ends
    assert len(searches.ran) == (count if ends else 1)


def test_the_budget_is_counted_to_the_last_unit(searches):
    """One unit over, and 31 shares put off: they may have spent one unit more than there are."""
    budgets, _ = made(searches)
    assert spend(budgets, searches, -1)
    put_off(budgets, searches, 31)
    assert budgets.run(trial(20)) is None


def test_searches_put_off_that_spent_little_end_nothing(searches):
    budgets, _ = made(searches)
    put_off(budgets, searches, 40, left=ONE)
    run = budgets.run(trial(20))
    assert run is not None
    assert len(searches.ran) == 41
    assert not budgets.is_spent_after(run)
    assert all(spend(budgets, searches, 0) for _ in range(32))
    assert not spend(budgets, searches, 0)


def test_searches_put_off_are_settled_once(searches):
    budgets, _ = made(searches)
    put_off(budgets, searches, 33, left=ONE)
    for bandwidth in (20, 21):
        assert budgets.run(trial(bandwidth)) is not None
    assert len(searches.ran) == 35


def test_what_was_put_off_counts_beside_what_was_run(searches):
    """31 searches have spent their share: two put off may have spent the rest."""
    budgets, _ = made(searches)
    assert all(spend(budgets, searches, 0) for _ in range(31))
    put_off(budgets, searches, 1)
    assert budgets.run(trial(20)) is not None
    assert len(searches.ran) == 32
    budgets, _ = made(searches)
    assert all(spend(budgets, searches, 0) for _ in range(31))
    put_off(budgets, searches, 2)
    assert budgets.run(trial(20)) is None


def test_a_search_run_after_one_put_off_counts_with_it(searches):
    budgets, _ = made(searches)
    put_off(budgets, searches, 1)
    assert all(spend(budgets, searches, 0) for _ in range(32))
    assert budgets.run(trial(20)) is None


def test_what_was_put_off_without_a_channel_ends_nothing(searches):
    budgets, best = made(searches, found=0)
    put_off(budgets, searches, 40)
    best.channels = 1
    assert budgets.run(trial(20)) is not None
    assert len(searches.ran) == 1


def test_the_second_pass_has_no_budget_of_all(searches):
    budgets, _ = made(searches)
    put_off(budgets, searches, 40)
    budgets.forget()
    assert budgets.run(trial(20)) is not None
    assert len(searches.ran) == 1


def test_a_run_keeps_its_own_trial(searches):
    budgets, _ = made(searches)
    one = trial(20)
    run = budgets.run(one)
    one.bw_intra = 1
    assert isinstance(run, SearchRun)
    assert run.trial.bw_intra == 20
    assert ALL == 32 * ONE
