"""What a plain run loads: people wait for it each time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

NOT_NEEDED = (
    "asyncio", "dask", "http.client", "logging", "multiprocessing", "networkx", "numba", "numpy.ma",
    "pandas", "plotly", "ssl", "tomllib", "torch", "urllib.request", "xml.etree", "xml.sax",
)  # fmt: skip
OURS = 442
"""A plain run loads 438 modules of commsim; every one costs time before anything happens."""


def test_a_plain_run_loads_only_what_it_needs(tmp_path: Path) -> None:
    code = (
        "import sys; from commsim.cli.main import call;"
        f"call(['run', 'quickstart', '-q', '-o', {str(tmp_path / 'page.html')!r}]);"
        f"print([m for m in {NOT_NEEDED!r} if m in sys.modules]);"
        "print(sum(m.split('.')[0] == 'commsim' for m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, ours = done.stdout.splitlines()[-2:]
    assert (tmp_path / "page.html").exists()
    assert loaded == "[]"
    assert int(ours) <= OURS
