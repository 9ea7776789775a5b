"""Odradek from the outside: the command line and ``LocalCluster``.

This package imports no server package. Brokers are processes (``python -P -m broker``), so a program that embeds a cluster
never meets import names such as ``storage`` or ``protocol``.
"""

from odradek.cluster import LocalCluster
from odradek.processes import BrokerDied, BrokerFailed

__all__ = ["BrokerDied", "BrokerFailed", "LocalCluster"]
