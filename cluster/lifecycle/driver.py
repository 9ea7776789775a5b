"""Keep this broker registered with the controller: registration, heartbeats, controlled shutdown (KIP-631)."""

from __future__ import annotations

from asyncio import Event as AsyncEvent
from asyncio import get_running_loop, timeout
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from odradek.cluster.controller.messages.brokers import BrokerHeartbeat, BrokerRegistration, HeartbeatReply
from odradek.cluster.lifecycle.controller import RETRIABLE, ControllerRegistrar, register_controller
from odradek.cluster.lifecycle.pause import Pause
from odradek.cluster.lifecycle.transitions import OVER, RUNNING, SHUTTING_DOWN, TRANSITIONS, Event, State, Wait
from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ERRORS, ErrorCode, Refusal
from odradek.runtime.repeated_tasks import keep_running

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from odradek.cluster.controller.messages.brokers import ControllerRegistration
    from odradek.cluster.metadata.cache import MetadataCache
    from odradek.cluster.metadata.image import MetadataImage
    from odradek.runtime.tasks import Tasks

UNKNOWN_REGISTRATION: Final = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
"""Refusals after which this broker must register again."""
WAITING_NOTICE_MS: Final = 5_000
"""Minimum time in ms between two log events while a start waits for its registration."""
_logger = structlog.get_logger(__name__)


class Registrar(ControllerRegistrar, Protocol):
    """The requests of a lifecycle to the active controller.

    Each may raise Refusal, and OSError if there is no response.
    """

    def register_broker(self, registration: BrokerRegistration) -> Awaitable[int]: ...

    def heartbeat(self, heartbeat: BrokerHeartbeat) -> Awaitable[HeartbeatReply]: ...


class IdInUseError(Exception):
    """Another broker is registered with this node's id and keeps its session."""


@frozen_dataclass(frozen=True, slots=True)
class LifecycleConfig:
    """Intervals and time-outs of the requests to the controller, in milliseconds."""

    heartbeat_interval_ms: int = 2_000
    """`broker.heartbeat.interval.ms`."""
    retry_backoff_ms: int = 50
    request_timeout_ms: int = 4_500
    duplicate_limit_ms: int = 13_500
    """Maximum time that another broker with this id keeps its session. A session of a failed broker ends earlier."""
    hand_over_limit_ms: int = 2_000
    """Maximum time that a leaving broker waits for a controller: long enough for an election."""


class BrokerLifecycle:
    """One broker's registration. All calls belong on the event loop."""

    def __init__(
        self,
        registration: BrokerRegistration,
        controller: Registrar,
        metadata: MetadataCache,
        tasks: Tasks,
        *,
        on_failure: Callable[[str, BaseException], None],
        config: LifecycleConfig | None = None,
        own_controller: ControllerRegistration | None = None,
        missing: Callable[[], str] = lambda: "",
        without_quorum: Callable[[], bool] = lambda: False,
        on_registered: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Send nothing before `start`.

        `on_failure` receives a permanent refusal: the node must stop.

        `on_registered(broker epoch)` is called before the next request to the controller. It must not raise.

        `own_controller`: the registration of this node's controller, if it is a voter.

        `missing()`: the controllers that cannot be reached, for log events.

        `without_quorum()`: too few controllers run to elect one of them.
        """
        self.broker_epoch = -1
        self._registration = registration
        self._controller = controller
        self._metadata = metadata
        self._tasks = tasks
        self._on_failure = on_failure
        self._config = config or LifecycleConfig()
        self._own_controller = own_controller
        self._missing = missing
        self._without_quorum = without_quorum
        self._on_registered = on_registered
        self._state = State.REGISTERING
        self._stop_requested = False
        self._fence_requested = False
        self._fenced_for_now = False
        self._failure: BaseException | None = None
        self._ended = AsyncEvent()
        self._pause = Pause()
        self._last_notice_s = 0.0
        self._duplicate_since_s: float | None = None
        """Time of the first refusal because another broker has this id."""
        self._no_response_since_s: float | None = None
        """Time since which no heartbeat of the leaving broker got a response."""

    def start(self) -> None:
        """Begin to register and to send heartbeats."""
        self._last_notice_s = get_running_loop().time()
        self._tasks.spawn(self._run_until_over(), self._name)

    async def wait_unfenced(self) -> None:
        """Wait until the metadata of this broker has its registration, unfenced.

        The response to a heartbeat does not show that: the record can arrive later, and until then this broker would
        omit itself from its Metadata responses.
        """
        await self._metadata.wait_until(self._is_unfenced)

    def _is_unfenced(self, image: MetadataImage) -> bool:
        broker = image.brokers.get(self._registration.broker_id)
        if broker is None or broker.epoch != self.broker_epoch:
            return False
        # A registration that keeps its partitions is not fenced. The record after its first heartbeat ends its lineage.
        return not broker.fenced and not broker.lineage

    def want_fence(self, reason: str) -> None:
        """Request to be fenced, until this node restarts: it cannot serve its partitions, and other brokers can."""
        if not self._fence_requested:
            _logger.error("fencing requested", broker=self._registration.broker_id, reason=reason)
            self._fence_requested = True
            self._pause.interrupt()

    def want_fence_for_now(self, wanted: bool) -> None:
        """Request to be fenced while this node cannot serve its partitions, and to be unfenced afterwards."""
        if wanted != self._fenced_for_now:
            self._fenced_for_now = wanted
            self._pause.interrupt()

    @property
    def _wants_fence(self) -> bool:
        return self._fence_requested or self._fenced_for_now

    async def stop(self) -> None:
        """Leave after the leaders have moved.

        Return when the controller has let the broker go, or cannot be reached.
        """
        self._stop_requested = True
        self._pause.interrupt()
        await self._ended.wait()

    @property
    def _name(self) -> str:
        return f"broker-lifecycle-{self._registration.broker_id}"

    # ---- the machine ------------------------------------------------------------------------------------------------

    async def _run_until_over(self) -> None:
        """Run the machine, and go on in the same state after an unexpected exception.

        Without heartbeats, the controller would fence this broker although its process runs.
        """
        try:
            await keep_running(self._run, self._tasks.spawn, self._name)
        finally:
            self._ended.set()

    async def _run(self) -> None:
        while self._state not in OVER:
            if self._stop_requested and self._state in RUNNING:
                event = Event.STOP
            elif self._state is State.REGISTERING:
                event = await self._register()
            else:
                event = await self._send_heartbeat()
            step = TRANSITIONS.look_up(self._state, event)
            self._state = step.state
            self._on_event(event)
            await self._wait(step.wait)
        if self._state is State.FAILED:
            assert self._failure is not None
            self._on_failure(self._name, self._failure)

    def _on_event(self, event: Event) -> None:
        """Log and signal what the event has changed."""
        if self._state is State.DRAINING and event is not Event.NO_RESPONSE:
            self._no_response_since_s = None
        elif self._state is State.REGISTERING and event is Event.UNKNOWN_REGISTRATION:
            _logger.warning("broker registration unknown to the controller", epoch=self.broker_epoch)

    async def _wait(self, wait: Wait) -> None:
        if wait is Wait.BACKOFF:
            await self._pause.wait(self._config.retry_backoff_ms)
        elif wait is Wait.INTERVAL:
            await self._pause.wait(self._config.heartbeat_interval_ms)

    # ---- registration -----------------------------------------------------------------------------------------------

    async def _register(self) -> Event:
        try:
            async with timeout(self._config.request_timeout_ms / 1_000):
                epoch = await self._controller.register_broker(self._registration)
        except (Refusal, OSError) as error:
            return self._registration_failed(error)
        if self._own_controller is not None and self.broker_epoch < 0:
            registering = register_controller(
                self._controller,
                self._own_controller,
                request_timeout_ms=self._config.request_timeout_ms,
                retry_backoff_ms=self._config.retry_backoff_ms,
                stopped=lambda: self._stop_requested,
            )
            self._tasks.spawn(registering, "register the controller")
        self.broker_epoch = epoch
        self._on_registered(epoch)
        # A broker without its own registration in its metadata is not caught up. A heartbeat before that is useless.
        await self._metadata.wait_until(lambda image: image.offset >= epoch)
        return Event.REGISTERED

    def _registration_failed(self, error: Refusal | OSError) -> Event:
        now_s = get_running_loop().time()
        refused = error.error if isinstance(error, Refusal) else ErrorCode.REQUEST_TIMED_OUT
        if refused not in RETRIABLE:
            self._failure = error
            return Event.REFUSED
        if refused is ErrorCode.NOT_CONTROLLER:
            self._duplicate_since_s = None  # the next controller starts the sessions of all brokers anew
        elif refused is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            if self._duplicate_since_s is None:
                self._duplicate_since_s = now_s
            if (now_s - self._duplicate_since_s) * 1_000 > self._config.duplicate_limit_ms:
                self._failure = IdInUseError(self._in_use())
                return Event.REFUSED
        if (now_s - self._last_notice_s) * 1_000 >= WAITING_NOTICE_MS:
            self._last_notice_s = now_s
            _logger.info(
                "waiting for broker registration", reason=str(error) or "no response", missing=self._missing() or "none"
            )
        return Event.NOT_REGISTERED

    def _in_use(self) -> str:
        broker_id = self._registration.broker_id
        other = self._metadata.image.brokers.get(broker_id)
        where = ""
        if other is not None and other.endpoints:
            where = f" at {other.endpoints[0].host}:{other.endpoints[0].port}"
        return f"node.id {broker_id} is in use by a running broker{where}; every node needs an id of its own"

    # ---- heartbeats -------------------------------------------------------------------------------------------------

    async def _send_heartbeat(self) -> Event:
        leaving = self._state in SHUTTING_DOWN
        heartbeat = BrokerHeartbeat(
            self._registration.broker_id,
            self.broker_epoch,
            self._metadata.image.offset,
            want_fence=self._wants_fence,
            want_shut_down=leaving,
        )
        try:
            async with timeout(self._config.request_timeout_ms / 1_000):
                reply = await self._controller.heartbeat(heartbeat)
        except (Refusal, OSError) as error:
            return self._heartbeat_failed(error, leaving=leaving)
        if reply.should_shut_down:
            return Event.SHUT_DOWN_RESPONSE
        if not reply.is_fenced:
            return Event.ACTIVE_RESPONSE
        return Event.FENCED_ON_REQUEST if self._wants_fence else Event.FENCED_RESPONSE

    def _heartbeat_failed(self, error: Refusal | OSError, *, leaving: bool) -> Event:
        if isinstance(error, Refusal):
            if error.error in UNKNOWN_REGISTRATION:
                return Event.UNKNOWN_REGISTRATION
            if error.error not in RETRIABLE and not ERRORS[error.error].retriable:
                self._failure = error
                return Event.REFUSED
        return Event.NO_HAND_OVER if leaving and not self._can_hand_over() else Event.NO_RESPONSE

    def _can_hand_over(self) -> bool:
        """Return True if a leaving broker should repeat its heartbeat: a controller may be elected soon.

        Return False if no other broker can take over the leaders, if the whole cluster stops, or after
        `hand_over_limit_ms`.
        """
        now_s = get_running_loop().time()
        if self._no_response_since_s is None:
            self._no_response_since_s = now_s
        if (now_s - self._no_response_since_s) * 1_000 > self._config.hand_over_limit_ms or self._without_quorum():
            return False
        own_id, brokers = self._registration.broker_id, self._metadata.image.brokers
        return any(broker.is_active for broker_id, broker in brokers.items() if broker_id != own_id)
