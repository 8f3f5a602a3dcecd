"""Paths between devices on machines made by hand: types, peer access, PXN, GPUDirect, near NICs."""

from __future__ import annotations

import pytest
from helpers.nccl_machines import bridge, c2c, cpu, gpu, net, nic, nvlink, root

from commsim.libraries.nccl.env import knobs_of
from commsim.libraries.nccl.shapes import PathType
from commsim.libraries.nccl.topology.build import system_of
from commsim.libraries.nccl.topology.paths import Paths, _merged, _mirrored
from commsim.libraries.nccl.topology.rules import rules_of
from commsim.libraries.nccl.topology.system import DeviceKind


def made(*cpus, version="2.27", env=None):
    """Return the paths, the GPUs and the NETs of a machine made by hand."""
    rules = rules_of(version)
    paths = Paths(system_of(root(*cpus), "f", rules), knobs_of(env or {}), rules)
    return paths, list(paths.system.gpus), list(paths.system.nets)


def way(paths, one, other):
    path = paths.between(one, other)
    return path.type.name, path.bandwidth, len(path.links)


def test_types_are_what_lies_between():
    """One switch, two, a socket, two sockets; each GPU has 12 GB/s, a NIC's port 12.5."""
    paths, gpus, nets = made(
        cpu(
            bridge(1, gpu(0), gpu(1), bridge(2, gpu(2), nic(0x10, net(0, gdr="1")))),
            gpu(3),
            modelid="85",
        ),
        cpu(gpu(4), numa=1),
    )
    assert [way(paths, gpus[0], other) for other in gpus] == [
        ("LOC", 5_000_000, 0), ("PIX", 12_000, 2), ("PXB", 12_000, 3), ("PHB", 12_000, 3),
        ("SYS", 10_000, 4),
    ]  # fmt: skip
    assert [way(paths, one, nets[0]) for one in gpus] == [
        ("PXB", 12_000, 4), ("PXB", 12_000, 4), ("PIX", 12_000, 3), ("PHB", 12_000, 5),
        ("SYS", 10_000, 6),
    ]  # fmt: skip
    assert [paths.direct_to_net(one, nets[0]) for one in gpus] == [
        paths.between(one, nets[0]) for one in gpus
    ]
    first, second = paths.system.cpus
    assert [paths.nearest_cpu(one) for one in gpus] == [first] * 4 + [second]
    assert paths.extremes(gpus, DeviceKind.GPU) == (PathType.PIX, PathType.SYS)
    assert paths.extremes(gpus[:2], DeviceKind.NET) == (PathType.PXB, PathType.PXB)
    assert paths.extremes(gpus[:1], DeviceKind.NVS) == (PathType.SYS, PathType.LOC)


def test_machines_without_an_nvswitch_do_not_reach_each_other():
    paths, gpus, _ = made(cpu(gpu(0)), cpu(gpu(1, bus=0x80), host="1"))
    assert way(paths, *gpus) == ("DIS", 0, 0)
    assert [paths.nearest_cpu(one) for one in gpus] == list(paths.system.cpus)
    joined, both, _ = made(
        cpu(gpu(0, nvlink(None))), cpu(gpu(1, nvlink(None, 2), bus=0x80), host="1")
    )
    assert way(joined, *both) == ("NVL", 20_000, 2)


@pytest.mark.parametrize(
    ("vendor", "arch", "count", "near"),
    [
        ("AuthenticAMD", "x86_64", 2, True), ("AuthenticAMD", "x86_64", 3, False),
        ("GenuineIntel", "x86_64", 2, False), ("AuthenticAMD", "arm64", 2, False),
    ],
)  # fmt: skip
def test_two_gpus_on_amd_reach_each_other_over_the_socket(vendor, arch, count, near):
    paths, gpus, _ = made(cpu(*(gpu(i) for i in range(count)), vendor=vendor, arch=arch))
    assert paths.peer_to_peer(gpus[0], gpus[1]) == near


@pytest.mark.parametrize(
    ("level", "reached"),
    [("LOC", 0), ("NVL", 0), ("PIX", 1), ("PXB", 2), ("PHB", 3), ("SYS", 4), ("0", 0), ("2", 2)],
)
def test_peer_access_goes_up_to_its_level(level, reached):
    paths, gpus, _ = made(
        cpu(bridge(1, gpu(0), gpu(1), bridge(2, gpu(2))), gpu(3)), cpu(gpu(4), numa=1),
        env={"NCCL_P2P_LEVEL": level},
    )  # fmt: skip
    assert [paths.peer_to_peer(gpus[0], other) for other in gpus[1:]] == [
        i < reached for i in range(4)
    ]
    kinds_found = [way(paths, gpus[0], other)[0] for other in gpus[1:4]]
    assert kinds_found == [*["PIX", "PXB", "PHB"][:reached], *["PHB"] * (3 - reached)]


def test_nvlink_goes_over_one_gpu_and_no_further():
    """A row of four: two hops are NVB, three would be too many."""
    row = [gpu(i, *(nvlink(0x80 + j, 2) for j in (i - 1, i + 1) if 0 <= j < 4)) for i in range(4)]
    paths, gpus, _ = made(cpu(*row))
    assert [way(paths, gpus[0], other) for other in gpus[1:]] == [
        ("NVL", 40_000, 1), ("NVB", 40_000, 2), ("PHB", 12_000, 2),
    ]  # fmt: skip


def beside(level, *, gdr="1", linked=2, own="8.0 GT/s PCIe", port=100_000):
    """Two GPUs with NVLink; the second one's NIC is as near as `level`."""
    card = nic(0x10, net(0, gdr=gdr, speed=port))
    first = bridge(1, gpu(0, nvlink(0x81, linked), link_speed=own))
    second = gpu(1, nvlink(0x80, linked))
    return {
        "PIX": lambda: cpu(first, bridge(2, second, card)),
        "PXB": lambda: cpu(first, bridge(2, second, bridge(3, card))),
        "PHB": lambda: cpu(first, bridge(2, second), card),
    }[level]()


@pytest.mark.parametrize(("level", "found"), [("PIX", "PXN"), ("PXB", "PXN"), ("PHB", "PHB")])
def test_pxn_hands_over_to_a_gpu_up_to_pxb_from_its_nic(level, found):
    paths, gpus, nets = made(beside(level))
    assert way(paths, gpus[0], nets[0])[0] == found
    relay = paths.relay(gpus[0], nets[0])
    assert relay is gpus[1 if found == "PXN" else 0]
    assert paths.relay(gpus[1], nets[0]) is gpus[1]
    assert paths.direct_to_net(gpus[0], nets[0]).type == PathType.PHB
    if found == "PXN":
        hops = 1 + len(paths.between(gpus[1], nets[0]).links)
        assert way(paths, gpus[0], nets[0]) == ("PXN", 12_000, hops)


def test_pxn_needs_gpudirect_and_leave():
    assert way(*ends_of(made(beside("PIX", gdr="0"))))[0] == "PHB"
    assert way(*ends_of(made(beside("PIX"), env={"NCCL_PXN_DISABLE": 1})))[0] == "PHB"
    assert way(*ends_of(made(beside("PIX"), env={"NCCL_NET_GDR_READ": 0})))[0] == "PHB"


def ends_of(of_machine):
    paths, gpus, nets = of_machine
    return paths, gpus[0], nets[0]


@pytest.mark.parametrize(("slot", "found"), [("8.0 GT/s PCIe", "PIX"), ("5 GT/s", "PXN")])
def test_pxn_helps_gpus_whose_own_way_is_narrower(slot, found):
    """Both GPUs and the NIC under one switch: equal ways stay."""
    paths, gpus, nets = made(
        cpu(
            bridge(
                1, gpu(0, nvlink(0x81), link_speed=slot), gpu(1, nvlink(0x80)),
                nic(0x10, net(0, gdr="1")),
            )
        )
    )  # fmt: skip
    assert way(paths, gpus[0], nets[0])[0] == found
    assert way(paths, gpus[1], nets[0])[0] == "PIX"


ARM = {"arch": "arm64"}


@pytest.mark.parametrize(
    ("version", "env", "found", "gdr"),
    [
        ("2.26", {}, "PHB", False),
        ("2.27", {}, "P2C", True),
        ("2.27", {"NCCL_NET_GDR_C2C": 0}, "P2C", False),
        ("2.27", {"NCCL_NET_GDR_C2C": 1}, "P2C", True),
        ("2.27", {"NCCL_NET_GDR_LEVEL": "PXB"}, "P2C", False),
        ("2.27", {"NCCL_NET_GDR_LEVEL": "P2C"}, "P2C", True),
    ],
)
def test_gpudirect_over_c2c_is_of_2_27(version, env, found, gdr):
    paths, (one,), (port,) = made(
        cpu(gpu(0, c2c(200_000), sm=90), nic(0x10, net(0, gdr="1")), **ARM),
        version=version, env=env,
    )  # fmt: skip
    assert paths.gdr(one, port) == gdr
    assert way(paths, one, port) == (found, 12_000, 3)
    assert way(paths, port, one)[0] == found


def test_only_the_nearest_nics_are_reached_over_c2c():
    """The other socket's NIC is SYS; a NIC beside the GPU under its switch stays PIX."""
    paths, (one, two), nets = made(
        cpu(
            bridge(1, gpu(0, c2c(9_000), sm=90), nic(0x10, net(0, gdr="1"))),
            gpu(1, c2c(9_000), sm=90),
            **ARM,
        ),
        cpu(nic(0x11, net(1, gdr="1")), numa=1, **ARM),
    )
    assert [way(paths, one, port)[0] for port in nets] == ["PIX", "SYS"]
    assert way(paths, two, nets[1])[0] == "SYS"


@pytest.mark.parametrize(
    ("version", "env", "level"),
    [
        ("2.27", {}, "PXB"), ("2.28", {}, "P2C"), ("2.28", {"NCCL_PXN_C2C": 0}, "PXB"),
        ("2.27", {"NCCL_PXN_C2C": 1}, "P2C"),
    ],
)  # fmt: skip
def test_pxn_over_c2c_is_of_2_28(version, env, level):
    paths, _, _ = made(cpu(gpu(0)), version=version, env=env)
    assert paths.pxn_level.name == level


@pytest.mark.parametrize(
    ("sm", "others", "env", "reads"),
    [
        (79, [gpu(1, sm=79)], {}, False), (80, [gpu(1)], {}, True), (79, [], {}, True),
        (79, [gpu(1, sm=79)], {"NCCL_NET_GDR_READ": 1}, True),
        (80, [gpu(1)], {"NCCL_NET_GDR_READ": 0}, False),
        (79, [gpu(1, nvlink(0x80), sm=79)], {}, True),
    ],
)  # fmt: skip
def test_nics_read_gpus_from_ampere_on_or_beside_nvlink(sm, others, env, reads):
    linked = any(len(slot.inside[0].inside) for slot in others)
    own = gpu(0, *([nvlink(0x81)] if linked else []), sm=sm)
    paths, gpus, nets = made(cpu(bridge(1, own, *others, nic(0x10, net(0, gdr="1")))), env=env)
    assert paths.gdr(gpus[0], nets[0], read=True) == reads
    assert paths.gdr(gpus[0], nets[0])


def shared(gpus, nets, *, version="2.27", env=None, devs=None):
    """Return the numbers of the NETs that each GPU uses, all under one switch."""
    cards = [nic(0x10 + i, net(i, gdr="1")) for i in range(nets)]
    own = [gpu(i, dev=(devs or range(gpus))[i]) for i in range(gpus)]
    paths, all_gpus, all_nets = made(cpu(bridge(1, *own, *cards)), version=version, env=env)
    used = [[port.number for port in paths.near_nets(one)] for one in all_gpus]
    held = [near and near.rank for near in map(paths.near_gpu, all_nets)]
    return used, held


@pytest.mark.parametrize(
    ("gpus", "nets", "used", "held"),
    [
        (1, 1, [[0]], [0]),
        (2, 1, [[0], [0]], [0]),
        (2, 2, [[0], [1]], [0, 1]),
        (2, 3, [[0, 1], [1, 2]], [0, 1, 1]),
        (1, 3, [[0, 1, 2]], [0, 0, 0]),
        (4, 2, [[0], [1], [0], [1]], [0, 1]),
        (2, 4, [[0, 1], [2, 3]], [0, 0, 1, 1]),
        (3, 4, [[0, 1], [2, 3], [1, 2]], [0, 2, 1, 1]),
        (4, 4, [[0], [2], [1], [3]], [0, 2, 1, 3]),
        (2, 8, [[0, 1, 2, 3], [4, 5, 6, 7]], [0, 0, 0, 0, 1, 1, 1, 1]),
    ],
)
def test_nics_under_one_switch_are_dealt_to_the_gpus(gpus, nets, used, held):
    """A GPU starts at its number, bits mirrored for a power of two, and takes its share of turns.

    A NIC is held by the first GPU that would take it, in its first turn before its second.
    """
    assert shared(gpus, nets) == (used, held)


def test_a_number_counts_among_the_gpus_that_share_since_2_29():
    assert shared(2, 3, devs=[4, 5])[0] == [[1, 2], [2, 0]]
    assert shared(2, 3, devs=[4, 5], version="2.29")[0] == [[0, 1], [1, 2]]


@pytest.mark.parametrize(
    ("policy", "used"),
    [
        ("ALL", [[0, 1, 2], [1, 2, 0]]), ("all", [[0, 1, 2], [1, 2, 0]]), ("MAX:1", [[0], [1]]),
        ("max:2", [[0, 1], [1, 2]]), ("MAX:9", [[0, 1, 2], [1, 2, 0]]), ("AUTO", [[0, 1], [1, 2]]),
    ],
)  # fmt: skip
def test_a_policy_says_how_many_nics_a_gpu_takes(policy, used):
    assert shared(2, 3, env={"NCCL_NETDEVS_POLICY": policy})[0] == used


def test_a_machine_without_nics_has_none_near():
    paths, gpus, _ = made(cpu(gpu(0)))
    assert paths.near_net(gpus[0], 0) is None
    assert paths.near_nets(gpus[0]) == []


def test_the_widest_way_is_the_nearest_then_the_best_type():
    """A port of 50 Gb/s under the switch, and two of 100 on the socket and across."""
    paths, gpus, _ = made(
        cpu(bridge(1, gpu(0), nic(0x10, net(0, speed=50_000, gdr="1"))), nic(0x11, net(1))),
        cpu(nic(0x12, net(2)), numa=1, modelid="143"),
        cpu(gpu(1), numa=2),
    )
    near = [port.number for port in paths.near(gpus[0], DeviceKind.NET)]
    assert near == [1]


@pytest.mark.parametrize(
    ("value", "power", "wanted"),
    [(0, 1, 0), (5, 1, 0), (1, 2, 1), (1, 4, 2), (2, 4, 1), (3, 4, 3), (5, 4, 2), (3, 8, 6)],
)
def test_bits_are_mirrored_within_a_power_of_two(value, power, wanted):
    assert _mirrored(value, power) == wanted


@pytest.mark.parametrize(
    ("one", "other", "plain", "over_c2c"),
    [
        ("C2C", "PHB", "PHB", "P2C"), ("PHB", "C2C", "PHB", "P2C"), ("C2C", "SYS", "SYS", "SYS"),
        ("C2C", "C2C", "C2C", "C2C"), ("PHB", "PHB", "PHB", "PHB"), ("NVL", "PIX", "PIX", "PIX"),
    ],
)  # fmt: skip
def test_two_paths_joined_are_of_the_worse_type_but_c2c_with_pcie(one, other, plain, over_c2c):
    ways = PathType[one], PathType[other]
    assert _merged(*ways, c2c=False).name == plain
    assert _merged(*ways, c2c=True).name == over_c2c


def test_of_two_ways_alike_the_first_one_found_is_taken():
    """From 0 to 3 over 1 or over 2, with a link at each step; 3 lists 2 first."""
    square = [
        gpu(i, *(nvlink(0x80 + j) for j in others))
        for i, others in enumerate([(1, 2), (0, 3), (0, 3), (2, 1)])
    ]
    paths, gpus, _ = made(cpu(*square))
    path = paths.between(gpus[0], gpus[3])
    assert (path.type.name, path.bandwidth) == ("NVB", 20_000)
    assert [end.rank for end in paths.ends(path)] == [2, 3]


def test_nvlink_over_two_gpus_is_no_way_even_where_pcie_is_longer():
    """A row of four, each below a switch of its own: the ends are four PCIe links apart."""
    row = [
        bridge(1 + i, gpu(i, *(nvlink(0x80 + j, 2) for j in (i - 1, i + 1) if 0 <= j < 4)))
        for i in range(4)
    ]
    paths, gpus, _ = made(cpu(*row))
    assert way(paths, gpus[0], gpus[2]) == ("NVB", 40_000, 2)
    assert way(paths, gpus[0], gpus[3]) == ("PHB", 12_000, 4)
