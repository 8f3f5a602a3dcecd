"""
Gloo: rings, trees and pairs over TCP sockets, host memory and CPU threads.
"""

from commsim.libraries.gloo.awaited import awaited_members
from commsim.libraries.gloo.library import ALGORITHMS, Gloo

__all__ = ["ALGORITHMS", "Gloo", "awaited_members"]
