"""
Timelines for other tools: Chrome JSON for Perfetto, CSV for spreadsheets.
"""

from commsim.export.chrome import write_chrome
from commsim.export.tables import write_csv

__all__ = ["write_chrome", "write_csv"]
