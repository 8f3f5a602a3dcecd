"""
NCCL as a library of the engine: each op becomes a plan on the links of its channels.

In: requests of the engine. Out: plans (`library`, one `group` per communicator) with the bytes that
its rings and trees put on each link (`edges`, all-to-all in `exchange`), the messages of
`network: steps` (`messages`), and algorithms from MSCCL files (`custom`).
"""

from commsim.libraries.nccl.plans.library import Nccl

__all__ = ["Nccl"]
