"""Wishes of this broker's partitions to change their in-sync replicas, sent to the controller: one request at a time."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from odradek.broker.partition.partition import Partition
from odradek.cluster.controller.messages.partitions import AlteredPartition, PartitionIsr
from odradek.cluster.replication.leader import IsrWish, Settled
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.tasks import Spawn

PAUSE_FIRST_MS: Final = 20
PAUSE_MAX_MS: Final = 1_000
"""Between requests that came to nothing; the pause doubles from the first to the longest."""
LOG: Final = structlog.get_logger(__name__)


class IsrController(Protocol):
    """The way to the active controller (`odradek.broker.quorum.controller_client`)."""

    async def alter_partition(
        self, broker_id: int, broker_epoch: int, partitions: Sequence[PartitionIsr]
    ) -> tuple[AlteredPartition, ...]: ...


class IsrChanges:
    """Collects wishes while a request is under way; the next request carries all of them."""

    def __init__(self, node_id: int, broker_epoch: Callable[[], int], controller: IsrController, spawn: Spawn) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._spawn = spawn
        self._wishes: dict[Partition, IsrWish] = {}
        self._running = False

    def send(self, partition: Partition, wish: IsrWish) -> None:
        """The answer comes through `partition.complete_isr_change`, unless the wish is void by then."""
        self._wishes[partition] = wish
        if not self._running:
            self._running = True
            self._spawn(self._run(), "change in-sync replicas")

    async def _run(self) -> None:
        failures = 0
        try:
            while self._wishes:
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
        wishes, self._wishes = self._wishes, {}
        sent: list[tuple[Partition, IsrWish]] = []
        asked: list[PartitionIsr] = []
        epoch = self._broker_epoch()
        for partition, wish in wishes.items():
            term = partition.leader_term
            if term is None or term.replicas.wish is not wish:
                continue
            members = term.replicas.wanted_epochs(wish, epoch)
            sent.append((partition, wish))
            asked.append(
                PartitionIsr(partition.topic_id, partition.index, wish.leader_epoch, wish.partition_epoch, members)
            )
        if not sent:
            return True
        try:
            answers = await self._controller.alter_partition(self._node_id, epoch, asked)
        except Refusal as refusal:
            LOG.info("in-sync replicas could not be changed yet", partitions=len(sent), reason=refusal.error.name)
            for partition, wish in sent:
                self._wishes.setdefault(partition, wish)
            return False
        again = 0
        for each, answer in zip(sent, answers, strict=True):
            again += not self._settle(*each, answer)
        return not again

    def _settle(self, partition: Partition, wish: IsrWish, answer: AlteredPartition) -> bool:
        settled = partition.complete_isr_change(
            wish, ErrorCode(answer.error), answer.leader_epoch, answer.partition_epoch, answer.isr
        )
        if settled is Settled.GRANTED:
            LOG.info("in-sync replicas", topic=partition.topic, partition=partition.index, isr=list(answer.isr))
        elif answer.error is not ErrorCode.NONE:
            LOG.info(
                "a change of the in-sync replicas was refused",
                topic=partition.topic,
                partition=partition.index,
                wanted=list(wish.isr),
                error=answer.error.name,
            )
        if settled is Settled.AGAIN:
            self._wishes.setdefault(partition, wish)
        return settled is not Settled.AGAIN
