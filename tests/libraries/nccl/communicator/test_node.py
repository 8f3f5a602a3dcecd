"""What one node finds of itself, on machines made by hand."""

from __future__ import annotations

import pytest
from helpers.nccl_machines import bridge, c2c, cpu, gpu, net, nic, nvlink, root

from commsim.libraries.nccl.communicator.node import parts, view
from commsim.libraries.nccl.env import knobs_of
from commsim.libraries.nccl.shapes import CpuArch, CpuVendor
from commsim.libraries.nccl.topology import rules_of


def parts_of(*cpus, env=None):
    return parts(root(*cpus), "f", rules_of("2.27"), knobs_of(env or {}))


def view_of(*cpus, ranks=range(8), inter=True, version="2.27", env=None):
    return view(root(*cpus), "f", rules_of(version), knobs_of(env or {}), ranks=ranks, inter=inter)


def sockets(speed, *, width="16", near=True):
    """Two sockets, 10 GB/s between them, each with two GPUs and a NIC of so many Mb/s."""
    return [
        cpu(
            bridge(
                1 + s, gpu(2 * s), gpu(2 * s + 1),
                *[nic(0x10 + s, net(s, speed=speed, gdr="1"), link_width=width)][: int(near)],
            ),
            *[nic(0x10 + s, net(s, speed=speed, gdr="1"), link_width=width)][int(near) :],
            numa=s,
        )
        for s in range(2)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("speed", "apart"), [(80_000, False), (80_008, True), (100_000, True), (40_000, False)]
)
def test_gpus_that_reach_nics_faster_than_each_other_are_apart(speed, apart):
    """More than 10 GB/s to the NIC below their switch, against 10 GB/s between the sockets."""
    assert parts_of(*sockets(speed)) == ([(0, 1), (2, 3)] if apart else [(0, 1, 2, 3)])


def test_nics_count_up_to_a_switch_away_and_if_leave_is_given():
    assert parts_of(*sockets(100_000, near=False)) == [(0, 1, 2, 3)]
    together = parts_of(*sockets(100_000), env={"NCCL_NET_DISABLE_INTRA": 1})
    assert together == [(0, 1, 2, 3)]


def test_nics_count_behind_a_second_switch():
    """PXB: as far as GPUDirect works by itself."""
    first, second = sockets(100_000)
    for number, socket in enumerate((first, second)):
        switch = socket.inside[0]
        switch.inside.append(bridge(8 + number, switch.inside.pop()))
    assert parts_of(first, second) == [(0, 1), (2, 3)]


def test_one_gpu_that_is_far_from_nics_keeps_both_together():
    """Both must reach a NIC faster: here the second socket has none."""
    first, second = sockets(100_000)
    second.inside[0].inside.pop()
    assert parts_of(first, second) == [(0, 1, 2, 3)]


def test_without_any_way_each_gpu_is_a_node():
    env = {"NCCL_P2P_DISABLE": 1}
    assert parts_of(cpu(gpu(0), gpu(1)), env=env) == [(0, 1)]
    assert parts_of(cpu(gpu(0), gpu(1)), env=env | {"NCCL_SHM_DISABLE": 1}) == [(0,), (1,)]


def test_gpus_without_shared_memory_meet_where_they_have_peer_access():
    env = {"NCCL_SHM_DISABLE": 1}
    assert parts_of(cpu(bridge(1, gpu(0), gpu(1)), gpu(2)), env=env) == [(0, 1), (2,)]


def test_machines_are_apart_unless_nvlink_joins_them():
    """Shared memory is of one machine; GPUs of two meet over an NVSwitch alone."""
    bare = cpu(gpu(0)), cpu(gpu(1, bus=0x80), host="1")
    assert parts_of(*bare) == [(0,), (1,)]
    joined = cpu(gpu(0, nvlink(None))), cpu(gpu(1, nvlink(None), bus=0x80), host="1")
    assert parts_of(*joined) == [(0, 1)]


def test_gpus_meet_by_way_of_a_third():
    """0 and 1 meet in 2 over NVLink; 3 has no way to them."""
    env = {"NCCL_SHM_DISABLE": 1, "NCCL_P2P_LEVEL": "NVL"}
    row = [
        gpu(0, nvlink(0x82)), gpu(1, nvlink(0x82)), gpu(2, nvlink(0x80), nvlink(0x81)), gpu(3),
    ]  # fmt: skip
    assert parts_of(cpu(*row), env=env)[-1] == (3,)
    assert sorted(rank for part in parts_of(cpu(*row), env=env) for rank in part) == [0, 1, 2, 3]


def test_a_view_has_the_facts_of_the_ranks_that_are_there():
    whole = (
        cpu(gpu(0, sm=70), gpu(1), nic(0x10, net(4, speed=50_000)), vendor="AuthenticAMD"),
        cpu(gpu(2, sm=90), nic(0x11, net(7)), numa=1),
    )
    found = view_of(*whole, ranks=[1, 2])
    assert found.ranks == (1, 2)
    assert found.nets == ((0, 4), (0, 7))
    assert found.capability == (80, 90)
    assert (found.cpu_arch, found.cpu_vendor) == (CpuArch.X86, CpuVendor.AMD)
    assert not found.nvswitch
    assert found.relays == ((0, 0), (1, 1))
    # 10 GB/s: across the sockets to the wide NIC
    assert (found.max_bw, found.total_bw) == (12.0, 12.0)


@pytest.mark.parametrize(("inter", "said"), [(True, True), (False, False)])
def test_a_node_without_a_nic_says_so_if_others_need_one(inter, said):
    found = view_of(cpu(gpu(0), gpu(1)), inter=inter)
    assert any("no NIC, but the group goes beyond" in note for note in found.notes) == said
    assert (found.net_bandwidth, found.local_nets, found.nets) == (0, 0, ())
    assert found.gdr


@pytest.mark.parametrize(
    ("version", "gpus", "env", "there"),
    [
        ("2.27", 3, {}, True), ("2.27", 2, {}, False), ("2.29", 2, {}, True),
        ("2.29", 1, {}, False), ("2.27", 3, {"NCCL_NVLS_ENABLE": 0}, False),
        ("2.27", 3, {"NCCL_NVLS_ENABLE": 1}, True),
    ],
)  # fmt: skip
def test_nvls_needs_enough_gpus_and_leave(version, gpus, env, there):
    many = [gpu(i, nvlink(None, 18), sm=90) for i in range(gpus)]
    found = view_of(cpu(*many), inter=False, version=version, env=env)
    assert ("nvls" in found.graphs) == there
    assert found.nvswitch


@pytest.mark.parametrize(
    ("coll", "env", "inter", "there"),
    [
        ("1", 1, True, True), ("1", 0, True, False), ("0", 1, True, False), ("1", 1, False, False),
    ],
)  # fmt: skip
def test_collnet_needs_a_nic_that_reduces_and_leave(coll, env, inter, there):
    ports = [nic(0x10, net(0, gdr="1", coll="0")), nic(0x11, net(1, gdr="1", coll=coll))]
    found = view_of(cpu(gpu(0), gpu(1), *ports), inter=inter, env={"NCCL_COLLNET_ENABLE": env})
    assert ("collnet_chain" in found.graphs) == ("collnet_direct" in found.graphs) == there


@pytest.mark.parametrize(
    ("speeds", "filled"),
    [
        ([50_000, 50_000], 2),  # 6.25 GB/s each: the second is begun at 6.25 of 12
        ([96_000, 96_000], 1),  # 12 of 12 are full
        ([100_000, 100_000], 1),
        ([32_000] * 4, 3),  # 4 + 4 + 4
        ([32_000] * 2, 2),
        ([95_992, 95_992], 2),
    ],
)
def test_a_gpu_feeds_as_many_nics_as_its_link_can_fill(speeds, filled):
    ports = [nic(0x10 + i, net(i, speed=speed, gdr="1")) for i, speed in enumerate(speeds)]
    found = view_of(cpu(bridge(1, gpu(0), *ports, link_width="16")))
    assert found.local_nets == filled


def test_the_slowest_nic_that_a_gpu_uses_counts():
    """A GPU on PCIe 3 x8 has 6 GB/s of its NIC's 12.5; the other one 12."""
    slow = bridge(1, gpu(0, link_width="8"), nic(0x10, net(0, gdr="1")))
    fast = bridge(2, gpu(1), nic(0x11, net(1, gdr="1")))
    assert view_of(cpu(fast)).net_bandwidth == 12.0
    assert view_of(cpu(slow, fast)).net_bandwidth == 6.0
    assert view_of(cpu(slow, fast)).local_nets == 1


@pytest.mark.parametrize(
    ("links", "wanted"),
    [
        ([[0, 2, 3], [2, 0, 4], [3, 4, 0]], 2),
        ([[0, 1, 1], [1, 0, 1], [1, 1, 0]], 1),
        ([[0, 2, 0], [2, 0, 3], [0, 3, 0]], 1),  # the outer two over the third: worth one
    ],
)
def test_nvlinks_of_the_slowest_pair_count(links, wanted):
    row = [
        gpu(i, *(nvlink(0x80 + j, count) for j, count in enumerate(own) if count))
        for i, own in enumerate(links)
    ]
    assert view_of(cpu(*row), inter=False).peer_nvlinks == wanted


def test_a_pair_without_nvlink_has_none_and_a_gpu_alone_neither():
    assert view_of(cpu(gpu(0), gpu(1)), inter=False).peer_nvlinks == 0
    assert view_of(cpu(gpu(0)), inter=False).peer_nvlinks == 0
    mixed = gpu(0, nvlink(0x81)), gpu(1, nvlink(0x80)), gpu(2)
    assert view_of(cpu(*mixed), inter=False).peer_nvlinks == 0


def test_a_link_narrower_than_nccls_counts_as_one():
    """Hopper's links are 20.6 GB/s; a way to an older GPU over 20 is worth one all the same."""
    pair = gpu(0, nvlink(0x81), sm=90), gpu(1, nvlink(0x80), sm=80)
    assert view_of(cpu(*pair), inter=False).peer_nvlinks == 1
    switched = [gpu(i, nvlink(None, 18), sm=90) for i in range(2)]
    assert view_of(cpu(*switched), inter=False).peer_nvlinks == 18


def test_gpus_over_c2c_reach_each_other_as_over_one_link():
    arm = {"arch": "arm64"}
    pair = gpu(0, c2c(200_000), sm=90), gpu(1, c2c(200_000), sm=90)
    found = view_of(cpu(*pair, **arm), inter=False, env={"NCCL_P2P_LEVEL": "C2C"})
    assert found.peer_nvlinks == 1


@pytest.mark.parametrize(("gdr", "whole"), [("1", True), ("0", False)])
def test_gpudirect_is_of_all_nics_that_are_used(gdr, whole):
    """A NIC on the socket's other side is used by no GPU."""
    near = [bridge(1 + i, gpu(i), nic(0x10 + i, net(i, gdr=("1", gdr)[i]))) for i in range(2)]
    far = nic(0x12, net(2, speed=1_000, gdr="0"))
    assert view_of(cpu(*near), cpu(far, numa=1)).gdr == whole


@pytest.mark.parametrize(
    ("env", "access"), [({}, True), ({"NCCL_P2P_DISABLE": 1}, False), ({"NCCL_P2P_LEVEL": 2}, True)]
)
def test_neighbours_on_rings_have_peer_access_or_not(env, access):
    found = view_of(cpu(bridge(1, gpu(0), gpu(1), gpu(2))), inter=False, env=env)
    assert found.peer_access == access
    assert view_of(cpu(gpu(0)), inter=False, env=env).peer_access
