"""Invariants of partitions on a broker: role, leader epoch, ISR, watermarks."""

from __future__ import annotations

from typing import Final

from odradek.invariants.invariant import Cost, Invariant, LogInvariant

PARTITION_LEADER_TERM: Final = Invariant(
    "partition-leader-term",
    "Partition",
    "A partition has a leader term if and only if its role is LEADER.",
    "Kafka's Partition.makeLeader",
)
PARTITION_REPLICATES: Final = Invariant(
    "partition-replicates",
    "Partition",
    "Only a follower appends records of another leader.",
    "Kafka's Partition.appendRecordsToFollowerOrFutureReplica",
)
PARTITION_LEADER_EPOCH: Final = LogInvariant(
    "partition-leader-epoch",
    "Partition",
    "The epoch of a new leader term is not below the earlier leader epochs of the partition and of its log.",
    "KIP-101, KIP-320",
)
ISR_WITHIN_REPLICAS: Final = Invariant(
    "isr-within-replicas",
    "LeaderReplicas",
    "The ISR that a leader requests has the leader in it, and only replicas of the partition.",
    "KIP-497, KIP-841",
)
ONE_PENDING_ISR_CHANGE: Final = Invariant(
    "one-pending-isr-change",
    "LeaderReplicas",
    "A leader term has at most one pending ISR change.",
    "KIP-497",
)
HIGH_WATERMARK_REPLICATED: Final = Invariant(
    "high-watermark-replicated",
    "LeaderTerm",
    "The high watermark advances only to offsets that each replica of the maximal ISR has, the leader included.",
    "KIP-497 (maximal ISR), KIP-966",
    Cost.EXPENSIVE,
)
ACKNOWLEDGED_OFFSET: Final = Invariant(
    "acknowledged-offset",
    "Watermarks",
    "The acknowledged offset is at most the log end offset.",
    "Kafka's Partition.appendRecordsToLeader",
)
