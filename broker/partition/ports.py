"""Ports of the partition registry: the coordinators, and replication between brokers."""

from typing import Protocol

from odradek.broker.partition.partition import Cluster, Partition


class LeadershipListener(Protocol):
    """Receive the elections and resignations of the partitions of one topic. The coordinators implement it."""

    def elected(self, partition: Partition) -> None:
        """Begin a leader epoch of `partition` on this broker."""

    def resigned(self, partition: Partition) -> None:
        """End the leader epoch of `partition` on this broker.

        The registry may call this while the listener appends to the partition.
        """


class Replication(Cluster, Protocol):
    """Replication between brokers, as the registry uses it. `odradek.broker.replication.manager` implements it."""

    def elected(self, partition: Partition) -> None:
        """Note that a leader epoch of `partition` began on this broker: parked fetches of followers may wait for it."""

    def follow(self, partition: Partition, leader: int) -> None:
        """Fetch `partition` from broker `leader` in the partition's leader epoch; -1 means that it has no leader.

        Idempotent.
        """

    def stop_following(self, partition: Partition) -> None:
        """Stop the fetches of `partition`. After the return, no fetch appends to its log or truncates it."""
