"""
Capture: what a training script would do on a cluster, found by running it without one.

`processes` runs the script, once per role of rank; `worker` is such a run, with `stand_ins` for
GPUs and other ranks and `mode` looking on; `assemble` makes one graph of what they write.
"""

from commsim.traces.capture.processes import capture

__all__ = ["capture"]
