"""
What if: a scenario at every place of a few sliders, each place a run of its own.

In: a scenario and names of what to vary ("nic.bandwidth", "nodes", or a path with values). Out: a
`WhatIfGrid`: the axes, a row per point, and a report whose sliders show the point that one chooses.
`axes` says what a slider changes, `grid` runs the points.
"""

from commsim.study.next_dollar.what_if.axes import WhatIfAxis, axes_for, axis_names
from commsim.study.next_dollar.what_if.grid import WhatIfGrid, WhatIfPoint, what_if

__all__ = ["WhatIfAxis", "WhatIfGrid", "WhatIfPoint", "axes_for", "axis_names", "what_if"]
