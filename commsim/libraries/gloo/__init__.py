"""
Gloo: rings, trees and pairs over TCP sockets, host memory and CPU threads.
"""

from commsim.libraries.gloo.library import ALGORITHMS, Gloo

__all__ = ["ALGORITHMS", "Gloo"]
