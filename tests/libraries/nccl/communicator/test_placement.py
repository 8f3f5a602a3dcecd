"""Groups of equal placement share one search and differ in NICs alone."""

import numpy as np
import pytest

from commsim.cluster import Cluster
from commsim.libraries.nccl.communicator import Communicators, communicator_of
from commsim.libraries.nccl.env import knobs_of


@pytest.mark.parametrize("disabled", [False, True], ids=["p2p", "NCCL_P2P_DISABLE"])
@pytest.mark.parametrize("stride", [2, 4, 8])
def test_a_group_found_by_its_equal_has_the_nics_of_its_own_search(
    disabled: bool, stride: int
) -> None:
    """Without P2P, NCCL sees several nodes in one: NICs still move with the node they are in."""
    cluster = Cluster.preset("dgx-h100", nodes=4)
    knobs = knobs_of({"NCCL_P2P_DISABLE": "1"} if disabled else {})
    known = Communicators(cluster, version="2.27.3", knobs=knobs)
    first = tuple(range(0, 16, stride))
    known.of(first)
    for shift in (8, 16):
        moved = tuple(rank + shift for rank in first)
        found = known.of(moved)
        own = communicator_of(cluster, moved, version="2.27.3", env=knobs)
        assert own.nets
        assert found.nets.keys() == own.nets.keys()
        for name, ends in own.nets.items():
            np.testing.assert_array_equal(found.nets[name].nics, ends.nics)
            np.testing.assert_array_equal(found.nets[name].relays, ends.relays)
