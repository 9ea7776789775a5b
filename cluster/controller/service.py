"""The controller of this node. It is active while this node leads the metadata log."""

from __future__ import annotations

from asyncio import Event, Future, TimerHandle, get_running_loop, sleep
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import structlog

from odradek.cluster.controller import commands
from odradek.cluster.controller.core import Controller
from odradek.cluster.controller.election import Election
from odradek.cluster.controller.log_after import LogAfter
from odradek.cluster.controller.settings.tokens import find_token
from odradek.cluster.controller.slices import Merged, Slice, slices_of
from odradek.cluster.controller.state import ControllerState, Notice
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.engine import Engine, LoadCancelled
from odradek.runtime.shard import EngineLimits, EngineState, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from uuid import UUID

    from odradek.cluster.controller.messages.brokers import (
        BrokerHeartbeat,
        BrokerRegistration,
        ControllerRegistration,
        HeartbeatReply,
        ProducerIdBlock,
    )
    from odradek.cluster.controller.messages.partitions import (
        AlteredPartition,
        NewReplicas,
        OngoingReassignment,
        PartitionIsr,
        PartitionResult,
    )
    from odradek.cluster.controller.messages.settings import (
        AclResult,
        ConfigChange,
        ConfigResult,
        FeatureResult,
        FeatureUpdate,
        NewAcl,
        QuotaChange,
        QuotaResult,
        ScramChange,
        ScramResult,
    )
    from odradek.cluster.controller.messages.tokens import CreatedToken, NewToken
    from odradek.cluster.controller.messages.topics import CreatedTopic, NewPartitions, NewTopic, TopicName, TopicResult
    from odradek.cluster.controller.ports import TopicConfigs
    from odradek.cluster.controller.state import ControllerConfig
    from odradek.cluster.metadata.image import MetadataImage, ScramKey
    from odradek.cluster.metadata.tokens import DelegationToken
    from odradek.cluster.raft.driver import RaftDriver
    from odradek.cluster.raft.messages import Leadership
    from odradek.cluster.randomness import Randomness
    from odradek.protocol.acls import Acl
    from odradek.protocol.sasl.scram import Credential
    from odradek.runtime.clock import Clock
    from odradek.runtime.shard import Effect, FailureHandler
    from odradek.runtime.tasks import Tasks

TIMEOUT_MS_DEFAULT: Final = 30_000
"""`request.timeout.ms`, for calls that bring no limit of their own."""
SESSION_CHECKS_PER_TIMEOUT: Final = 4
_logger = structlog.get_logger(__name__)


class ControllerService:
    """The controller of one node that votes on the metadata log. All calls belong on the event loop.

    A request completes after its records are committed *and* published on this node. `timeout_ms` bounds the wait for
    the commit. Every request may raise Refusal: NOT_CONTROLLER while this controller is not active, REQUEST_TIMED_OUT,
    and the errors that its own docstring names. An error of one item is in its result.
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
        on_bug: FailureHandler,
        bootstrap_levels: Mapping[str, int],
        bootstrap_scram: Mapping[ScramKey, Credential] = MappingProxyType({}),
        published: Callable[[], MetadataImage],
    ) -> None:
        """Make it before `driver.start()`.

        `on_failure` is called if this node cannot continue. `on_bug` is called for an unexpected exception in the
        decision of a command. That command fails alone, because the next active controller would raise the exception,
        too. `bootstrap_levels`: feature levels of a new cluster that differ from the default, `bootstrap_scram`: its
        first SCRAM credentials. `published` returns the
        image of the records that are committed and delivered on this node.
        """
        self._driver = driver
        self._config = config
        self._configs = configs
        self._rng = rng
        self._clock = clock
        self._tasks = tasks
        self._on_failure = on_failure
        self._on_bug = on_bug
        self._bootstrap_levels = dict(bootstrap_levels)
        self._bootstrap_scram = bootstrap_scram
        self._published = published
        self._engine: Engine[Any, Any] | None = None
        self._controller: Controller | None = None
        self._active = Event()
        self._on_active: list[Callable[[], None]] = []
        self._timer: TimerHandle | None = None
        self._next_check_ms = 0
        driver.on_leadership(self._on_leadership)

    # ---- start and stop ---------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """True if this is the active controller, with a loaded log."""
        return self._active.is_set()

    async def wait_active(self) -> None:
        """Wait until this node leads the metadata log, has loaded it and has committed its first records."""
        await self._active.wait()

    def on_active(self, callback: Callable[[], None]) -> None:
        """Call `callback` each time this node has become the active controller. It must not raise."""
        self._on_active.append(callback)

    @property
    def image(self) -> MetadataImage | None:
        """The image that the active controller decides on, with uncommitted records. None: it is not active."""
        return self._controller.state.image if self._controller is not None and self.is_active else None

    def stop(self) -> None:
        """Refuse all requests from now on. Idempotent."""
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
        image = self._published()
        if image.offset + 1 >= driver.snapshot_end_offset:  # otherwise the snapshot is not delivered yet
            state.start_from(image)
        self._controller = Controller(state)
        engine: Engine[Any, Any] = Engine(
            self._controller,
            LogAfter(driver, state.image.offset),
            clock=self._clock,
            on_effect=_log_notice,
            on_failure=self._on_failure,
            on_bug=self._on_bug,
            name=f"controller-{self._config.node_id}",
            unavailable=Unavailable(ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER),
            limits=EngineLimits(wait_ms_max=TIMEOUT_MS_DEFAULT),
        )
        self._engine = engine
        try:
            await engine.load(epoch)
            bootstrap = commands.Bootstrap(self._bootstrap_levels, self._clock.monotonic_ms(), self._bootstrap_scram)
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
            _logger.info("controller activated", epoch=epoch)
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
            self._engine.post(commands.ExpireSessions(now_ms))
        self._watch_sessions()

    def _submit(self, command: commands.Command, timeout_ms: int | None = None) -> Future[Any]:
        engine = self._engine
        if engine is None or not self.is_active:
            return _failed(Refusal(ErrorCode.NOT_CONTROLLER))
        return engine.submit(command, timeout_ms=TIMEOUT_MS_DEFAULT if timeout_ms is None else timeout_ms)

    def _submit_in_slices(self, command: commands.Command, timeout_ms: int | None = None) -> Awaitable[Any]:
        """Submit a request that can name any number of items. Small requests are one command, without a task."""
        if self._controller is None or not self.is_active:
            return self._submit(command)
        try:
            slices = slices_of(self._controller.state, command)
        except Refusal as refusal:
            return _failed(refusal)
        if len(slices) == 1:
            return self._submit(slices[0].command, timeout_ms)
        return self._submit_all(slices, TIMEOUT_MS_DEFAULT if timeout_ms is None else timeout_ms)

    async def _submit_all(self, slices: Sequence[Slice], timeout_ms: int) -> tuple[Any, ...]:
        """Decide the slices one after the other, each after the commit of the one before it.

        The event loop runs other callbacks in between, also if a slice needs no commit. If one slice fails, the
        following ones are not decided; the former ones are not undone.
        """
        loop = get_running_loop()
        engine, deadline_s = self._engine, loop.time() + timeout_ms / 1_000
        merged = Merged()
        for part in slices:
            if self._engine is not engine:
                raise Refusal(ErrorCode.NOT_CONTROLLER)
            left_ms = max(0, int((deadline_s - loop.time()) * 1_000))
            merged.add(part, await self._submit(part.command, left_ms))
            await sleep(0)
        return merged.ordered()

    # ---- requests ---------------------------------------------------------------------------------------------------

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> Awaitable[tuple[CreatedTopic, ...]]:
        """Create topics, each one in one atomic batch. Return one result per name, in order of the request.

        A name that occurs twice gets one result, INVALID_REQUEST. Raise Refusal(POLICY_VIOLATION) if the call requests
        more than PARTITIONS_PER_CALL_MAX partitions or RECORDS_PER_REQUEST_MAX records.
        """
        return self._submit_in_slices(commands.CreateTopics(tuple(topics), validate_only), timeout_ms)

    def create_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> Awaitable[tuple[TopicResult, ...]]:
        """Return one result per name, in order of the request."""
        return self._submit_in_slices(commands.CreatePartitions(tuple(topics), validate_only), timeout_ms)

    def delete_topics(
        self, topics: Sequence[TopicName], *, timeout_ms: int | None = None
    ) -> Awaitable[tuple[TopicResult, ...]]:
        """Return one result per item, in order of the request, with name and id of each known topic."""
        return self._submit_in_slices(commands.DeleteTopics(tuple(topics)), timeout_ms)

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> Awaitable[ProducerIdBlock]:
        """Raise Refusal(BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH)."""
        return self._submit(commands.AllocateProducerIds(broker_id, broker_epoch))

    def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> Awaitable[tuple[FeatureResult, ...]]:
        """Update all features or none: one invalid update fails the other ones with INVALID_REQUEST, as in Kafka 4."""
        return self._submit(commands.UpdateFeatures(tuple(updates), validate_only), timeout_ms)

    def register_broker(self, registration: BrokerRegistration) -> Awaitable[int]:
        """Return the broker epoch.

        Raise Refusal(INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION, INVALID_REGISTRATION,
        UNSUPPORTED_VERSION).
        """
        return self._submit(commands.RegisterBroker(registration, self._clock.monotonic_ms()))

    def heartbeat(self, heartbeat: BrokerHeartbeat) -> Awaitable[HeartbeatReply]:
        """Raise Refusal(BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH)."""
        return self._submit(commands.Heartbeat(heartbeat, self._clock.monotonic_ms()))

    def alter_partition(
        self, broker_id: int, broker_epoch: int, partitions: Sequence[PartitionIsr]
    ) -> Awaitable[tuple[AlteredPartition, ...]]:
        """Return one result per item, in order. Raise Refusal(BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH)."""
        return self._submit(commands.AlterPartition(broker_id, broker_epoch, tuple(partitions)))

    def alter_reassignments(
        self, partitions: Sequence[NewReplicas], *, allow_resize: bool = True, timeout_ms: int | None = None
    ) -> Awaitable[tuple[PartitionResult, ...]]:
        """Return one result per item, in order. `allow_resize`: the number of replicas may change."""
        return self._submit_in_slices(commands.AlterReassignments(tuple(partitions), allow_resize), timeout_ms)

    def list_reassignments(
        self, partitions: Sequence[tuple[str, int]] | None, *, timeout_ms: int | None = None
    ) -> Awaitable[tuple[OngoingReassignment, ...]]:
        """Return the reassignments in progress among `partitions` (topic, index), which differ from each other.

        None: among all partitions.
        """
        return self._submit_in_slices(
            commands.ListReassignments(None if partitions is None else tuple(partitions)), timeout_ms
        )

    def elect_leaders(
        self, partitions: Sequence[tuple[str, int]] | None, *, unclean: bool = False, timeout_ms: int | None = None
    ) -> Awaitable[tuple[PartitionResult, ...]]:
        """Elect preferred leaders, or any replica as the leader of a partition without one (`unclean`).

        Return one result for each of `partitions`, which differ from each other. None: all partitions that need an
        election.
        """
        requested = None if partitions is None else tuple(partitions)
        election = Election.UNCLEAN if unclean else Election.PREFERRED
        return self._submit_in_slices(commands.ElectLeaders(requested, election), timeout_ms)

    def alter_configs(
        self, resources: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Awaitable[tuple[ConfigResult, ...]]:
        """Return one result per resource, in order of the request."""
        return self._submit_in_slices(commands.AlterConfigs(tuple(resources), validate_only))

    def alter_client_quotas(
        self, entities: Sequence[QuotaChange], *, validate_only: bool = False
    ) -> Awaitable[tuple[QuotaResult, ...]]:
        """Return one result per entity, in order of the request."""
        return self._submit_in_slices(commands.AlterClientQuotas(tuple(entities), validate_only))

    def create_acls(self, acls: Sequence[NewAcl]) -> Awaitable[tuple[AclResult, ...]]:
        """Return one result per ACL, in order of the request."""
        return self._submit_in_slices(commands.CreateAcls(tuple(acls)))

    def acl_id(self, acl: Acl) -> UUID | None:
        """Return the id of `acl`; None if it does not exist, or if this controller is not active."""
        return self._controller.state.acl_ids.get(acl) if self._controller is not None and self.is_active else None

    def remove_acls(self, ids: Sequence[UUID]) -> Awaitable[tuple[UUID, ...]]:
        """Return those of the different `ids` whose ACLs this call has removed, in order."""
        return self._submit_in_slices(commands.RemoveAcls(tuple(ids)))

    def alter_scram_credentials(self, changes: Sequence[ScramChange]) -> Awaitable[tuple[ScramResult, ...]]:
        """Return one result per user, in the order of the first changes."""
        return self._submit_in_slices(commands.AlterScramCredentials(tuple(changes)))

    def create_token(self, new: NewToken) -> Awaitable[CreatedToken]:
        """Raise Refusal(DELEGATION_TOKEN_AUTH_DISABLED, INVALID_PRINCIPAL_TYPE, POLICY_VIOLATION)."""
        return self._submit(commands.CreateToken(new))

    def token(self, hmac: bytes) -> tuple[str, DelegationToken] | None:
        """Return the token with this HMAC and its id; None if it is unknown, or if this controller is not active."""
        return find_token(self._controller.state, hmac) if self._controller and self.is_active else None

    def renew_token(self, principal: str, hmac: bytes, period_ms: int) -> Awaitable[int]:
        """Return the time in milliseconds at which the token expires.

        Raise Refusal(DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED,
        DELEGATION_TOKEN_OWNER_MISMATCH).
        """
        return self._submit(commands.RenewToken(principal, hmac, period_ms))

    def expire_token(self, principal: str, hmac: bytes, period_ms: int) -> Awaitable[int]:
        """Return like `renew_token`, and raise the same errors. A negative period removes the token."""
        return self._submit(commands.ExpireToken(principal, hmac, period_ms))

    def unregister_broker(self, broker_id: int) -> Awaitable[None]:
        """Remove the registration of a broker. Raise Refusal(BROKER_ID_NOT_REGISTERED) if it has none."""
        return self._submit(commands.UnregisterBroker(broker_id))

    def register_controller(self, registration: ControllerRegistration) -> Awaitable[None]:
        """Register the endpoints of a controller (KIP-919)."""
        return self._submit(commands.RegisterController(registration))

    def unregister_controller(self, controller_id: int) -> Awaitable[None]:
        """Remove the registration of a controller. Raise Refusal(CONTROLLER_ID_NOT_REGISTERED) if it has none."""
        return self._submit(commands.UnregisterController(controller_id))

    # ---- commands of this node --------------------------------------------------------------------------------------

    def fence_broker(self, broker_id: int, broker_epoch: int | None = None) -> Awaitable[None]:
        """Fence a broker that has failed. A partition without another in-sync replica gets leader -1.

        `broker_epoch` names the incarnation that has failed. Raise Refusal(STALE_BROKER_EPOCH) if another one is
        registered.
        """
        return self._submit(commands.FenceBroker(broker_id, broker_epoch))

    def unfence_broker(self, broker_id: int) -> Awaitable[None]:
        """Let the broker lead again, each partition with a new leader epoch."""
        return self._submit(commands.UnfenceBroker(broker_id))


def _failed(refusal: Refusal) -> Future[Any]:
    future: Future[Any] = get_running_loop().create_future()
    future.set_exception(refusal)
    return future


def _log_notice(effect: Effect) -> None:
    assert isinstance(effect, Notice), effect
    _logger.warning(effect.event, **dict(effect.fields))
