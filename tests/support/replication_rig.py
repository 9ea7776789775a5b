"""Several brokers' replication over real logs, with the handlers and bytes of the wire but without sockets or a controller.

The test is the controller: `Brokers.play` gives all of them the same metadata. Requests travel in the loop's next round.
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

ROWS: dict[int, Any] = {api.key: api for api in (fetch.API, list_offsets.API)}
TOPIC_ID = UUID(int=100)
UNTIL_S = 60.0
OF_BROKERS = (RegisterBrokerRecord, BrokerRegistrationChangeRecord, UnregisterBrokerRecord)


class Wire:
    """`odradek.broker.quorum.peers.Peers` of one broker: requests reach the handler of another one through the codec."""

    def __init__(self, brokers: "Brokers", node_id: int) -> None:
        self._brokers = brokers
        self._node_id = node_id
        self._sessions: dict[int, Session] = {}
        self.asked: list[Message] = []

    def note_contact(self, node_id: int) -> None:
        pass

    def request(
        self, node_id: int, channel: Channel, request: Message, version: int, *, timeout_ms: int
    ) -> "Future[Any]":
        future: Future[Any] = get_running_loop().create_future()
        self.asked.append(request)
        self._brokers[self._node_id].spawn(self._carry(node_id, request, version, future), "carry")
        return future

    async def _carry(self, node_id: int, request: Message, version: int, future: "Future[Any]") -> None:
        brokers = self._brokers
        await asyncio.sleep(0)
        if not brokers.connected(self._node_id, node_id):
            if not future.done():
                future.set_exception(ConnectionError(f"{node_id} is not reached"))
            return
        target = brokers[node_id]
        session = self._sessions.setdefault(node_id, Session(self._node_id, broker_context.LISTENER, "peer", 1))
        session.wake_waiting()
        if isinstance(request, ApiVersionsRequest):  # a nudge, whose answer nobody looks at
            future.set_result(ApiVersionsResponse())
            return
        row = ROWS[request.API_KEY]
        context = target.context(row.key, version)
        context.session = session
        asked = decode(type(request), version, encode(request, version))
        answer = await outcome(row.handle(context, asked))
        if not brokers.connected(self._node_id, node_id):
            if not future.done():
                future.set_exception(ConnectionError(f"{node_id} was lost"))
            return
        if not future.done():
            future.set_result(decode(row.response, version, encode(answer, version)))


class Controller:
    """Grants every change of an ISR, unless the test says otherwise, by playing it to all brokers."""

    def __init__(self, brokers: "Brokers") -> None:
        self._brokers = brokers
        self.errors: list[ErrorCode] = []
        self.asked: list[PartitionIsr] = []
        self.silent = False

    async def alter_partition(
        self, broker_id: int, broker_epoch: int, partitions: Sequence[PartitionIsr]
    ) -> tuple[AlteredPartition, ...]:
        self.asked += partitions
        answers = []
        for change in partitions:
            known = self._brokers.newest.topic_by_id(change.topic_id).partitions[change.index]
            error = self.errors.pop(0) if self.errors else ErrorCode.NONE
            if change.leader_epoch < known.leader_epoch:
                error = ErrorCode.FENCED_LEADER_EPOCH
            elif change.partition_epoch < known.partition_epoch:
                error = ErrorCode.INVALID_UPDATE_VERSION
            elif error is ErrorCode.INVALID_UPDATE_VERSION:
                self._brokers.change(change.index, isr=list(known.isr))  # what it is that the change did not know of
            if error is ErrorCode.NONE:
                self._brokers.change(change.index, isr=[member for member, _ in change.isr])
            state = self._brokers.newest.topic_by_id(change.topic_id).partitions[change.index]
            answers.append(
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
        return tuple(answers)


class Broker(Rig):
    """One broker's data path with its replication."""

    def __init__(
        self, brokers: "Brokers", node_id: int, folder: Path, config: LogConfig | None, settings: Sequence[str]
    ) -> None:
        self.brokers = brokers
        self.wire = Wire(brokers, node_id)
        self.broker_epoch = 10 + node_id
        self.vouches = 0
        self.cannot_vouch: OSError | None = None
        self.touch: list[OSError] = []
        self.log_start_checks = LogStartChecks(self.vouch, self.touch.append)
        self.disk_failures: list[tuple[str, bool]] = []
        folder.mkdir(exist_ok=True)
        settings = ("replica.fetch.wait.max.ms=200", f"node.id={node_id}", *settings)
        super().__init__(folder, *settings, config=config, node_id=node_id)
        self.services.topic_settings = None
        self.partitions.on_elected(self.sessions.elected)
        self.services.peers = self.wire

    def make_replication(self) -> ReplicationManager:
        return ReplicationManager(
            self.config,
            BrokerIdentity(self.node_id, lambda: self.broker_epoch),
            metadata=self.metadata,  # type: ignore[arg-type]  # its image is all that is used
            peers=self.wire,  # type: ignore[arg-type]  # the part of Peers that is used
            controller=self.brokers.controller,  # type: ignore[arg-type]  # the part that is used
            logs=self,  # type: ignore[arg-type]  # the part that is used
            clock=self.clock,
            spawn=self.spawn,
            disk_failed=lambda what, others: self.disk_failures.append((what, others)),
            log_start_checks=self.log_start_checks,
            throttles=self.throttles,
        )

    def vouch(self) -> None:
        if self.cannot_vouch is not None:
            raise self.cannot_vouch
        self.vouches += 1

    async def lower_recovery_point(self, topic: str, partition: int, offset: int) -> None:
        await asyncio.sleep(0)

    async def checkpoint_log_starts(self) -> None:
        await asyncio.sleep(0)

    def begin(self) -> None:
        """Brokers are registered by `Brokers`."""

    @property
    def fetches(self) -> list[FetchRequest]:
        """What it has asked leaders for so far."""
        return [asked for asked in self.wire.asked if isinstance(asked, FetchRequest)]

    def append(self, *values: bytes, index: int = 0, acks: int = -1, **producer: Any) -> None:
        self.partition("t", index).append(batch(*values, **producer), origin=Origin.CLIENT, now_ms=NOW_MS, acks=acks)

    def content(self, index: int = 0) -> bytes:
        """Everything in the log, as bytes."""
        log = self.partition("t", index).log
        found: Any = log.read(log.log_start_offset, max_bytes=2**30)
        return bytes(found.records)

    def end(self, index: int = 0) -> int:
        return self.partition("t", index).log.log_end_offset

    def acknowledged_by(self, node_id: int, index: int = 0) -> int:
        leading = self.partition("t", index).leader_term
        return -1 if leading is None else leading.replicas.followers[node_id].log_end

    def committed(self, index: int = 0) -> int:
        return self.partition("t", index).log.high_watermark


class Brokers:
    """Brokers 1 to `count`, and the metadata they all follow."""

    def __init__(
        self, folder: Path, count: int = 3, config: LogConfig | None = None, settings: Sequence[str] = ()
    ) -> None:
        self.controller = Controller(self)
        self.cut: dict[int, None] = {}
        self.deaf: dict[int, None] = {}
        self._journal: list[tuple[MetadataRecord, ...]] = []
        self._told: dict[int, int] = {}
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

    def connected(self, one: int, other: int) -> bool:
        return one not in self.cut and other not in self.cut

    def play(self, *records: MetadataRecord) -> None:
        """All brokers get to know of it; deaf ones later."""
        self._journal.append(records)
        for broker in self._all.values():
            if broker.node_id not in self.deaf:
                self._tell(broker)

    def hear(self, node_id: int) -> None:
        """A deaf broker gets to know what it has missed."""
        self.deaf.pop(node_id, None)
        self._tell(self._all[node_id])

    def _tell(self, broker: Broker) -> None:
        news = self._journal[self._told.get(broker.node_id, 0) :]
        for records in news:
            broker.play(*records)
        self._told[broker.node_id] = len(self._journal)
        changed = [record.broker_id for records in news for record in records if isinstance(record, OF_BROKERS)]
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
        """The controller holds the broker dead, and changes partition 0."""
        self.play(
            BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=10 + node_id, fenced=1),
            PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, **change),
        )

    def unregister(self, node_id: int, **change: Any) -> None:
        """The controller forgets the broker, and changes partition 0."""
        self.play(
            UnregisterBrokerRecord(broker_id=node_id, broker_epoch=self._all[node_id].broker_epoch),
            PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, **change),
        )

    @property
    def newest(self) -> Any:
        """The metadata of the broker that has heard most."""
        return max((broker.metadata.image for broker in self._all.values()), key=lambda image: image.offset)

    def restart(self, node_id: int) -> None:
        """The broker registers anew, and may join."""
        broker = self._all[node_id]
        broker.broker_epoch += 100
        self.play(RegisterBrokerRecord(broker_id=node_id, broker_epoch=broker.broker_epoch, fenced=False))

    def unfence(self, node_id: int) -> None:
        self.play(BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=10 + node_id, fenced=-1))

    async def back(self, node_id: int) -> None:
        """A broker that was cut off and fenced hears of the others again, and catches up with broker 1."""
        self.unfence(node_id)
        del self.cut[node_id]
        leading = self[1].partition().leader_term
        assert leading is not None
        await self.until(lambda: leading.replicas.isr == tuple(self._all))

    def change(self, index: int = 0, **change: Any) -> None:
        self.play(PartitionChangeRecord(partition_id=index, topic_id=TOPIC_ID, **change))

    async def rounds(self, count: int) -> None:
        """Let everybody work for a while."""
        for _ in range(count):
            await asyncio.sleep(0)

    async def until(self, holds: Any) -> None:
        """Let everybody work until `holds()`. Pauses of fetchers are real ones, so rounds of the loop are no measure."""
        async with asyncio.timeout(UNTIL_S):
            while not holds():
                await asyncio.sleep(0)

    async def soon(self, holds: Any, rounds: int) -> None:
        """As `until`, within so many rounds of the loop: no pause may lie on the way."""
        for _ in range(rounds):
            if holds():
                return
            await asyncio.sleep(0)
        raise AssertionError("it never came to that")

    async def close(self) -> None:
        for broker in self._all.values():
            broker.replication.close()
            for task in broker.tasks:
                task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
