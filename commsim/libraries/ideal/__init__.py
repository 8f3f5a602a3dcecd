"""
The textbook library: alpha-beta costs of a named algorithm on the cluster's own links.

In: an op and a cluster. Out: its plan. `library` chooses the algorithm and lays it out, `pieces`
finds in how many pieces a pipelined one sends its buffer, `exchange` plans all-to-alls, `rings`
long rings in closed form.
"""

from commsim.libraries.ideal.library import Ideal

__all__ = ["Ideal"]
