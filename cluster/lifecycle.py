"""A broker's life as the controller sees it: register, keep the session, leave in an orderly way (KIP-631)."""

from __future__ import annotations

from asyncio import Event, Future, get_running_loop, timeout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from odradek.cluster.controller.port import BrokerHeartbeat, BrokerRegistration, HeartbeatReply
from odradek.protocol.errors import ERRORS, ErrorCode, Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from odradek.cluster.controller.port import ControllerRegistration
    from odradek.cluster.metadata.cache import MetadataCache
    from odradek.runtime.tasks import Tasks

# Refusals that another try may not meet.
TRANSIENT: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.REQUEST_TIMED_OUT)
# The controller does not know this registration any more: there has to be a new one.
FORGOTTEN: Final = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
WAITING_NOTICE_MS: Final = 5_000
"""How often the log says what a start waits for."""
_logger = structlog.get_logger("cluster.lifecycle")


class Registrar(Protocol):
    """The part of `odradek.cluster.controller.port.ControllerPort` that a life cycle needs. OSError: no answer."""

    def register_broker(self, registration: BrokerRegistration) -> Awaitable[int]: ...

    def register_controller(self, registration: ControllerRegistration) -> Awaitable[None]: ...

    def heartbeat(self, heartbeat: BrokerHeartbeat) -> Awaitable[HeartbeatReply]: ...


class IdInUseError(Exception):
    """Another broker lives under this node's id."""


@dataclass(frozen=True, slots=True)
class LifecycleConfig:
    """`broker.heartbeat.interval.ms`, how long to wait after a try that failed, and for an answer.

    `duplicate_limit_ms`: how long another broker of the same id is given to turn out dead; longer than a session lasts.
    `hand_over_limit_ms`: how long a broker that leaves waits for a controller to be there: long enough for an election.
    """

    heartbeat_interval_ms: int = 2_000
    retry_backoff_ms: int = 50
    request_timeout_ms: int = 4_500
    duplicate_limit_ms: int = 13_500
    hand_over_limit_ms: int = 2_000


class BrokerLifecycle:
    """Owns one registration. All calls belong on the event loop."""

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
        """`on_failure` hears of a registration that is refused for good: the node has to stop.

        `on_registered(broker epoch)` is called before the controller hears anything more of this broker; it must not raise.

        `own_controller`: what a node that votes registers besides. `missing()`: the controllers that nothing was heard of.

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
        self._unfenced = Event()
        self._leaving = False
        self._wants_fence = False
        self._pausing: Future[None] | None = None
        self._urgent = False
        self._ended = Event()
        self._said_s = 0.0
        self._duplicate_since_s: float | None = None
        self._unheard_since_s: float | None = None

    def start(self) -> None:
        """Begin to register and to send heartbeats."""
        self._said_s = get_running_loop().time()
        self._tasks.spawn(self._run(), f"broker-lifecycle-{self._registration.broker_id}")

    async def wait_unfenced(self) -> None:
        """Until the controller lets this broker lead."""
        await self._unfenced.wait()

    def want_fence(self, reason: str) -> None:
        """This broker cannot serve its partitions, others can: give everything up, at once and until it is started again."""
        if not self._wants_fence:
            _logger.error("this broker asks to be fenced", broker=self._registration.broker_id, reason=reason)
            self._wants_fence = True
            self._wake()

    async def stop(self) -> None:
        """Leave: leaderships are moved away first. Returns when the controller has let the broker go, or stays away."""
        self._leaving = True
        self._wake()
        await self._ended.wait()

    async def _run(self) -> None:
        try:
            while await self._register() and not await self._heartbeats():
                _logger.warning("the controller has forgotten this broker: it registers again", epoch=self.broker_epoch)
        except (Refusal, IdInUseError) as error:
            self._on_failure(f"broker-lifecycle-{self._registration.broker_id}", error)
        finally:
            self._ended.set()

    # ---- registration -----------------------------------------------------------------------------------------------

    async def _register(self) -> bool:
        """True when registered, False when told to stop before that."""
        while not self._leaving:
            try:
                async with timeout(self._config.request_timeout_ms / 1_000):
                    epoch = await self._controller.register_broker(self._registration)
            except (Refusal, OSError) as error:
                self._judge(error)
                await self._pause(self._config.retry_backoff_ms)
                continue
            if self._own_controller is not None and self.broker_epoch < 0:
                self._tasks.spawn(self._register_controller(self._own_controller), "register the controller")
            self.broker_epoch = epoch
            self._on_registered(epoch)
            # A broker that does not know its own registration is not caught up: do not ask before that.
            await self._metadata.wait_for(epoch)
            return True
        return False

    def _judge(self, error: Refusal | OSError) -> None:
        """Raises what makes another try useless."""
        now_s = get_running_loop().time()
        refused = error.error if isinstance(error, Refusal) else ErrorCode.REQUEST_TIMED_OUT
        if refused not in TRANSIENT:
            raise error
        if refused is ErrorCode.NOT_CONTROLLER:
            self._duplicate_since_s = None  # the next controller gives everybody a full session
        elif refused is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            since_s = self._duplicate_since_s = now_s if self._duplicate_since_s is None else self._duplicate_since_s
            if (now_s - since_s) * 1_000 > self._config.duplicate_limit_ms:
                raise IdInUseError(self._in_use())
        if (now_s - self._said_s) * 1_000 >= WAITING_NOTICE_MS:
            self._said_s = now_s
            _logger.info(
                "waiting to be registered", reason=str(error) or "no answer", missing=self._missing() or "nobody"
            )

    def _in_use(self) -> str:
        broker_id = self._registration.broker_id
        other = self._metadata.image.brokers.get(broker_id)
        where = (
            f" at {other.endpoints[0].host}:{other.endpoints[0].port}" if other is not None and other.endpoints else ""
        )
        return f"node.id {broker_id} is in use by a living broker{where}; every node needs an id of its own"

    async def _register_controller(self, registration: ControllerRegistration) -> None:
        while not self._leaving:
            try:
                async with timeout(self._config.request_timeout_ms / 1_000):
                    await self._controller.register_controller(registration)
            except (Refusal, OSError) as error:
                if isinstance(error, Refusal) and error.error not in TRANSIENT:
                    _logger.warning("the controller of this node is not registered", reason=str(error))
                    return
                await self._sleep(self._config.retry_backoff_ms)
            else:
                return

    # ---- heartbeats -------------------------------------------------------------------------------------------------

    async def _heartbeats(self) -> bool:
        """True when this broker has left, False when it has to register again. Raises Refusal."""
        goodbyes = 0
        while True:
            leaving = self._leaving
            try:
                reply = await self._beat(leaving=leaving)
            except Refusal as refusal:
                if leaving:
                    return True
                if refusal.error in FORGOTTEN:
                    return False
                raise
            if reply is None:
                if leaving and self._goodbye_is_vain():
                    return True
                await self._pause(self._config.retry_backoff_ms)
            elif reply.should_shut_down:
                return True
            elif leaving:
                # The first answer came with the moves of the leaderships: say at once that they have arrived here. After
                # that it is the other brokers that have to catch up.
                self._unheard_since_s = None
                goodbyes += 1
                if goodbyes > 1:
                    await self._pause(self._config.retry_backoff_ms)
            else:
                if not reply.is_fenced:
                    self._unfenced.set()
                await self._pause(self._interval_ms(reply))

    def _goodbye_is_vain(self) -> bool:
        """Nobody has heard it. A controller may be about to be elected, unless the cluster goes down as a whole."""
        now_s = get_running_loop().time()
        since_s = self._unheard_since_s = now_s if self._unheard_since_s is None else self._unheard_since_s
        own_id, brokers = self._registration.broker_id, self._metadata.image.brokers
        nobody_takes_over = not any(broker.is_active for each, broker in brokers.items() if each != own_id)
        too_late = (now_s - since_s) * 1_000 > self._config.hand_over_limit_ms
        return nobody_takes_over or self._without_quorum() or too_late

    def _interval_ms(self, reply: HeartbeatReply) -> int:
        """A broker that is to become active hurries: it is only its metadata that has to catch up."""
        hurry = reply.is_fenced and not self._wants_fence
        return self._config.retry_backoff_ms if hurry else self._config.heartbeat_interval_ms

    async def _beat(self, *, leaving: bool) -> HeartbeatReply | None:
        """None: no answer, or one that another try may not meet."""
        heartbeat = BrokerHeartbeat(
            self._registration.broker_id,
            self.broker_epoch,
            self._metadata.image.offset,
            want_fence=self._wants_fence,
            want_shut_down=leaving,
        )
        try:
            async with timeout(self._config.request_timeout_ms / 1_000):
                return await self._controller.heartbeat(heartbeat)
        except OSError:
            return None
        except Refusal as refusal:
            if refusal.error not in FORGOTTEN and (refusal.error in TRANSIENT or ERRORS[refusal.error].retriable):
                return None
            raise

    # ---- pauses -----------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """There is something to say: end the pause, or leave out the next one."""
        self._urgent = True
        if self._pausing is not None:
            _finish(self._pausing)

    async def _pause(self, delay_ms: int) -> None:
        if self._urgent:
            self._urgent = False
            return
        pause: Future[None] = get_running_loop().create_future()
        self._pausing = pause
        try:
            await self._sleep(delay_ms, pause)
        finally:
            self._pausing = None
            self._urgent = False

    async def _sleep(self, delay_ms: int, until: Future[None] | None = None) -> None:
        loop = get_running_loop()
        until = loop.create_future() if until is None else until
        handle = loop.call_later(delay_ms / 1_000, _finish, until)
        try:
            await until
        finally:
            handle.cancel()


def _finish(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)
