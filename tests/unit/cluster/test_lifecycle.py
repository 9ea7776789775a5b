"""A broker that registers, keeps its session and leaves, against a controller that answers by a list."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cluster.controller.port import BrokerHeartbeat, BrokerRegistration, HeartbeatReply
from cluster.lifecycle import BrokerLifecycle, LifecycleConfig
from cluster.metadata import MetadataCache
from cluster.raft.batches import LogBatch
from cluster.records import NoOpRecord, encode_record
from protocol.errors import ErrorCode, Refusal
from runtime.tasks import Tasks
from tests.support.raft_memory import registration

if TYPE_CHECKING:
    from collections.abc import Sequence

ACTIVE = HeartbeatReply(is_caught_up=True, is_fenced=False, should_shut_down=False)
GO = HeartbeatReply(is_caught_up=True, is_fenced=True, should_shut_down=True)
EPOCH = 4


class Script:
    """`registrations` and `replies` are given in order; the last reply is repeated."""

    def __init__(self, registrations: Sequence[ErrorCode], replies: Sequence[HeartbeatReply | ErrorCode]) -> None:
        self.registrations = list(registrations)
        self.replies = list(replies)
        self.heartbeats: list[BrokerHeartbeat] = []
        self.failures: list[BaseException] = []
        self.failed = asyncio.Event()
        self.metadata = MetadataCache()
        self.tasks = Tasks(self.fail)
        self.lifecycle = BrokerLifecycle(
            registration(1),
            self,  # type: ignore[arg-type]  # the two calls of the port that a life cycle makes
            self.metadata,
            self.tasks,
            on_failure=self.fail,
            config=LifecycleConfig(heartbeat_interval_ms=60_000, retry_backoff_ms=1),
        )
        self.lifecycle.start()

    def fail(self, _: str, error: BaseException) -> None:
        self.failures.append(error)
        self.failed.set()

    async def register_broker(self, registration: BrokerRegistration) -> int:
        error = self.registrations.pop(0)
        if error is not ErrorCode.NONE:
            raise Refusal(error)
        value = encode_record(NoOpRecord())
        asyncio.get_running_loop().call_soon(
            self.metadata.on_committed, [LogBatch(0, EPOCH, 1, ((None, value),) * (EPOCH + 1))]
        )
        return EPOCH

    async def heartbeat(self, heartbeat: BrokerHeartbeat) -> HeartbeatReply:
        self.heartbeats.append(heartbeat)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, ErrorCode):
            raise Refusal(reply)
        return reply


async def test_it_tries_again_until_it_is_registered_and_asks_only_when_it_knows_itself() -> None:
    transient = [ErrorCode.NOT_CONTROLLER, ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.NONE]
    script = Script(transient, [ErrorCode.NOT_CONTROLLER, ACTIVE])
    await asyncio.wait_for(script.lifecycle.wait_unfenced(), 10)
    assert script.lifecycle.broker_epoch == EPOCH
    assert [beat.metadata_offset for beat in script.heartbeats] == [EPOCH, EPOCH]
    await script.tasks.cancel_all()


async def test_a_registration_refused_for_good_stops_the_node() -> None:
    script = Script([ErrorCode.INCONSISTENT_CLUSTER_ID], [ACTIVE])
    await asyncio.wait_for(script.failed.wait(), 10)
    assert [str(error).split(":")[0] for error in script.failures] == ["INCONSISTENT_CLUSTER_ID"]
    assert script.heartbeats == []


async def test_it_leaves_when_the_controller_lets_it_go() -> None:
    script = Script([ErrorCode.NONE], [ACTIVE, ACTIVE, ACTIVE, ACTIVE, GO])
    await asyncio.wait_for(script.lifecycle.wait_unfenced(), 10)
    await asyncio.wait_for(script.lifecycle.stop(), 10)
    assert [beat.want_shut_down for beat in script.heartbeats] == [False, True, True, True, True]
    assert script.failures == []


async def test_it_leaves_alone_when_the_controller_is_gone() -> None:
    script = Script([ErrorCode.NONE], [ACTIVE, ErrorCode.NOT_CONTROLLER])
    await asyncio.wait_for(script.lifecycle.wait_unfenced(), 10)
    await asyncio.wait_for(script.lifecycle.stop(), 10)
    assert script.failures == []
