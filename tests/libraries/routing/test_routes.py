"""Routes between ranks, and what is said where there is none."""

from __future__ import annotations

import pytest

from commsim.cluster import Cluster
from commsim.errors import TopologyError
from commsim.libraries.routing import Router


@pytest.mark.parametrize(
    ("pxn", "target", "rail", "why"),
    [
        (True, 14, 3, "no NVLink joins rank 0 to a GPU on rail 3"),
        (False, 10, 1, "NCCL_PXN_DISABLE"),
    ],
)
def test_rails_that_meet_nowhere_are_named(pxn: bool, target: int, rail: int, why: str) -> None:
    """Two GPUs of a DGX-1 share a NIC; NVLink joins a GPU to four of its seven peers."""
    router = Router(Cluster.preset("dgx-1v", nodes=2, fabric={"kind": "rail_only"}), pxn=pxn)
    assert router.route(0, 8).link  # on the same rail
    says = f"rank 0 cannot reach rank {target}: their NICs are on rails 0 and {rail},"
    with pytest.raises(TopologyError, match=says) as found:
        router.route(0, target)
    assert why in str(found.value)
