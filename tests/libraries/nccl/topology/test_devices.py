"""Which GPU a PCI device id is, and NVLink's rate by generation."""

import pytest

from commsim.libraries.nccl.topology.devices import device_of, gpu_name, nvlink_rate


@pytest.mark.parametrize(
    ("device", "capability", "wanted"),
    [
        (0x2330, 0, ("H100-SXM5-80GB", True)),
        (0x20B0, 90, ("A100-SXM4-40GB", True)),
        (0x9999, 0, ("V100-SXM2-16GB", False)),
        (0x9999, 74, ("V100-SXM2-16GB", False)),
        (0x9999, 75, ("T4", False)),
        (0x9999, 79, ("T4", False)),
        (0x9999, 80, ("A100-SXM4-40GB", False)),
        (0, 121, ("GB10", False)),
        (0, 999, ("GB10", False)),
    ],
)
def test_a_gpu_is_known_by_its_id_or_taken_by_its_capability(device, capability, wanted):
    assert gpu_name(device, capability) == wanted


def test_the_id_of_a_gpu_is_found_by_its_name():
    assert device_of("H100-SXM5-80GB") == "0x2330"
    assert device_of("no such GPU") == "0x0000"


@pytest.mark.parametrize(
    ("capability", "rate"),
    [
        (0, 20e9), (69, 20e9), (70, 25e9), (85, 25e9), (86, 14.0625e9), (87, 25e9),
        (99, 25e9), (100, 50e9), (121, 50e9),
    ],
)  # fmt: skip
def test_nvlinks_rate_is_its_generations(capability, rate):
    assert nvlink_rate(capability) == rate
