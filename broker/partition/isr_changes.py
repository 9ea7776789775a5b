"""Send the pending ISR changes of this broker's partitions to the controller (AlterPartition, KIP-497).

At most one request is in flight, as in Kafka's AlterPartitionManager. Changes that arrive while it is in flight
go into the next request. A request has at most CHANGES_PER_REQUEST_MAX changes: after the failure or return of a
broker, one request with thousands of changes would hold the event loops of this broker and of the active controller.
"""

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Final

import structlog

from odradek.broker.partition.partition import Partition
from odradek.broker.quorum.controller_client import ControllerClient
from odradek.cluster.controller.messages.partitions import AlteredPartition, PartitionIsr
from odradek.cluster.replication.leader import IsrChangeResult, PendingIsrChange
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.repeated_tasks import report
from odradek.runtime.tasks import Spawn

CHANGES_PER_REQUEST_MAX: Final = 100
"""Maximum ISR changes per AlterPartition request. They take about 5 ms at the active controller, and 2 ms here."""
CHANGES_LOGGED_MAX: Final = 20
"""Maximum partitions that one log line names. The line has the number of all partitions."""
RETRY_PAUSE_MS_MIN: Final = 20
"""Pause after the first failed AlterPartition request, in milliseconds. Each further failure doubles it."""
RETRY_PAUSE_MS_MAX: Final = 1_000
"""Maximum pause between failed AlterPartition requests, in milliseconds: an ISR changes soon after a controller
returns."""
_logger = structlog.get_logger(__name__)


class IsrChanges:
    """Pending ISR changes of all partitions that this broker leads, at most one per partition."""

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
        """Send `change` with the next request, in place of an unsent change of the same partition.

        The response arrives through `partition.complete_isr_change`, unless the leader term ended or replaced the
        change.
        """
        self._pending[partition] = change
        if not self._running:
            self._running = True
            self._spawn(self._run(), "send pending ISR changes")

    async def _run(self) -> None:
        failures = 0
        try:
            while self._pending:
                if await self._send_next():
                    failures = 0
                    if self._pending:
                        await asyncio.sleep(0)  # the controller of this node may have responded without a turn
                    continue
                pause_ms = min(RETRY_PAUSE_MS_MIN << min(failures, 10), RETRY_PAUSE_MS_MAX)
                failures += 1
                await asyncio.sleep(pause_ms / 1_000)
        finally:
            self._running = False

    async def _send_next(self) -> bool:
        """Send one request with the oldest pending changes. Return False if it has achieved nothing.

        Changes that have to be sent again follow all changes that were not sent yet.
        """
        pending = list(islice(self._pending.items(), CHANGES_PER_REQUEST_MAX))
        sent: list[tuple[Partition, PendingIsrChange]] = []
        requested: list[PartitionIsr] = []
        epoch = self._broker_epoch()
        for partition, change in pending:
            del self._pending[partition]
            term = partition.leader_term
            if term is None or term.replicas.pending_change is not change:
                continue
            members = term.replicas.isr_with_epochs(change, epoch)
            sent.append((partition, change))
            requested.append(
                PartitionIsr(partition.topic_id, partition.index, change.leader_epoch, change.partition_epoch, members)
            )
        if not sent:
            return True
        try:
            results = await self._controller.alter_partition(self._node_id, epoch, requested)
        except Exception as error:  # noqa: BLE001  it is reported; a lost change would stop the ISR from changing
            if isinstance(error, Refusal):
                _logger.info("AlterPartition request failed", partitions=len(sent), reason=error.error.name)
            else:
                report(error, self._spawn, "send pending ISR changes")
            for partition, change in sent:
                self._pending.setdefault(partition, change)
            return False
        retries = 0
        changed: dict[str, list[int]] = {}
        refused: dict[ErrorCode, dict[str, list[int]]] = {}
        for (partition, change), result in zip(sent, results, strict=True):
            name = f"{partition.topic}-{partition.index}"
            outcome = self._complete(partition, change, result)
            retries += outcome is IsrChangeResult.RETRY
            if outcome is IsrChangeResult.COMMITTED:
                changed[name] = list(result.isr)
            elif result.error is not ErrorCode.NONE:
                refused.setdefault(result.error, {})[name] = list(change.isr)
        if changed:
            _logger.info("ISR changed", partitions=len(changed), isr=_first_of(changed))
        for reason, proposed in refused.items():
            shown = _first_of(proposed)
            _logger.info("ISR change refused", partitions=len(proposed), proposed_isr=shown, reason=reason.name)
        return retries < len(sent)

    def _complete(self, partition: Partition, change: PendingIsrChange, result: AlteredPartition) -> IsrChangeResult:
        """Apply the controller's result for one change, and return what became of it."""
        outcome = partition.complete_isr_change(
            change, ErrorCode(result.error), result.leader_epoch, result.partition_epoch, result.isr
        )
        if outcome is IsrChangeResult.RETRY:
            self._pending.setdefault(partition, change)
        return outcome


def _first_of(isrs: dict[str, list[int]]) -> str:
    """Return the first CHANGES_LOGGED_MAX partitions with their ISRs, for the log."""
    return ", ".join(f"{name}: {isr}" for name, isr in islice(isrs.items(), CHANGES_LOGGED_MAX))
