"""Broker lifecycle: registration, heartbeats and controlled shutdown, against a controller with prepared replies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from odradek.cluster.controller.brokers.active import UNFENCE
from odradek.cluster.controller.messages.brokers import (
    BrokerHeartbeat,
    BrokerRegistration,
    ControllerRegistration,
    HeartbeatReply,
)
from odradek.cluster.lifecycle.driver import BrokerLifecycle, LifecycleConfig
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.metadata.records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    NoOpRecord,
    RegisterBrokerRecord,
    encode_record,
)
from odradek.cluster.raft.batches import LogBatch
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.tasks import Tasks
from tests.support.raft_memory import registration

if TYPE_CHECKING:
    from collections.abc import Sequence

ACTIVE = HeartbeatReply(is_caught_up=True, is_fenced=False, should_shut_down=False)
SHUT_DOWN = HeartbeatReply(is_caught_up=True, is_fenced=True, should_shut_down=True)
EPOCH = 4


class ScriptedController:
    """Controller that returns `registrations` and `replies` in order, and the last reply repeatedly."""

    def __init__(
        self,
        registrations: Sequence[ErrorCode | type[OSError]],
        replies: Sequence[HeartbeatReply | ErrorCode],
        *,
        hand_over_limit_ms: int = 60_000,
    ) -> None:
        self.registrations = list(registrations)
        self.replies = list(replies)
        self.heartbeats: list[BrokerHeartbeat] = []
        self.controllers: list[ControllerRegistration] = []
        self.registered_epochs: list[tuple[int, int]] = []
        self.without_quorum = False
        self.registered = 0
        self.heartbeat_allowed: asyncio.Event | None = None
        self.publishes_unfence = True
        """True if the unfence record of this broker is in its metadata before the response to its heartbeat."""
        self.bug: Exception | None = None
        """Exception of the next heartbeat."""
        self.failures: list[BaseException] = []
        self.failed = asyncio.Event()
        self.metadata = MetadataCache()
        self.tasks = Tasks(self.fail)
        self.lifecycle = BrokerLifecycle(
            registration(1),
            self,
            self.metadata,
            self.tasks,
            on_failure=self.fail,
            config=LifecycleConfig(
                heartbeat_interval_ms=60_000,
                retry_backoff_ms=1,
                duplicate_limit_ms=-1,
                hand_over_limit_ms=hand_over_limit_ms,
            ),
            own_controller=ControllerRegistration(1, UUID(int=7), (), {}),
            without_quorum=lambda: self.without_quorum,
            on_registered=lambda epoch: self.registered_epochs.append((epoch, len(self.heartbeats))),
        )
        self.lifecycle.start()

    def fail(self, _: str, error: BaseException) -> None:
        self.failures.append(error)
        self.failed.set()

    async def register_broker(self, registration: BrokerRegistration) -> int:
        error = self.registrations.pop(0)
        if not isinstance(error, ErrorCode):
            raise error("the controller is not there")
        if error is not ErrorCode.NONE:
            raise Refusal(error)
        epoch = self.registered * (EPOCH + 1) + EPOCH
        self.registered += 1
        missing = epoch - self.metadata.image.offset - 1
        records: list[MetadataRecord] = [NoOpRecord() for _ in range(missing)]
        records.append(RegisterBrokerRecord(broker_id=1, broker_epoch=epoch, fenced=True))
        asyncio.get_running_loop().call_soon(publish, self, *records)
        return epoch

    async def register_controller(self, registration: ControllerRegistration) -> None:
        self.controllers.append(registration)
        if len(self.controllers) == 1:
            raise Refusal(ErrorCode.NOT_CONTROLLER)

    async def heartbeat(self, heartbeat: BrokerHeartbeat) -> HeartbeatReply:
        self.heartbeats.append(heartbeat)
        if self.bug is not None:
            bug, self.bug = self.bug, None
            raise bug
        if self.heartbeat_allowed is not None:
            await self.heartbeat_allowed.wait()
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, ErrorCode):
            raise Refusal(reply)
        if not reply.is_fenced and self.publishes_unfence:
            unfence(self, self.lifecycle.broker_epoch)
        return reply


def publish(script: ScriptedController, *records: MetadataRecord) -> None:
    """Publish one committed batch of records in the metadata of the broker."""
    first = script.metadata.image.offset + 1
    encoded = tuple((None, encode_record(record)) for record in records)
    script.metadata.on_committed([LogBatch(first, first + len(records) - 1, 1, encoded)])


def unfence(script: ScriptedController, epoch: int) -> None:
    publish(script, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=UNFENCE))


async def test_registration_is_repeated_and_heartbeats_wait_for_the_registration_record() -> None:
    transient: list[ErrorCode | type[OSError]] = [
        ErrorCode.NOT_CONTROLLER,
        ConnectionResetError,
        TimeoutError,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NONE,
    ]
    script = ScriptedController(transient, [ErrorCode.NOT_CONTROLLER, ACTIVE])
    await asyncio.wait_for(script.lifecycle.wait_unfenced(), 10)
    assert script.lifecycle.broker_epoch == EPOCH
    assert [heartbeat.metadata_offset for heartbeat in script.heartbeats] == [EPOCH, EPOCH]
    await script.tasks.cancel_all()


async def test_heartbeats_go_on_after_an_unexpected_exception() -> None:
    script = ScriptedController([ErrorCode.NONE], [ACTIVE])
    script.bug = RuntimeError("injected")
    await asyncio.wait_for(script.lifecycle.wait_unfenced(), 10)
    assert [str(failure) for failure in script.failures] == ["injected"]
    assert len(script.heartbeats) == 2
    await script.tasks.cancel_all()


async def test_broker_waits_until_its_own_metadata_has_it_unfenced() -> None:
    """A broker that serves clients earlier can respond to Metadata without any broker.

    1. The controller commits the record that unfences this broker, and responds to its heartbeat.
    2. This broker has not fetched that record yet. In its metadata, all brokers are fenced.
    3. librdkafka receives a Metadata response without brokers. It sends no further one for that lookup.
    """
    script = ScriptedController([ErrorCode.NONE], [ACTIVE])
    script.publishes_unfence = False
    unfenced = asyncio.ensure_future(script.lifecycle.wait_unfenced())
    while not script.heartbeats:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    add_broker(script, 2, fenced=False)
    await asyncio.sleep(0)
    assert not unfenced.done()
    unfence(script, EPOCH)
    await asyncio.wait_for(unfenced, 10)
    await script.tasks.cancel_all()


async def test_previous_registration_of_the_broker_does_not_count_as_unfenced() -> None:
    script = ScriptedController([ErrorCode.NOT_CONTROLLER, ErrorCode.NONE], [ACTIVE])
    script.publishes_unfence = False
    publish(script, RegisterBrokerRecord(broker_id=1, broker_epoch=0, fenced=False))
    unfenced = asyncio.ensure_future(script.lifecycle.wait_unfenced())
    while not script.heartbeats:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not unfenced.done()
    unfence(script, EPOCH)
    await asyncio.wait_for(unfenced, 10)
    await script.tasks.cancel_all()


async def test_registration_that_keeps_its_partitions_does_not_serve_before_its_lineage_ends() -> None:
    """Until then, the previous broker epoch is evidence of a clean shutdown, so nothing may be acknowledged."""
    script = ScriptedController([ErrorCode.NOT_CONTROLLER, ErrorCode.NONE], [ACTIVE])
    script.publishes_unfence = False
    publish(script, RegisterBrokerRecord(broker_id=1, broker_epoch=0, fenced=False))
    unfenced = asyncio.ensure_future(script.lifecycle.wait_unfenced())
    while not script.heartbeats:
        await asyncio.sleep(0)
    publish(script, RegisterBrokerRecord(broker_id=1, broker_epoch=EPOCH, fenced=False))
    await asyncio.sleep(0)
    kept = script.metadata.image.brokers[1]
    assert (kept.fenced, kept.lineage) == (False, (0,))
    assert not unfenced.done()
    unfence(script, EPOCH)
    await asyncio.wait_for(unfenced, 10)
    await script.tasks.cancel_all()


async def test_final_registration_error_stops_the_node() -> None:
    script = ScriptedController([ErrorCode.INCONSISTENT_CLUSTER_ID], [ACTIVE])
    await asyncio.wait_for(script.failed.wait(), 10)
    assert [str(error).split(":")[0] for error in script.failures] == ["INCONSISTENT_CLUSTER_ID"]
    assert script.heartbeats == []


async def test_shutdown_ends_when_the_controller_permits_it() -> None:
    script = ScriptedController([ErrorCode.NONE], [ACTIVE, ACTIVE, ACTIVE, ACTIVE, SHUT_DOWN])
    await asyncio.wait_for(script.lifecycle.wait_unfenced(), 10)
    await asyncio.wait_for(script.lifecycle.stop(), 10)
    assert [heartbeat.want_shut_down for heartbeat in script.heartbeats] == [False, True, True, True, True]
    assert script.failures == []


def add_broker(script: ScriptedController, broker_id: int, *, fenced: bool) -> None:
    """Publish the registration of another broker."""
    publish(script, RegisterBrokerRecord(broker_id=broker_id, fenced=fenced))


async def test_shutdown_continues_with_a_controller_elected_meanwhile() -> None:
    """The controller may have failed at the same moment. A restart of a broker must still hand over its leaders."""
    script = ScriptedController(
        [ErrorCode.NONE], [ACTIVE, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, *[ACTIVE] * 3, SHUT_DOWN]
    )
    await asyncio.wait_for(script.lifecycle.wait_unfenced(), 10)
    add_broker(script, 2, fenced=False)
    await asyncio.wait_for(script.lifecycle.stop(), 10)
    assert [heartbeat.want_shut_down for heartbeat in script.heartbeats] == [False] + [True] * 6
    assert script.replies == [SHUT_DOWN], "the last reply is repeated"
    assert script.failures == []


async def test_shutdown_without_a_controller_ends_after_its_limit() -> None:
    script = ScriptedController([ErrorCode.NONE], [ACTIVE, ErrorCode.NOT_CONTROLLER], hand_over_limit_ms=0)
    await asyncio.wait_for(script.lifecycle.wait_unfenced(), 10)
    add_broker(script, 2, fenced=False)
    await asyncio.wait_for(script.lifecycle.stop(), 10)
    assert len(script.heartbeats) > 2, "more than one attempt"
    assert script.failures == []


@pytest.mark.parametrize("without_quorum", [True, False])
async def test_shutdown_does_not_wait_for_a_controller_without_quorum_or_other_brokers(without_quorum: bool) -> None:
    """No controller can be elected, or no other broker can take over the leaders."""
    script = ScriptedController([ErrorCode.NONE], [ACTIVE, ErrorCode.NOT_CONTROLLER])
    await asyncio.wait_for(script.lifecycle.wait_unfenced(), 10)
    add_broker(script, 2, fenced=not without_quorum)
    script.without_quorum = without_quorum
    await asyncio.wait_for(script.lifecycle.stop(), 10)
    assert [heartbeat.want_shut_down for heartbeat in script.heartbeats] == [False, True]
    assert script.failures == []


@pytest.mark.parametrize("error", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
async def test_stale_broker_epoch_leads_to_a_new_registration(error: ErrorCode) -> None:
    script = ScriptedController([ErrorCode.NONE, ErrorCode.NOT_CONTROLLER, ErrorCode.NONE], [error, ACTIVE])
    await asyncio.wait_for(script.lifecycle.wait_unfenced(), 10)
    assert script.lifecycle.broker_epoch == 2 * EPOCH + 1
    assert [heartbeat.broker_epoch for heartbeat in script.heartbeats] == [EPOCH, 2 * EPOCH + 1]
    await script.tasks.cancel_all()
    assert len(script.controllers) == 2, "one registration, with a second attempt"
    assert script.registered_epochs == [(EPOCH, 0), (2 * EPOCH + 1, 1)], "before the first heartbeat of the epoch"


async def test_id_in_use_stops_the_node_and_names_the_remedy() -> None:
    script = ScriptedController([ErrorCode.DUPLICATE_BROKER_REGISTRATION], [ACTIVE])
    other = RegisterBrokerRecord(broker_id=1, end_points=[BrokerEndpoint(name="P", host="h2", port=9092)])
    publish(script, other)
    await asyncio.wait_for(script.failed.wait(), 10)
    assert [str(error) for error in script.failures] == [
        "node.id 1 is in use by a running broker at h2:9092; every node needs an id of its own"
    ]


async def test_fence_request_during_a_heartbeat_is_sent_after_its_response() -> None:
    script = ScriptedController([ErrorCode.NONE], [ACTIVE])
    await asyncio.wait_for(script.lifecycle.wait_unfenced(), 10)
    heartbeat_allowed = script.heartbeat_allowed = asyncio.Event()
    script.lifecycle.want_fence("/data: No space left on device")
    while len(script.heartbeats) < 2:
        await asyncio.sleep(0)
    assert script.heartbeats[1].want_fence
    script.lifecycle._fence_requested = False  # a new fence request while the response is outstanding
    script.lifecycle.want_fence("again")
    heartbeat_allowed.set()
    while len(script.heartbeats) < 3:
        await asyncio.sleep(0)
    await script.tasks.cancel_all()


async def test_heartbeat_without_response_is_repeated() -> None:
    script = ScriptedController([ErrorCode.NONE], [ACTIVE])
    script.lifecycle._config = LifecycleConfig(request_timeout_ms=1, retry_backoff_ms=1)
    script.heartbeat_allowed = asyncio.Event()
    while len(script.heartbeats) < 3:
        await asyncio.sleep(0.001)
    script.heartbeat_allowed.set()
    await asyncio.wait_for(script.lifecycle.wait_unfenced(), 10)
    await script.tasks.cancel_all()
    assert script.failures == []
