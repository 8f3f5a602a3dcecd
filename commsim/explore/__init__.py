"""
`commsim explore`: a page in the browser on which a scenario's settings are chosen and answered.

In: a scenario. A server of this machine alone (`server`) hands out the page and takes choices; a
worker process (`process`, `worker`) turns choices into a scenario (`settings`), runs it and says
what came of it (`answers`). The page offers values (`controls`) and sends back which was chosen.
"""

from commsim.explore.server import ExplorerServer

__all__ = ["ExplorerServer"]
