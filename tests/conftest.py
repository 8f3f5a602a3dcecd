"""What all tests share: the folder of reference data beside the checkout, if there is one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from helpers.share import WHOLE
from hypothesis import HealthCheck, settings

# No test depends on time: an example may take as long as a busy machine makes it take.
# Each run draws other examples: a third of them by default, all with --hypothesis-profile=whole.
settings.register_profile("whole", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("third", settings.get_profile("whole"), max_examples=WHOLE // 3)
settings.load_profile("third")

# A shell lets programs in its background ignore Ctrl-C, and they hand that down to what they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The programs that tests start keep their compiled modules: imports take a third of the time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The reference data that CI has beside the checkout; users do not: skip there."""
    if not (SHARED / "data").is_dir():
        pytest.skip("needs the reference data that only the developers have")
    return SHARED / "data"
