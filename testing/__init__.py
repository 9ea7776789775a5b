"""Tests of applications against real brokers: fixtures for pytest, and fault injection.

`odradek.testing.plugin` is the pytest plugin. The names of this package are imported at first use, because pytest
imports the plugin in each environment that has Odradek.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.testing.faults import Faults
    from odradek.testing.injected_rules import Hold, Observation, Rule
    from odradek.testing.kafka import Kafka
    from odradek.testing.kafka_cluster import KafkaCluster
    from odradek.testing.plan import FaultPlan
    from odradek.testing.rules import Action, Request
    from odradek.testing.spec import KafkaClusterFactory

__all__ = [
    "Action",
    "FaultPlan",
    "Faults",
    "Hold",
    "Kafka",
    "KafkaCluster",
    "KafkaClusterFactory",
    "Observation",
    "Request",
    "Rule",
]

_MODULES = {
    "Action": "rules",
    "FaultPlan": "plan",
    "Faults": "faults",
    "Hold": "injected_rules",
    "Kafka": "kafka",
    "KafkaCluster": "kafka_cluster",
    "KafkaClusterFactory": "spec",
    "Request": "rules",
    "Observation": "injected_rules",
    "Rule": "injected_rules",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
