"""The registration of this broker with the controller.

The registration carries the previous broker epoch if the previous run cannot have lost records: it stopped cleanly, or
only its process failed (see `odradek.broker.quorum.boot_marker`). The controller then does not treat the shutdown as
unclean (KIP-966), so the broker's replicas stay eligible as leaders.
"""

from asyncio import timeout
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID

import structlog

from odradek.broker.config.addresses import Voter
from odradek.broker.config.controller import lifecycle_config
from odradek.broker.contexts import NodeContext
from odradek.broker.process.env import Env
from odradek.broker.quorum.boot_marker import BootMarker
from odradek.broker.quorum.registration import controller_registration
from odradek.broker.quorum.voters import missing_controllers, without_quorum
from odradek.broker.replication.log_start_check import LogStartChecks
from odradek.broker.requests.listener import CLIENT, Listener
from odradek.broker.server.quorum_server import QuorumServer
from odradek.cluster.controller.messages.brokers import BrokerRegistration
from odradek.cluster.controller.settings.features import SUPPORTED_FEATURES
from odradek.cluster.lifecycle.driver import BrokerLifecycle
from odradek.runtime.shard import FailureHandler
from odradek.runtime.tasks import Tasks
from odradek.storage.data_directory.log_manager import LogManager

CONTROLLED_SHUTDOWN_S: Final = 5.0
"""Maximum seconds that a controlled shutdown waits for the controller to move leaders to other brokers."""
_logger = structlog.get_logger(__name__)


class Registration:
    """Register this broker, send its heartbeats, and leave the cluster in a controlled shutdown."""

    def __init__(
        self,
        node: NodeContext,
        env: Env,
        logs: LogManager,
        quorum: QuorumServer,
        *,
        incarnation_id: UUID,
        voters: Sequence[Voter],
        listeners: Sequence[Listener],
        tasks: Tasks,
        on_failure: FailureHandler,
    ) -> None:
        config = node.config
        self._node = node
        self._logs = logs
        self._log_dirs = config.log_dirs
        self._on_failure = on_failure
        self._boot_marker = BootMarker(env.disk, config.log_dirs, env.boot_id)
        clean_epoch = logs.directory.previous_broker_epoch  # below 0 unless the previous run stopped cleanly
        previous = clean_epoch if clean_epoch >= 0 else self._boot_marker.previous_broker_epoch()
        self._trusted = previous >= 0
        registration = BrokerRegistration(
            config.node_id,
            logs.directory.cluster_id,
            incarnation_id,
            tuple(listener.advertised for listener in listeners if CLIENT in listener.roles),
            SUPPORTED_FEATURES,
            (logs.directory.directory_id,),
            rack=config.broker_rack,
            previous_broker_epoch=previous,
        )
        self.lifecycle = BrokerLifecycle(
            registration,
            quorum.controller_client,
            node.metadata,
            tasks,
            on_failure=on_failure,
            config=lifecycle_config(config),
            own_controller=controller_registration(config.node_id, incarnation_id, voters, listeners),
            missing=lambda: missing_controllers(config.node_id, voters, quorum.peers, env.clock),
            without_quorum=lambda: without_quorum(voters, quorum.peers, env.clock),
            on_registered=self._registered,
        )
        self.log_start_checks = LogStartChecks(self._record_epoch, lambda error: on_failure(self._log_dirs, error))

    @property
    def broker_epoch(self) -> int:
        """Return the broker epoch of the registration; -1 before it."""
        return self.lifecycle.broker_epoch

    @property
    def vouches(self) -> bool:
        """True if the logs are known to contain all records that a run with this broker epoch must have."""
        return self._trusted or self._boot_marker.recorded

    async def register(self) -> None:
        """Return when the metadata of this broker has it registered and unfenced.

        Raise OSError if the boot marker cannot be written.
        """
        self.lifecycle.start()
        await self.lifecycle.wait_unfenced()
        self.log_start_checks.begin(self._logs, self._node.metadata.image, self._node.node_id, trusted=self._trusted)

    def disk_failed(self, what: str, others_can_serve: bool) -> None:
        """Report that the disk failed to write `what`; that partition stays offline until the next start.

        If `others_can_serve`, this broker requests to be fenced, so that other brokers lead all its partitions.
        """
        with suppress(OSError):
            self._boot_marker.remove()
        if others_can_serve:
            why = f"the disk of {self._log_dirs} has refused {what}"
            self.lifecycle.want_fence(f"{why}; free space or replace the disk, then restart this node")

    async def leave(self) -> None:
        """Shut down in a controlled way: the controller first moves all leaders to other brokers."""
        try:
            async with timeout(CONTROLLED_SHUTDOWN_S):
                await self.lifecycle.stop()
        except TimeoutError:
            _logger.warning("controlled shutdown timed out")

    def _registered(self, epoch: int) -> None:
        """Record the broker epoch before the broker acknowledges records under it.

        `log_start_checks` records it instead if the logs may lack records and are not checked yet.
        """
        if self.vouches:
            try:
                self._boot_marker.record(epoch)
            except OSError as error:
                self._on_failure(self._log_dirs, error)

    def _record_epoch(self) -> None:
        self._boot_marker.record(self.broker_epoch)
