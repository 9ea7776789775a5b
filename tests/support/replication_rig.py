"""Replication between several brokers with real logs, handlers and encoded requests, without sockets and without a
controller.

The test acts as the controller: `Brokers.play` applies metadata records to all brokers. A request arrives in the next
loop iteration.
"""

import asyncio
from asyncio import Future, get_running_loop
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from odradek.broker.apis import fetch, list_offsets
from odradek.broker.quorum.peers import Channel
from odradek.broker.replication.follower_session import BrokerIdentity
from odradek.broker.replication.log_start_check import LogStartChecks
from odradek.broker.replication.manager import ReplicationManager
from odradek.broker.requests.session import Session
from odradek.cluster.controller.messages.partitions import AlteredPartition, PartitionIsr
from odradek.cluster.metadata.image import DIRECTORY_UNASSIGNED
from odradek.cluster.metadata.records import MetadataRecord
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.records.metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from odradek.protocol.schema import Message
from odradek.storage.config import LogConfig
from odradek.storage.producers.entry import Origin
from tests.support import broker_context
from tests.support.data_rig import NOW_MS, Rig, batch, outcome

APIS: dict[int, Any] = {api.key: api for api in (fetch.API, list_offsets.API)}
TOPIC_ID = UUID(int=100)
UNTIL_S = 60.0
BROKER_RECORDS = (RegisterBrokerRecord, BrokerRegistrationChangeRecord, UnregisterBrokerRecord)


class FakePeers:
    """Fake `odradek.broker.quorum.peers.Peers` of one broker.

    It encodes requests and calls the handler of the target broker.
    """

    def __init__(self, brokers: "Brokers", node_id: int) -> None:
        self._brokers = brokers
        self._node_id = node_id
        self._sessions: dict[int, Session] = {}
        self.requests: list[Message] = []

    def note_contact(self, node_id: int) -> None:
        pass

    def request(
        self, node_id: int, channel: Channel, request: Message, version: int, *, timeout_ms: int
    ) -> "Future[Any]":
        future: Future[Any] = get_running_loop().create_future()
        self.requests.append(request)
        self._brokers[self._node_id].spawn(self._deliver(node_id, request, version, future), "carry")
        return future

    async def _deliver(self, node_id: int, request: Message, version: int, future: "Future[Any]") -> None:
        brokers = self._brokers
        await asyncio.sleep(0)
        if not brokers.connected(self._node_id, node_id):
            if not future.done():
                future.set_exception(ConnectionError(f"broker {node_id} is not reachable"))
            return
        target = brokers[node_id]
        session = self._sessions.setdefault(node_id, Session(self._node_id, broker_context.LISTENER, "peer", 1))
        session.wake_waiting()
        if isinstance(request, ApiVersionsRequest):  # a nudge; its response is not read
            future.set_result(ApiVersionsResponse())
            return
        api = APIS[request.API_KEY]
        context = target.context(api.key, version)
        context.session = session
        decoded = decode(type(request), version, encode(request, version))
        response = await outcome(api.handle(context, decoded))
        if not brokers.connected(self._node_id, node_id):
            if not future.done():
                future.set_exception(ConnectionError(f"connection to broker {node_id} was lost"))
            return
        if not future.done():
            future.set_result(decode(api.response, version, encode(response, version)))


class Controller:
    """Fake controller: accepts each ISR change and sends it to all brokers, except for the queued `errors`."""

    def __init__(self, brokers: "Brokers") -> None:
        self._brokers = brokers
        self.errors: list[ErrorCode] = []
        self.requests: list[PartitionIsr] = []
        self.silent = False

    async def alter_partition(
        self, broker_id: int, broker_epoch: int, partitions: Sequence[PartitionIsr]
    ) -> tuple[AlteredPartition, ...]:
        self.requests += partitions
        results = []
        for change in partitions:
            partition = self._brokers.newest.topic_by_id(change.topic_id).partitions[change.index]
            error = self.errors.pop(0) if self.errors else ErrorCode.NONE
            if change.leader_epoch < partition.leader_epoch:
                error = ErrorCode.FENCED_LEADER_EPOCH
            elif change.partition_epoch < partition.partition_epoch:
                error = ErrorCode.INVALID_UPDATE_VERSION
            elif error is ErrorCode.INVALID_UPDATE_VERSION:
                self._brokers.change(change.index, isr=list(partition.isr))  # a concurrent change of the partition
            if error is ErrorCode.NONE:
                self._brokers.change(change.index, isr=[member for member, _ in change.isr])
            state = self._brokers.newest.topic_by_id(change.topic_id).partitions[change.index]
            results.append(
                AlteredPartition(
                    change.topic_id,
                    change.index,
                    error,
                    state.leader,
                    state.leader_epoch,
                    state.partition_epoch,
                    state.isr,
                )
            )
        return tuple(results)


class Broker(Rig):
    """Data path of one broker, with replication."""

    def __init__(
        self, brokers: "Brokers", node_id: int, folder: Path, config: LogConfig | None, settings: Sequence[str]
    ) -> None:
        self.brokers = brokers
        self.peers = FakePeers(brokers, node_id)
        self.broker_epoch = 10 + node_id
        self.log_start_check_count = 0
        self.log_start_check_error: OSError | None = None
        self.log_start_failures: list[OSError] = []
        self.log_start_checks = LogStartChecks(self.check_log_start, self.log_start_failures.append)
        self.disk_failures: list[tuple[str, bool]] = []
        folder.mkdir(exist_ok=True)
        settings = ("replica.fetch.wait.max.ms=200", f"node.id={node_id}", *settings)
        super().__init__(folder, *settings, config=config, node_id=node_id)
        self.services.topic_settings = None
        self.partitions.on_elected(self.sessions.elected)
        self.services.peers = self.peers

    def make_replication(self) -> ReplicationManager:
        return ReplicationManager(
            self.config,
            BrokerIdentity(self.node_id, lambda: self.broker_epoch),
            metadata=self.metadata,  # type: ignore[arg-type]  # only its image is used
            peers=self.peers,  # type: ignore[arg-type]  # the part of Peers that is used
            controller=self.brokers.controller,  # type: ignore[arg-type]  # the part that is used
            logs=self,  # type: ignore[arg-type]  # the part that is used
            clock=self.clock,
            spawn=self.spawn,
            disk_failed=lambda what, others: self.disk_failures.append((what, others)),
            log_start_checks=self.log_start_checks,
            throttles=self.throttles,
        )

    def check_log_start(self) -> None:
        if self.log_start_check_error is not None:
            raise self.log_start_check_error
        self.log_start_check_count += 1

    async def lower_recovery_point(self, topic: str, partition: int, offset: int) -> None:
        await asyncio.sleep(0)

    async def checkpoint_log_starts(self) -> None:
        await asyncio.sleep(0)

    def begin(self) -> None:
        """Brokers are registered by `Brokers`."""

    @property
    def fetches(self) -> list[FetchRequest]:
        """Return the Fetch requests that this broker sent."""
        return [request for request in self.peers.requests if isinstance(request, FetchRequest)]

    def append(self, *values: bytes, index: int = 0, acks: int = -1, **producer: Any) -> None:
        self.partition("t", index).append(batch(*values, **producer), origin=Origin.CLIENT, now_ms=NOW_MS, acks=acks)

    def content(self, index: int = 0) -> bytes:
        """Return all batches of the log as bytes."""
        log = self.partition("t", index).log
        read: Any = log.read(log.log_start_offset, max_bytes=2**30)
        return bytes(read.records)

    def end(self, index: int = 0) -> int:
        return self.partition("t", index).log.log_end_offset

    def acknowledged_by(self, node_id: int, index: int = 0) -> int:
        leader_term = self.partition("t", index).leader_term
        return -1 if leader_term is None else leader_term.replicas.followers[node_id].log_end

    def committed(self, index: int = 0) -> int:
        return self.partition("t", index).log.high_watermark


class Brokers:
    """Brokers 1 to `count` with common metadata.

    `isolated` ones reach no other broker; `lagging` ones receive no metadata.
    """

    def __init__(
        self, folder: Path, count: int = 3, config: LogConfig | None = None, settings: Sequence[str] = ()
    ) -> None:
        self.controller = Controller(self)
        self.isolated: dict[int, None] = {}
        self.lagging: dict[int, None] = {}
        self._metadata_log: list[tuple[MetadataRecord, ...]] = []
        self._records_sent: dict[int, int] = {}
        self._all = {
            number: Broker(self, number, folder / str(number), config, settings) for number in range(1, count + 1)
        }
        self.play(
            *(
                RegisterBrokerRecord(broker_id=number, broker_epoch=10 + number, fenced=False)
                for number in range(1, count + 1)
            )
        )

    def __getitem__(self, node_id: int) -> Broker:
        return self._all[node_id]

    def connected(self, broker_1: int, broker_2: int) -> bool:
        return broker_1 not in self.isolated and broker_2 not in self.isolated

    def play(self, *records: MetadataRecord) -> None:
        """Apply metadata records to all brokers except lagging ones."""
        self._metadata_log.append(records)
        for broker in self._all.values():
            if broker.node_id not in self.lagging:
                self._send_metadata(broker)

    def receive_metadata(self, node_id: int) -> None:
        """Send the missed metadata records to a lagging broker."""
        self.lagging.pop(node_id, None)
        self._send_metadata(self._all[node_id])

    def _send_metadata(self, broker: Broker) -> None:
        unsent = self._metadata_log[self._records_sent.get(broker.node_id, 0) :]
        for records in unsent:
            broker.play(*records)
        self._records_sent[broker.node_id] = len(self._metadata_log)
        changed = [record.broker_id for records in unsent for record in records if isinstance(record, BROKER_RECORDS)]
        broker.replication.on_metadata(SimpleNamespace(changed_brokers=lambda: changed), broker.metadata.image)

    def topic(self, count: int = 1, *, leader: int = 1, replicas: Sequence[int] = (1, 2, 3)) -> None:
        self.play(TopicRecord(name="t", topic_id=TOPIC_ID))
        self.add_partitions(count, leader=leader, replicas=replicas)

    def add_partitions(
        self, count: int, *, first: int = 0, leader: int = 1, replicas: Sequence[int] = (1, 2, 3)
    ) -> None:
        self.play(
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=TOPIC_ID,
                    replicas=list(replicas),
                    isr=list(replicas),
                    leader=leader,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[DIRECTORY_UNASSIGNED] * len(replicas),
                )
                for index in range(first, first + count)
            ),
        )

    def fence(self, node_id: int, **change: Any) -> None:
        """Fence the broker and change partition 0."""
        self.play(
            BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=10 + node_id, fenced=1),
            PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, **change),
        )

    def unregister(self, node_id: int, **change: Any) -> None:
        """Unregister the broker and change partition 0."""
        self.play(
            UnregisterBrokerRecord(broker_id=node_id, broker_epoch=self._all[node_id].broker_epoch),
            PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, **change),
        )

    @property
    def newest(self) -> Any:
        """Return the newest metadata image of all brokers."""
        return max((broker.metadata.image for broker in self._all.values()), key=lambda image: image.offset)

    def restart(self, node_id: int) -> None:
        """Register the broker with a new broker epoch, unfenced."""
        broker = self._all[node_id]
        broker.broker_epoch += 100
        self.play(RegisterBrokerRecord(broker_id=node_id, broker_epoch=broker.broker_epoch, fenced=False))

    def unfence(self, node_id: int) -> None:
        self.play(BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=10 + node_id, fenced=-1))

    async def reconnect(self, node_id: int) -> None:
        """Unfence an isolated broker, and wait until it rejoined the ISR of broker 1."""
        self.unfence(node_id)
        del self.isolated[node_id]
        leader_term = self[1].partition().leader_term
        assert leader_term is not None
        await self.until(lambda: leader_term.replicas.isr == tuple(self._all))

    def change(self, index: int = 0, **change: Any) -> None:
        self.play(PartitionChangeRecord(partition_id=index, topic_id=TOPIC_ID, **change))

    async def rounds(self, count: int) -> None:
        """Run `count` iterations of the event loop."""
        for _ in range(count):
            await asyncio.sleep(0)

    async def until(self, holds: Any) -> None:
        """Run the event loop until `holds()`.

        Pauses of fetchers take real time, so that the limit is a time, not a number of rounds.
        """
        async with asyncio.timeout(UNTIL_S):
            while not holds():
                await asyncio.sleep(0)

    async def until_in_rounds(self, holds: Any, rounds: int) -> None:
        """Run at most `rounds` loop iterations until `holds()`. No fetcher may pause meanwhile."""
        for _ in range(rounds):
            if holds():
                return
            await asyncio.sleep(0)
        raise AssertionError(f"condition not reached in {rounds} rounds")

    async def close(self) -> None:
        for broker in self._all.values():
            broker.replication.close()
            for task in broker.tasks:
                task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
