"""A broker's life as the controller sees it: register, keep the session, leave in an orderly way (KIP-631)."""

from __future__ import annotations

from asyncio import Event, Future, get_running_loop
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.controller.port import BrokerHeartbeat, BrokerRegistration, HeartbeatReply
from protocol.errors import ERRORS, ErrorCode, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.controller.port import BrokerControllerPort
    from cluster.metadata import MetadataCache
    from runtime.tasks import Tasks

# Refusals of a registration that another try may not meet.
TRANSIENT = (ErrorCode.NOT_CONTROLLER, ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.REQUEST_TIMED_OUT)


@dataclass(frozen=True, slots=True)
class LifecycleConfig:
    """`broker.heartbeat.interval.ms`, and how long to wait after a try that failed."""

    heartbeat_interval_ms: int = 2_000
    retry_backoff_ms: int = 50


class BrokerLifecycle:
    """Owns one registration. All calls belong on the event loop."""

    def __init__(
        self,
        registration: BrokerRegistration,
        controller: BrokerControllerPort,
        metadata: MetadataCache,
        tasks: Tasks,
        *,
        on_failure: Callable[[str, BaseException], None],
        config: LifecycleConfig | None = None,
    ) -> None:
        """`on_failure` hears of a registration that is refused for good: the node has to stop."""
        self.broker_epoch = -1
        self._registration = registration
        self._controller = controller
        self._metadata = metadata
        self._tasks = tasks
        self._on_failure = on_failure
        self._config = config or LifecycleConfig()
        self._unfenced = Event()
        self._leaving = False
        self._pausing: Future[None] | None = None
        self._ended = Event()

    def start(self) -> None:
        """Begin to register and to send heartbeats."""
        self._tasks.spawn(self._run(), f"broker-lifecycle-{self._registration.broker_id}")

    async def wait_unfenced(self) -> None:
        """Until the controller lets this broker lead."""
        await self._unfenced.wait()

    async def stop(self) -> None:
        """Leave: leaderships are moved away first. Returns when the controller has let the broker go, or is gone itself."""
        self._leaving = True
        if self._pausing is not None:
            _finish(self._pausing)
        await self._ended.wait()

    async def _run(self) -> None:
        try:
            if await self._register():
                await self._heartbeats()
        except Refusal as refusal:
            self._on_failure(f"broker-lifecycle-{self._registration.broker_id}", refusal)
        finally:
            self._ended.set()

    async def _register(self) -> bool:
        while not self._leaving:
            try:
                self.broker_epoch = await self._controller.register_broker(self._registration)
            except Refusal as refusal:
                if refusal.error not in TRANSIENT:
                    raise
                await self._pause(self._config.retry_backoff_ms)
            else:
                # A broker that does not know its own registration is not caught up: do not ask before that.
                await self._metadata.wait_for(self.broker_epoch)
                return True
        return False

    async def _heartbeats(self) -> None:
        goodbyes = 0
        while True:
            leaving = self._leaving
            reply = await self._beat(leaving=leaving)
            if reply is None:
                if leaving:
                    return  # nobody to say good-bye to
                await self._pause(self._config.retry_backoff_ms)
            elif reply.should_shut_down:
                return
            elif leaving:
                # The first answer came with the moves of the leaderships: say at once that they have arrived here. After
                # that it is the other brokers that have to catch up.
                goodbyes += 1
                if goodbyes > 1:
                    await self._pause(self._config.retry_backoff_ms)
            else:
                if not reply.is_fenced:
                    self._unfenced.set()
                await self._pause(self._config.heartbeat_interval_ms)

    async def _beat(self, *, leaving: bool) -> HeartbeatReply | None:
        heartbeat = BrokerHeartbeat(
            self._registration.broker_id,
            self.broker_epoch,
            self._metadata.image.offset,
            want_shut_down=leaving,
        )
        try:
            return await self._controller.heartbeat(heartbeat)
        except Refusal as refusal:
            retriable = refusal.error in TRANSIENT or ERRORS[refusal.error].retriable
            if retriable or self._leaving:
                return None
            raise

    async def _pause(self, delay_ms: int) -> None:
        """Wait, unless `stop` ends the wait."""
        loop = get_running_loop()
        pause: Future[None] = loop.create_future()
        handle = loop.call_later(delay_ms / 1_000, _finish, pause)
        self._pausing = pause
        try:
            await pause
        finally:
            handle.cancel()
            self._pausing = None


def _finish(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)
