"""The order in which a search relaxes its demands, with searches that answer as they are told."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from commsim.libraries.nccl.search.channel_search import PERFECT
from commsim.libraries.nccl.search.passes import Passes
from commsim.libraries.nccl.search.state import Trial
from commsim.libraries.nccl.shapes import CpuArch, CpuVendor, PathType, Pattern

LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB, SYS, NET, DIS = PathType


class Machine:
    """Facts of a machine whose searches find what `answer` says, and nothing else."""

    def __init__(self, **facts):
        self.speeds, self.total_bw, self.max_bw = (30, 20, 10), 10**6, 10**6
        self.gpus, self.capability, self.inter = 4, 80, True
        self.nearest, self.farthest = (NVL, PIX), (PHB, PHB)
        self.crosses, self.vendor, self.arch = 0, CpuVendor.INTEL, CpuArch.X86
        self.answer = lambda trial, best: 0
        self.may_improve = lambda trial, best: True
        self.bound = SimpleNamespace(can_improve=lambda trial, best: self.may_improve(trial, best))
        self.channels, self.asked = self, []
        vars(self).update(facts)
        self.system = SimpleNamespace(cpus=[SimpleNamespace(arch=self.arch, vendor=self.vendor)])

    def cross_nic(self, pattern):
        return self.crosses

    def reached(self, kind, limit):
        return limit

    def run(self, trial, best, budget):
        self.asked.append(trial.copy())
        return self.answer(trial, best)


def passes(machine, pattern=Pattern.RING, *, least=1, most=16, **changes):
    best = Trial(pattern, least, most, *machine.nearest, **changes)
    return Passes(machine, best), best


def tried(machine, *names):
    return [tuple(getattr(trial, name) for name in names) for trial in machine.asked]


def types(near, far):
    return [PathType(kind) for kind in range(near, far + 1)]


ALL = ("bw_intra", "cross_nic", "type_inter", "type_intra", "same_channels")


def test_what_is_relaxed_first_within_a_node():
    """Different channels, then longer paths, then less bandwidth."""
    machine = Machine(inter=False, farthest=(C2C, PXB))
    one, _ = passes(machine)
    one.run()
    found = tried(machine, "bw_intra", "bw_inter", "type_intra", "same_channels")
    first_pass = [
        (speed, speed, reach, same)
        for speed, reach, same in itertools.product((30, 20, 10), (NVL, NVB, C2C), (True, False))
    ]
    assert found[: len(first_pass)] == first_pass
    assert len(found) <= len(first_pass) + 3


@pytest.mark.parametrize(("asked", "crossed"), [(2, (0, 2)), (1, (1,)), (0, (0,))])
@pytest.mark.parametrize("pattern", [Pattern.RING, Pattern.TREE, Pattern.BALANCED_TREE])
def test_what_is_relaxed_first_between_nodes(asked, crossed, pattern):
    """GPUs never go further than NICs; NICs are swapped last, and not in plain trees."""
    machine = Machine(crosses=asked, farthest=(SYS, P2C), speeds=(30, 20))
    one, _ = passes(machine, pattern, cross_nic=int(asked == 1))
    one.run()
    swapped = crossed if pattern != Pattern.TREE else crossed[:1]
    wanted = [
        (speed, cross, inter, intra, same)
        for speed, cross, inter in itertools.product((30, 20), swapped, types(PIX, P2C))
        for intra, same in itertools.product(types(NVL, inter), (True, False))
    ]
    assert tried(machine, *ALL)[: len(wanted)] == wanted


@pytest.mark.parametrize("inter", [False, True])
def test_no_search_accepts_what_is_not_connected(inter):
    """Where some device has no way at all, the limit still ends before that."""
    machine = Machine(
        inter=inter, nearest=(SYS, SYS), farthest=(DIS, DIS), speeds=(30,), capability=70
    )
    one, _ = passes(machine)
    one.run()
    names = ("type_inter", "type_intra") if inter else ("type_intra",)
    wanted = [(SYS, SYS), (NET, SYS), (NET, NET)] if inter else [(SYS,), (NET,)]
    found = list(dict.fromkeys(tried(machine, *names)))
    assert found == wanted


def test_hopper_tries_a_plain_tree_after_each_balanced_one():
    for capability, plain in ((90, True), (89, False)):
        machine = Machine(capability=capability, inter=False, farthest=(NVL, NVL), speeds=(30,))
        one, _ = passes(machine, Pattern.BALANCED_TREE)
        one.run()
        found = tried(machine, "pattern", "same_channels")[: 4 if plain else 2]
        balanced = [(Pattern.BALANCED_TREE, True), (Pattern.BALANCED_TREE, False)]
        assert found == balanced + [(Pattern.TREE, True), (Pattern.TREE, False)] * plain


@pytest.mark.parametrize(
    ("vendor", "arch", "reach", "same"),
    [
        (CpuVendor.AMD, CpuArch.X86, SYS, [True]),
        (CpuVendor.AMD, CpuArch.X86, PHB, [True, False]),
        (CpuVendor.INTEL, CpuArch.X86, SYS, [True, False]),
        (CpuVendor.AMD, CpuArch.ARM, SYS, [True, False]),
    ],
)
def test_across_amds_sockets_channels_stay_the_same(vendor, arch, reach, same):
    machine = Machine(
        vendor=vendor, arch=arch, inter=False, nearest=(reach, PIX), farthest=(reach, PIX),
        speeds=(30,),
    )  # fmt: skip
    one, _ = passes(machine)
    one.run()
    assert [trial.same_channels for trial in machine.asked][: len(same)] == same
    assert len(machine.asked) == len(same)


def finds(at, channels):
    """Answer with a graph of so many channels in the search of that number."""
    searches = itertools.count(1)

    def answer(trial, best):
        if next(searches) == at:
            trial.channels = channels
            best.take(trial)
            best.intra = [[0, 1, 2, 3] for _ in range(channels)]
            best.inter = [[0, 0] for _ in range(channels)]
        return 0

    return answer


def test_a_found_graph_is_not_sought_with_longer_paths():
    """At NVB and 30: at 20 and 10 the search goes as far as NVL, and 10 is under 49 % of 30."""
    machine = Machine(inter=False, farthest=(C2C, PXB), answer=finds(3, 1))
    one, _ = passes(machine)
    one.run()
    # at 30: NVL, NVL, NVB (found), NVB; then at 20 up to NVB
    assert tried(machine, "bw_intra", "type_intra")[:8] == [
        (30, NVL), (30, NVL), (30, NVB), (30, NVB), (20, NVL), (20, NVL), (20, NVB), (20, NVB),
    ]  # fmt: skip
    assert (10, NVL) not in tried(machine, "bw_intra", "type_intra")


@pytest.mark.parametrize(
    ("found", "following", "goes_on"), [(100, 50, True), (100, 49, False), (1000, 491, True)]
)
def test_speeds_under_49_percent_of_what_was_found_are_left_out(found, following, goes_on):
    machine = Machine(
        inter=False, farthest=(NVL, PIX), speeds=(found, following), answer=finds(1, 1)
    )
    one, _ = passes(machine)
    one.run()
    assert ((following,) in tried(machine, "bw_intra")) == goes_on


@pytest.mark.parametrize(
    ("far", "more"), [(PIX, PXN), (PXB, PXN), (P2C, PXN), (PXN, PXN), (PHB, PHB)]
)
def test_a_found_graph_is_sought_up_to_pxn_all_the_same(far, more):
    """NICs no further than where the graph was found, but for PXN, which is always tried."""
    machine = Machine(nearest=(PIX, PIX), farthest=(PIX, SYS), speeds=(30, 20))
    found_at: list[int] = []

    def answer(trial, best):
        if trial.type_inter == far and not best.channels:
            trial.channels = 1
            best.take(trial)
            best.intra, best.inter = [[0]], [[0, 0]]
            found_at.append(len(machine.asked))
        return 0

    machine.answer = answer
    one, _ = passes(machine)
    one.run()
    at_20 = [trial.type_inter for trial in machine.asked if trial.bw_inter == 20]
    assert found_at
    assert max(at_20) == more


@pytest.mark.parametrize(
    ("channels", "bandwidth", "enough"), [(2, 30, True), (1, 30, False), (3, 30, True)]
)
def test_a_graph_of_all_bandwidth_is_enough(channels, bandwidth, enough):
    machine = Machine(inter=False, total_bw=60, speeds=(bandwidth,), answer=finds(1, channels))
    one, _ = passes(machine)
    one.run()
    assert (len(machine.asked) == 1) == enough


def test_a_perfect_search_is_enough():
    machine = Machine(inter=False, answer=lambda trial, best: PERFECT)
    one, _ = passes(machine)
    one.run()
    assert tried(machine, "bw_intra", "same_channels")[0] == (30, True)
    assert (30, False) not in tried(machine, "bw_intra", "same_channels")


@pytest.mark.parametrize(
    ("pattern", "gpus", "least", "max_bw", "total", "first"),
    [
        (Pattern.RING, 4, 1, 30, 99, 30), (Pattern.RING, 4, 1, 29, 99, 20),
        (Pattern.RING, 4, 1, 9, 99, 10),  # the last speed is tried in any case
        (Pattern.RING, 4, 3, 99, 90, 30), (Pattern.RING, 4, 3, 99, 89, 20),
        # a tree leaves all GPUs but one: 4/3 of what a GPU has
        (Pattern.TREE, 4, 3, 99, 68, 30), (Pattern.TREE, 4, 3, 99, 67, 20),
        (Pattern.TREE, 1, 3, 99, 90, 30), (Pattern.TREE, 1, 3, 99, 89, 20),
        (Pattern.TREE, 2, 3, 99, 45, 30), (Pattern.TREE, 2, 3, 99, 44, 20),
    ],
)  # fmt: skip
def test_the_first_speed_is_one_that_links_can_carry(pattern, gpus, least, max_bw, total, first):
    machine = Machine(gpus=gpus, max_bw=max_bw, total_bw=total)
    one, _ = passes(machine, pattern, least=least)
    one.run()
    assert machine.asked[0].bw_intra == machine.asked[0].bw_inter == first


DOUBLED = [
    # capability, channels, most, MB/s of each, then channels and MB/s
    (80, 2, 16, 48_000, 4, 24_000), (80, 2, 16, 25_000, 4, 12_500), (80, 2, 16, 24_999, 2, 24_999),
    (80, 3, 4, 30_000, 4, 15_000), (80, 4, 4, 30_000, 4, 30_000), (80, 1, 2, 30_001, 2, 15_000),
    (80, 5, 16, 30_000, 10, 15_000), (81, 5, 16, 30_000, 5, 30_000), (90, 4, 16, 30_000, 8, 15_000),
    (90, 5, 16, 49_999, 5, 49_999), (90, 5, 16, 50_000, 10, 25_000), (80, 0, 16, 30_000, 0, 30_000),
]  # fmt: skip


@pytest.mark.parametrize(("capability", "channels", "most", "rate", "count", "each"), DOUBLED)
def test_wide_channels_are_split_in_two(capability, channels, most, rate, count, each):
    machine = Machine(capability=capability)
    one, best = passes(machine, most=most)
    best.channels, best.bw_intra, best.bw_inter = channels, rate, rate + 2_000
    best.intra = [[c, c + 1] for c in range(channels)]
    best.inter = [[c, 7] for c in range(channels)]
    one._double()
    assert (best.channels, best.bw_intra) == (count, each)
    assert best.bw_inter == (rate + 2_000 if count == channels else (rate + 2_000) // 2)
    assert best.intra == [[c % channels, c % channels + 1] for c in range(count)]
    assert best.inter == [[c % channels, 7] for c in range(count)]
    if count > channels:
        best.intra[channels][0] = 99
        assert best.intra[0] == [0, 1]


def test_nvls_channels_are_not_split():
    one, best = passes(Machine(), Pattern.NVLS)
    best.channels, best.bw_intra = 2, 48_000
    one._double()
    assert (best.channels, best.bw_intra) == (2, 48_000)


def widened(machine, pattern, intra, inter=None):
    """Widen two channels of that bandwidth; return the bandwidths that were tried."""
    machine.speeds = (40, 30, 20, 10)
    one, best = passes(machine, pattern)
    best.channels, best.bw_intra, best.bw_inter = 2, intra, inter or intra
    best.intra, best.inter = [[0], [1]], [[0, 0], [1, 1]]
    one._widen()
    return tried(machine, "bw_intra", "bw_inter")


@pytest.mark.parametrize(
    ("bandwidth", "tries"),
    [
        (20, [(30, 30), (40, 40)]), (25, [(30, 30), (40, 40)]), (30, [(40, 40)]), (40, []),
        (45, []), (5, [(20, 20), (30, 30), (40, 40)]), (10, [(20, 20), (30, 30), (40, 40)]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("left", [1, PERFECT])
def test_a_ring_is_widened_step_by_step(bandwidth, tries, left):
    machine = Machine(answer=lambda trial, best: left)
    assert widened(machine, Pattern.RING, bandwidth) == tries
    assert {(trial.min_channels, trial.max_channels) for trial in machine.asked} <= {(2, 16)}


def test_widening_ends_after_a_search_that_runs_out_of_time():
    assert widened(Machine(), Pattern.RING, 20) == [(30, 30)]


def test_a_search_put_off_counts_if_a_later_one_may_improve():
    """The first step cannot improve; the second can, so the first is run, and ends it."""
    for left, tries in ((0, [(30, 30)]), (1, [(30, 30), (40, 40)])):
        machine = Machine(
            answer=lambda trial, best, left=left: left,
            may_improve=lambda trial, best: trial.bw_intra > 30,
        )
        assert widened(machine, Pattern.RING, 20) == tries
    assert widened(Machine(may_improve=lambda *_: False), Pattern.RING, 20) == []


@pytest.mark.parametrize(
    ("intra", "inter", "tries"),
    [
        (20, 20, [(30, 20)]),
        (20, 25, [(30, 20)]),  # from the speed below on
        (30, 20, []),  # it is wider than that already
        (10, 10, [(20, 10)]),
    ],
)
def test_a_tree_is_widened_between_gpus(intra, inter, tries):
    machine = Machine(answer=lambda trial, best: 1)
    assert widened(machine, Pattern.TREE, intra, inter) == tries


def improves(trial, best):
    trial.channels = best.channels
    best.take(trial)
    return 1


def test_a_tree_is_widened_up_to_twice_what_leaves_the_node():
    assert widened(Machine(answer=improves), Pattern.TREE, 20) == [(30, 20), (40, 20)]
    assert widened(Machine(answer=improves), Pattern.TREE, 10) == [(20, 10)]


def test_nvls_is_widened_to_the_network_first():
    """Then between GPUs, once each; with as many heads as it has, to the network."""
    machine = Machine(answer=lambda trial, best: 1)
    assert widened(machine, Pattern.NVLS, 20) == [(20, 30), (40, 30)]
    assert [(trial.min_channels, trial.max_channels) for trial in machine.asked] == [(2, 2)] * 2
    assert widened(Machine(answer=improves), Pattern.NVLS, 20) == [(20, 30), (20, 40)]
    # 20 is twice 10: then between GPUs
    assert widened(Machine(answer=improves), Pattern.NVLS, 10) == [(10, 20), (30, 20), (30, 40)]
    assert widened(machine, Pattern.NVLS, 20, 25)[2:] == [(30, 20)]
