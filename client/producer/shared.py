"""A transaction whose records several processes write, while one process decides on its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from odradek.client.errors import check
from odradek.client.network.cluster import CoordinatorType
from odradek.client.network.connection import VERSION_MAX
from odradek.client.producer.producer import END_TXN_VERSION_MAX, TRANSACTION_TIMEOUT_MS, ProducerIdentity
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from odradek.client.admin.group_offsets import CommittedOffset
    from odradek.client.network.cluster import Cluster
    from odradek.client.network.metadata import TopicPartition
    from odradek.protocol.schema import Message

TXN_OFFSET_COMMIT_VERSION_MAX: Final = 4
"""Last version of TV1, as END_TXN_VERSION_MAX."""


class SharedTransaction:
    """The transactions of a transactional id, in which other processes write.

    `begin` returns the identity for them: `Producer(cluster, identity=...)`. Each begin raises the producer epoch, so
    that brokers refuse records of processes that still write with an earlier identity.

    Args:
        cluster: The cluster. It stays open.
        transactional_id: The transactional id.
        transaction_timeout_ms: Time after which the coordinator aborts an open transaction, in milliseconds.
        identity: The identity of the last transaction. With it, `begin` raises Fenced if a newer producer exists.
            Without it, `begin` fences other producers and aborts their open transaction.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        identity: ProducerIdentity | None = None,
    ) -> None:
        self.identity = identity
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms

    async def begin(self) -> ProducerIdentity:
        """Raise the producer epoch, and return the identity for the processes that write.

        Raises:
            Fenced: A newer producer has the transactional id, or the transaction exceeded its time-out.
            ClientError: The coordinator refused, or did not respond in time.
        """
        known = self.identity
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
            producer_id=-1 if known is None else known.producer_id,
            producer_epoch=-1 if known is None else known.epoch,
        )
        response = await self._request(request)
        check(response.error_code, f"transactional id {self._transactional_id} was not initialized")
        self.identity = ProducerIdentity(self._transactional_id, response.producer_id, response.producer_epoch)
        return self.identity

    async def send_offsets(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Add committed offsets of a group to the open transaction."""
        identity = self._known()
        added = await self._request(AddOffsetsToTxnRequest(*identity, group))
        check(added.error_code, f"group {group} was not added to the transaction")
        by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for key, committed in offsets.items():
            row = TxnOffsetCommitRequestPartition(
                key.partition, committed.offset, committed_metadata=committed.metadata
            )
            by_topic.setdefault(key.topic, []).append(row)
        request = TxnOffsetCommitRequest(
            transactional_id=identity.transactional_id,
            group_id=group,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in by_topic.items()],
        )
        response = await self._cluster.request_coordinator(
            CoordinatorType.GROUP, group, request, _first_error, version_max=TXN_OFFSET_COMMIT_VERSION_MAX
        )
        check(_first_error(response), f"offsets of group {group} were not added to the transaction")

    async def commit(self) -> None:
        """Commit the open transaction.

        Raises:
            Fenced: A newer producer has the transactional id, or the transaction exceeded its time-out.
            ClientError: The coordinator refused, or did not respond in time. Then the outcome is unknown.
        """
        response = await self._end(committed=True)
        check(response.error_code, "the transaction was not committed")

    async def abort(self) -> None:
        """Abort the transaction. It has no effect if no process added a partition to it."""
        response = await self._end(committed=False)
        if response.error_code != ErrorCode.INVALID_TXN_STATE:
            check(response.error_code, "the transaction was not aborted")

    async def _end(self, *, committed: bool) -> Any:
        request = EndTxnRequest(*self._known(), committed=committed)
        return await self._request(request, version_max=END_TXN_VERSION_MAX)

    def _known(self) -> ProducerIdentity:
        assert self.identity is not None, "begin comes first"
        return self.identity

    async def _request(
        self,
        request: Message,
        error_of: Callable[[Any], int] = lambda response: int(response.error_code),
        version_max: int = VERSION_MAX,
    ) -> Any:
        return await self._cluster.request_coordinator(
            CoordinatorType.TRANSACTION, self._transactional_id, request, error_of, version_max=version_max
        )


def _first_error(response: Any) -> int:
    codes = (partition.error_code for topic in response.topics for partition in topic.partitions)
    return next((int(code) for code in codes if code != ErrorCode.NONE), ErrorCode.NONE)
