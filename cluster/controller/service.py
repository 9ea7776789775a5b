"""The controller of this node: follows the leadership of the metadata log and answers `ControllerPort` while it is here."""

from __future__ import annotations

from asyncio import Event, Future, TimerHandle, get_running_loop
from typing import TYPE_CHECKING, Any, Final

import structlog

from odradek.cluster.controller import commands
from odradek.cluster.controller.core import Controller
from odradek.cluster.controller.election import Election
from odradek.cluster.controller.state import ControllerState, Notice
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.engine import Engine, LoadCancelled
from odradek.runtime.shard import EngineState, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from odradek.cluster.controller.port import (
        AlteredPartition,
        BrokerHeartbeat,
        BrokerRegistration,
        ConfigChange,
        ConfigResult,
        ControllerRegistration,
        CreatedTopic,
        FeatureResult,
        FeatureUpdate,
        HeartbeatReply,
        NewPartitions,
        NewReplicas,
        NewTopic,
        OngoingReassignment,
        PartitionIsr,
        PartitionResult,
        ProducerIdBlock,
        QuotaChange,
        QuotaResult,
        TopicConfigs,
        TopicName,
        TopicResult,
    )
    from odradek.cluster.controller.state import ControllerConfig
    from odradek.cluster.metadata.image import MetadataImage
    from odradek.cluster.raft.driver import RaftDriver
    from odradek.cluster.raft.messages import Leadership
    from odradek.cluster.randomness import Randomness
    from odradek.runtime.clock import Clock
    from odradek.runtime.shard import Effect, FailureHandler
    from odradek.runtime.tasks import Tasks

TIMEOUT_MS_DEFAULT: Final = 30_000
"""`request.timeout.ms`, for calls that bring no limit of their own."""
SESSION_CHECKS_PER_TIMEOUT: Final = 4
_logger = structlog.get_logger("cluster.controller")


class ControllerService:
    """One per node that votes on the metadata log. All calls belong on the event loop.

    Its answers come after the records they stand on are committed *and* published on this node.
    """

    def __init__(
        self,
        driver: RaftDriver,
        *,
        config: ControllerConfig,
        configs: TopicConfigs,
        rng: Randomness,
        clock: Clock,
        tasks: Tasks,
        on_failure: FailureHandler,
        bootstrap_levels: Mapping[str, int],
    ) -> None:
        """Make it before `driver.start()`. `bootstrap_levels`: feature levels of a new cluster that differ from the default."""
        self._driver = driver
        self._config = config
        self._configs = configs
        self._rng = rng
        self._clock = clock
        self._tasks = tasks
        self._on_failure = on_failure
        self._bootstrap_levels = dict(bootstrap_levels)
        self._engine: Engine[Any, Any] | None = None
        self._controller: Controller | None = None
        self._active = Event()
        self._on_active: list[Callable[[], None]] = []
        self._timer: TimerHandle | None = None
        self._next_check_ms = 0
        driver.on_leadership(self._on_leadership)

    # ---- life -------------------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Is the active controller here, ready to decide?"""
        return self._active.is_set()

    async def wait_active(self) -> None:
        """Until this node leads, has loaded the log and has seen its first records committed."""
        await self._active.wait()

    def on_active(self, callback: Callable[[], None]) -> None:
        """Call `callback` each time this node has become the active controller. It must not raise."""
        self._on_active.append(callback)

    @property
    def image(self) -> MetadataImage | None:
        """What the active controller decides on, uncommitted records included; None when it is not here."""
        return self._controller.state.image if self._controller is not None and self.is_active else None

    def stop(self) -> None:
        """Answer nothing any more. Idempotent."""
        self._unload()

    def _on_leadership(self, leadership: Leadership) -> None:
        self._unload()
        if leadership.is_leader:
            self._tasks.spawn(self._load(leadership.epoch), f"controller-{self._config.node_id}")

    def _unload(self) -> None:
        self._active.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        engine, self._engine, self._controller = self._engine, None, None
        if engine is not None:
            engine.unload()

    async def _load(self, epoch: int) -> None:
        driver = self._driver
        state = ControllerState(self._config, self._configs, self._rng, lambda: driver.log_end_offset)
        self._controller = Controller(state)
        engine: Engine[Any, Any] = Engine(
            self._controller,
            driver,
            clock=self._clock,
            on_effect=_tell,
            on_failure=self._on_failure,
            name=f"controller-{self._config.node_id}",
            unavailable=Unavailable(ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER),
        )
        self._engine = engine
        try:
            await engine.load(epoch)
            bootstrap = commands.Bootstrap(self._bootstrap_levels, self._clock.monotonic_ms())
            await engine.submit(bootstrap, timeout_ms=TIMEOUT_MS_DEFAULT, wait_ms=TIMEOUT_MS_DEFAULT)
        except LoadCancelled:
            return
        except Refusal as refusal:
            if refusal.error is not ErrorCode.NOT_CONTROLLER:
                self._on_failure(engine.name, refusal)
            return
        except Exception as error:  # noqa: BLE001  an unreadable log, or one of a later version: the node has to stop
            self._on_failure(engine.name, error)
            return
        if engine.state is EngineState.ACTIVE and self._engine is engine:
            self._active.set()
            _logger.info("this node is the active controller", epoch=epoch)
            self._watch_sessions()
            for callback in tuple(self._on_active):
                callback()

    @property
    def _check_interval_ms(self) -> int:
        return self._config.session_timeout_ms // SESSION_CHECKS_PER_TIMEOUT

    def _watch_sessions(self) -> None:
        self._next_check_ms = self._clock.monotonic_ms() + self._check_interval_ms
        self._timer = get_running_loop().call_later(self._check_interval_ms / 1_000, self._expire_sessions)

    def _expire_sessions(self) -> None:
        if self._engine is None:
            return
        now_ms = self._clock.monotonic_ms()
        # A controller that was itself stopped for a while has unread heartbeats before it: those come first.
        if now_ms - self._next_check_ms < self._check_interval_ms:
            self._engine.tell(commands.ExpireSessions(now_ms))
        self._watch_sessions()

    def _submit(self, command: commands.Command, timeout_ms: int | None = None) -> Future[Any]:
        engine = self._engine
        if engine is None or not self.is_active:
            future: Future[Any] = get_running_loop().create_future()
            future.set_exception(Refusal(ErrorCode.NOT_CONTROLLER))
            return future
        return engine.submit(command, timeout_ms=TIMEOUT_MS_DEFAULT if timeout_ms is None else timeout_ms)

    # ---- ControllerPort ---------------------------------------------------------------------------------------------

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> Awaitable[tuple[CreatedTopic, ...]]:
        return self._submit(commands.CreateTopics(tuple(topics), validate_only), timeout_ms)

    def create_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> Awaitable[tuple[TopicResult, ...]]:
        return self._submit(commands.CreatePartitions(tuple(topics), validate_only), timeout_ms)

    def delete_topics(
        self, topics: Sequence[TopicName], *, timeout_ms: int | None = None
    ) -> Awaitable[tuple[TopicResult, ...]]:
        return self._submit(commands.DeleteTopics(tuple(topics)), timeout_ms)

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> Awaitable[ProducerIdBlock]:
        return self._submit(commands.AllocateProducerIds(broker_id, broker_epoch))

    def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> Awaitable[tuple[FeatureResult, ...]]:
        return self._submit(commands.UpdateFeatures(tuple(updates), validate_only), timeout_ms)

    def register_broker(self, registration: BrokerRegistration) -> Awaitable[int]:
        return self._submit(commands.RegisterBroker(registration, self._clock.monotonic_ms()))

    def heartbeat(self, heartbeat: BrokerHeartbeat) -> Awaitable[HeartbeatReply]:
        return self._submit(commands.Heartbeat(heartbeat, self._clock.monotonic_ms()))

    def alter_partition(
        self, broker_id: int, broker_epoch: int, partitions: Sequence[PartitionIsr]
    ) -> Awaitable[tuple[AlteredPartition, ...]]:
        return self._submit(commands.AlterPartition(broker_id, broker_epoch, tuple(partitions)))

    def alter_reassignments(
        self, partitions: Sequence[NewReplicas], *, allow_resize: bool = True, timeout_ms: int | None = None
    ) -> Awaitable[tuple[PartitionResult, ...]]:
        return self._submit(commands.AlterReassignments(tuple(partitions), allow_resize), timeout_ms)

    def list_reassignments(
        self, partitions: Sequence[tuple[str, int]] | None, *, timeout_ms: int | None = None
    ) -> Awaitable[tuple[OngoingReassignment, ...]]:
        return self._submit(commands.ListReassignments(None if partitions is None else tuple(partitions)), timeout_ms)

    def elect_leaders(
        self, partitions: Sequence[tuple[str, int]] | None, *, unclean: bool = False, timeout_ms: int | None = None
    ) -> Awaitable[tuple[PartitionResult, ...]]:
        asked = None if partitions is None else tuple(partitions)
        election = Election.UNCLEAN if unclean else Election.PREFERRED
        return self._submit(commands.ElectLeaders(asked, election), timeout_ms)

    def alter_configs(
        self, resources: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Awaitable[tuple[ConfigResult, ...]]:
        return self._submit(commands.AlterConfigs(tuple(resources), validate_only))

    def alter_client_quotas(
        self, entities: Sequence[QuotaChange], *, validate_only: bool = False
    ) -> Awaitable[tuple[QuotaResult, ...]]:
        return self._submit(commands.AlterClientQuotas(tuple(entities), validate_only))

    def unregister_broker(self, broker_id: int) -> Awaitable[None]:
        return self._submit(commands.UnregisterBroker(broker_id))

    def register_controller(self, registration: ControllerRegistration) -> Awaitable[None]:
        return self._submit(commands.RegisterController(registration))

    # ---- orders of this node ----------------------------------------------------------------------------------------

    def fence_broker(self, broker_id: int, broker_epoch: int | None = None) -> Awaitable[None]:
        """Take the broker's leaderships away: leader -1 where nobody else is in sync. Its session is over with that.

        A verdict names the incarnation that it is about: STALE_BROKER_EPOCH when there is another one by now.
        """
        return self._submit(commands.FenceBroker(broker_id, broker_epoch))

    def unfence_broker(self, broker_id: int) -> Awaitable[None]:
        """Let the broker lead again, each partition in a new leader epoch."""
        return self._submit(commands.UnfenceBroker(broker_id))


def _tell(effect: Effect) -> None:
    assert isinstance(effect, Notice), effect
    _logger.warning(effect.event, **dict(effect.fields))
