"""The partitions of `__transaction_state` that this broker leads become shards of its transaction coordinator."""

from collections.abc import Callable, Coroutine
from typing import Any

from broker.partition import Partition
from broker.partition_log_port import PartitionLogPort
from coordinator.txn.service import TransactionCoordinator

Spawn = Callable[[Coroutine[Any, Any, Any], str], object]


class TransactionShards:
    """Listens to elections of `__transaction_state` (see `broker.partitions.LeadershipListener`)."""

    def __init__(self, coordinator: TransactionCoordinator, spawn: Spawn, *, load_bytes: int) -> None:
        """`load_bytes` is `transaction.state.log.load.buffer.size`."""
        self._coordinator = coordinator
        self._spawn = spawn
        self._load_bytes = load_bytes

    def elected(self, partition: Partition) -> None:
        log = PartitionLogPort(partition, read_bytes=self._load_bytes)
        loading = self._coordinator.on_leadership(partition.index, partition.leader_epoch, log)
        self._spawn(loading, f"load {partition.topic}-{partition.index}")

    def resigned(self, partition: Partition) -> None:
        # None, where the partition is not just led elsewhere: its replica is gone, whatever the epoch.
        self._coordinator.on_resignation(partition.index, partition.leader_epoch if partition.online else None)
