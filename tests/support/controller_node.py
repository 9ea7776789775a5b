"""The metadata half of a node, put together as `odradek.broker.node` does it: raft, controller, publisher, broker
lifecycle.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from odradek.cluster.controller.service import ControllerService
from odradek.cluster.controller.state import ControllerConfig
from odradek.cluster.lifecycle.driver import BrokerLifecycle
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.raft.driver import RaftDriver
from odradek.runtime.tasks import Tasks
from tests.support.raft_memory import CLUSTER_ID, PlainConfigs, registration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.cluster.raft.messages import Message
    from odradek.cluster.raft.ports import RaftStorage

NO_LEVELS: Mapping[str, int] = {}


class LoopClock:
    def wall_ms(self) -> int:
        return self.monotonic_ms() + 1_700_000_000_000

    def expiry_ms(self) -> int:
        return self.wall_ms()

    def monotonic_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1_000)

    def monotonic_us(self) -> int:
        return self.monotonic_ms() * 1_000


class NoNetwork:
    """The network of a single voter, which sends no messages."""

    def send(self, message: Message) -> None:
        raise AssertionError(f"a single voter sends no messages: {message}")


class ControllerNode:
    def __init__(self, storage: RaftStorage, incarnation: int = 7, *, levels: Mapping[str, int] = NO_LEVELS) -> None:
        self.failures: list[tuple[str, BaseException]] = []
        self.bugs: list[tuple[str, BaseException]] = []
        """Unexpected exceptions of single commands."""
        self.tasks = Tasks(self.fail)
        self.storage = storage
        rng = random.Random(incarnation)
        self.driver = RaftDriver(
            1, [1], storage, NoNetwork(), clock=LoopClock(), rng=rng, tasks=self.tasks, on_failure=self.fail
        )
        self.cache = MetadataCache()
        self.driver.on_committed(self.cache.on_committed, self.cache.prepare)
        self.service = ControllerService(
            self.driver,
            config=ControllerConfig(1, CLUSTER_ID),
            configs=PlainConfigs(),
            rng=rng,
            clock=LoopClock(),
            tasks=self.tasks,
            on_failure=self.fail,
            on_bug=lambda *bug: self.bugs.append(bug),
            bootstrap_levels=levels,
            published=lambda: self.cache.image,
        )
        self.lifecycle = BrokerLifecycle(
            registration(incarnation=incarnation), self.service, self.cache, self.tasks, on_failure=self.fail
        )

    def fail(self, name: str, error: BaseException) -> None:
        self.failures.append((name, error))

    async def start(self) -> ControllerNode:
        await self.driver.start()
        await self.service.wait_active()
        self.lifecycle.start()
        await self.lifecycle.wait_unfenced()
        return self

    async def stop(self) -> None:
        await self.lifecycle.stop()
        self.service.stop()
        await self.driver.stop()
        await self.tasks.cancel_all()
        assert self.failures == []

    async def kill(self) -> None:
        await self.tasks.cancel_all()
