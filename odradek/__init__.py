"""Odradek: a Kafka-compatible broker cluster, its command line, `LocalCluster` and `simulated`.

`LocalCluster`, its errors and `simulated` are imported at first use. A broker process imports this package, too, and
does not need them.
"""

from typing import TYPE_CHECKING, Any

from odradek.version import __version__

if TYPE_CHECKING:
    from odradek.local.local_cluster import LocalCluster
    from odradek.local.processes import BrokerFailed, BrokerNotRunning
    from odradek.simulation.decorator import simulated

__all__ = ["BrokerFailed", "BrokerNotRunning", "LocalCluster", "__version__", "simulated"]


def __getattr__(name: str) -> Any:
    if name == "LocalCluster":
        from odradek.local.local_cluster import LocalCluster

        return LocalCluster
    if name in {"BrokerFailed", "BrokerNotRunning"}:
        from odradek.local import processes

        return getattr(processes, name)
    if name == "simulated":
        from odradek.simulation.decorator import simulated

        return simulated
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
