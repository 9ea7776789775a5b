"""Invariants of coordinators: transactions, classic groups."""

from __future__ import annotations

from typing import Final

from odradek.invariants.invariant import Cost, Invariant

# ---- transactions ---------------------------------------------------------------------------------------------------

TXN_IDENTITY: Final = Invariant(
    "txn-identity",
    "Transaction",
    "Producer id and epoch are unchanged, except that InitProducerId and Prepare raise the epoch by one, InitProducerId"
    " can begin at epoch 0, and Complete applies the next identity.",
    "KIP-98, KIP-360, KIP-890",
)
TXN_CLIENT_IDENTITY: Final = Invariant(
    "txn-client-identity",
    "Transaction",
    "The next identity follows that of the client: the next epoch, or epoch 0 of a new producer id if no epoch is left."
    " It appears or rises when InitProducerId keeps an ongoing transaction, when a kept transaction is prepared, and"
    " when an exhausted epoch ends. No other step changes it.",
    "KIP-890, KIP-939",
)
TXN_PARTITIONS: Final = Invariant(
    "txn-partitions",
    "Transaction",
    "An ongoing transaction loses no partition. Prepare keeps its partitions. An empty or complete transaction has"
    " none.",
    "KIP-98, Kafka's TransactionMetadata.completeTransitionTo",
)
TXN_TIMES: Final = Invariant(
    "txn-times",
    "Transaction",
    "An empty transaction has no start time. Any other state has one, and keeps it until the transaction is complete."
    " Only InitProducerId changes the time-out. For an ongoing transaction it can only remove it.",
    "KIP-98, Kafka's TransactionMetadata.completeTransitionTo",
)

# ---- classic groups -------------------------------------------------------------------------------------------------

CLASSIC_GROUP_STATE: Final = Invariant(
    "classic-group-state",
    "ClassicGroup",
    "A group enters a state only from one of its valid previous states.",
    "Kafka's ClassicGroupState.validPreviousStates",
)
CLASSIC_GROUP_MEMBERS: Final = Invariant(
    "classic-group-members",
    "ClassicGroup",
    "Member ids and instance ids are unique in a group. All members have the protocol type of the group.",
    "KIP-345, Kafka's ClassicGroup.add",
)
CLASSIC_GROUP_COUNTS: Final = Invariant(
    "classic-group-counts",
    "ClassicGroup",
    "The number of joined members equals the number of members with a waiting JoinGroup request.",
    "Kafka's ClassicGroup.numMembersAwaitingJoinResponse",
    Cost.EXPENSIVE,
)
