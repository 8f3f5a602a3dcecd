"""Messages over FIFO links: what software adds to them."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.cluster import Cluster
from commsim.libraries.expansion.traffic import arrivals
from commsim.libraries.plan import Delays, RoutedProgram


def test_a_sender_hands_out_at_its_own_pace() -> None:
    """Two messages of one connection, each 5 ns of the sender's work and 1 ns of wire."""
    cluster = Cluster.preset("dgx-h100")
    route = cluster.local_route(0, 1)
    assert route is not None
    size = 1e-9 * float(cluster.links.capacity[route.link[0]])
    zeros = np.zeros(2)
    delays = Delays(zeros, zeros, np.zeros(0), np.full(2, 5000.0))
    messages = RoutedProgram(
        np.zeros(2, np.int64), np.ones(2, np.int64), np.full(2, size), np.zeros(2, np.int64),
        (route,), np.zeros(3, np.int64), np.zeros(0, np.int64), delays,
    )  # fmt: skip
    done = arrivals(messages, cluster.links)
    assert done.tolist() == pytest.approx([5000 + route.latency, 10000 + route.latency])
