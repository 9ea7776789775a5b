"""Wishes of this broker's partitions to change their in-sync replicas, sent to the controller: one request at a time."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from odradek.broker.partition.partition import Partition
from odradek.broker.quorum.controller_client import ControllerClient
from odradek.cluster.controller.messages.partitions import AlteredPartition, PartitionIsr
from odradek.cluster.replication.leader import IsrChangeResult, PendingIsrChange
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.tasks import Spawn

PAUSE_FIRST_MS: Final = 20
PAUSE_MAX_MS: Final = 1_000
"""Between requests that came to nothing; the pause doubles from the first to the longest."""
LOG: Final = structlog.get_logger(__name__)


class IsrChanges:
    """Collects pending ISR changes while a request is under way; the next request carries all of them."""

    def __init__(
        self, node_id: int, broker_epoch: Callable[[], int], controller: ControllerClient, spawn: Spawn
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._spawn = spawn
        self._pending: dict[Partition, PendingIsrChange] = {}
        self._running = False

    def send(self, partition: Partition, change: PendingIsrChange) -> None:
        """The answer comes through `partition.complete_isr_change`, unless the change is void by then."""
        self._pending[partition] = change
        if not self._running:
            self._running = True
            self._spawn(self._run(), "change in-sync replicas")

    async def _run(self) -> None:
        failures = 0
        try:
            while self._pending:
                if await self._send_all():
                    failures = 0
                    continue
                pause_ms = min(PAUSE_FIRST_MS << min(failures, 10), PAUSE_MAX_MS)
                failures += 1
                await asyncio.sleep(pause_ms / 1_000)
        finally:
            self._running = False

    async def _send_all(self) -> bool:
        """False where some have to be sent again."""
        pending, self._pending = self._pending, {}
        sent: list[tuple[Partition, PendingIsrChange]] = []
        asked: list[PartitionIsr] = []
        epoch = self._broker_epoch()
        for partition, change in pending.items():
            term = partition.leader_term
            if term is None or term.replicas.pending_change is not change:
                continue
            members = term.replicas.isr_with_epochs(change, epoch)
            sent.append((partition, change))
            asked.append(
                PartitionIsr(partition.topic_id, partition.index, change.leader_epoch, change.partition_epoch, members)
            )
        if not sent:
            return True
        try:
            answers = await self._controller.alter_partition(self._node_id, epoch, asked)
        except Refusal as refusal:
            LOG.info("in-sync replicas could not be changed yet", partitions=len(sent), reason=refusal.error.name)
            for partition, change in sent:
                self._pending.setdefault(partition, change)
            return False
        again = 0
        for each, answer in zip(sent, answers, strict=True):
            again += not self._settle(*each, answer)
        return not again

    def _settle(self, partition: Partition, change: PendingIsrChange, answer: AlteredPartition) -> bool:
        settled = partition.complete_isr_change(
            change, ErrorCode(answer.error), answer.leader_epoch, answer.partition_epoch, answer.isr
        )
        if settled is IsrChangeResult.COMMITTED:
            LOG.info("in-sync replicas", topic=partition.topic, partition=partition.index, isr=list(answer.isr))
        elif answer.error is not ErrorCode.NONE:
            LOG.info(
                "a change of the in-sync replicas was refused",
                topic=partition.topic,
                partition=partition.index,
                wanted=list(change.isr),
                error=answer.error.name,
            )
        if settled is IsrChangeResult.RETRY:
            self._pending.setdefault(partition, change)
        return settled is not IsrChangeResult.RETRY
