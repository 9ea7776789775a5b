"""Partitions over real logs in a folder, and the services that the data APIs use, without a node or a socket."""

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.marker_writer import MarkerWriter
from odradek.broker.coordinators.txn_verification import TransactionVerifier
from odradek.broker.fetch.record_jobs import RecordJobs
from odradek.broker.fetch.sessions import FetchSessions
from odradek.broker.partition.leader_term import LeaderTerm
from odradek.broker.partition.partition import Partition
from odradek.broker.partition.registry import Partitions
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.broker.replication.leader_fetch import ReplicaFetches
from odradek.broker.replication.leader_sessions import ReplicaSessions
from odradek.broker.replication.throttle import ReplicaThrottles, Throttle
from odradek.broker.requests.api import Ordered
from odradek.broker.requests.session import Session
from odradek.broker.security.authorizer import AllowAll
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import DIRECTORY_UNASSIGNED, EMPTY_IMAGE, MetadataImage
from odradek.cluster.metadata.records import MetadataRecord
from odradek.cluster.replication.leader import PendingIsrChange
from odradek.protocol.batch import build_batch
from odradek.protocol.errors import ErrorCode
from odradek.protocol.primitives import INT64_MAX
from odradek.protocol.records.metadata import PartitionRecord, RegisterBrokerRecord, TopicRecord
from odradek.storage.config import LogConfig
from odradek.storage.data_directory.log_manager import StaleCheckpoint
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.disk.port import RESOURCE_ERRORS, ResourcesExhausted
from odradek.storage.files import checkpoint
from odradek.storage.log.log import PartitionLog
from odradek.storage.recovery.loaded_log import OpenOptions
from tests.support import broker_context
from tests.support.delayed_commits import delayed_by
from tests.support.quotas import Unlimited

COORDINATOR_EPOCH_MAX = 1_000
NOW_MS = 1_700_000_000_000
NODE = 1


class Clock:
    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.wall_jump_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms + self.wall_jump_ms

    def expiry_ms(self) -> int:
        return self.wall_ms()

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic_us(self) -> int:
        return self.monotonic_ms() * 1_000


class ManualCommit:
    """Commit condition of one leader term: the high watermark advances when the test calls `advance`."""

    def __init__(self, topic: str, partition: int, advance: Callable[[int], None]) -> None:
        self._advance: Callable[[int], None] | None = advance
        self.reached = 0

    def acknowledgeable(self, offset: int) -> None:
        self.reached = offset

    def advance(self, offset: int | None = None) -> None:
        """Commit up to `offset`, or up to the log end."""
        if self._advance is not None:
            self._advance(self.reached if offset is None else offset)

    def close(self) -> None:
        self._advance = None


@dataclass
class Logs:
    """The part of LogManager that Partitions uses, over one folder."""

    disk: Any
    folder: Path
    logs: dict[tuple[str, int], PartitionLog] = field(default_factory=dict)
    deleted: list[tuple[str, int]] = field(default_factory=list)
    remembered: dict[tuple[str, int], None] = field(default_factory=dict)
    """Names that cannot be used before `remove_stale_entries`."""
    forgetting_fails: OSError | None = None

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self.logs.get((topic, partition))

    def create(self, topic: str, partition: int, topic_id: UUID, config: LogConfig, now_ms: int) -> PartitionLog:
        if (topic, partition) in self.remembered:
            raise StaleCheckpoint(topic)
        existing = self.logs.get((topic, partition))
        assert existing is None or existing.topic_id == topic_id, "LogManager would keep the existing log as a stray"
        log = PartitionLog.open(
            self.disk,
            str(self.folder / f"{topic}-{partition}"),
            config,
            OpenOptions(now_ms),
            topic=topic,
            partition=partition,
            topic_id=topic_id,
        )
        self.logs[topic, partition] = log
        return log

    async def checkpoint_log_starts(self) -> None:
        await self.disk.replace_file(
            str(self.folder / checkpoint.LOG_START_OFFSETS),
            checkpoint.encode_offsets({key: log.log_start_offset for key, log in self.logs.items()}),
        )

    def delete(self, topic: str, partition: int) -> Coroutine[Any, Any, None]:
        self.deleted.append((topic, partition))
        log = self.logs.pop((topic, partition))
        log.close(clean=False)
        self.disk.rename(log.directory, f"{log.directory}.{log.topic_id}-delete")
        return asyncio.sleep(0)

    async def remove_stale_entries(self) -> None:
        if self.forgetting_fails is not None:
            raise self.forgetting_fails
        self.remembered.clear()


class FailingDisk(OsDisk):
    """Disk on which a test can make opens, writes, reads or syncs fail: `failing[operation]` is the errno."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: dict[str, int] = {}
        self.syncs = 0
        self.sync_allowed: asyncio.Event | None = None

    def check_resources(self) -> None:
        self.check("resources")

    def open(self, path: str, *, create: bool) -> Any:
        self.check("open")
        return _FailingFile(super().open(path, create=create), self)

    def check(self, operation: str) -> None:
        if operation in self.failing:
            reason, message = self.failing[operation], f"injected: {operation}"
            raise (ResourcesExhausted if reason in RESOURCE_ERRORS else OSError)(reason, message)


class _FailingFile:
    def __init__(self, file: Any, disk: FailingDisk) -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, offset: int, *buffers: Any) -> None:
        self._disk.check("write")
        self._file.write(offset, *buffers)

    def read_warm(self, offset: int, size: int) -> Any:
        self._disk.check("read")
        if "cold" in self._disk.failing:
            return None
        return self._file.read_warm(offset, size)

    async def read_cold(self, offset: int, size: int) -> Any:
        self._disk.check("read_cold")
        return await self._file.read_cold(offset, size)

    async def sync(self) -> None:
        self._disk.syncs += 1
        if self._disk.sync_allowed is not None:
            await self._disk.sync_allowed.wait()
        self._disk.check("sync")
        await self._file.sync()


class FakeTxnCoordinator:
    """Fake transaction coordinator: responds with `error` for every partition."""

    def __init__(self) -> None:
        self.error = ErrorCode.NONE
        self.responds_later = False
        self.verified: list[tuple[str, int]] = []

    def verify_partitions(self, transactional_id: str, producer_id: int, epoch: int, partitions: Any) -> Any:
        self.verified.extend(partitions)
        future = asyncio.get_running_loop().create_future()
        results = dict.fromkeys(partitions, self.error)
        if self.responds_later:
            future.get_loop().call_soon(future.set_result, results)
        else:
            future.set_result(results)
        return future

    add_partitions_for_produce = verify_partitions


class FakeReplication:
    """Fake `odradek.broker.partition.ports.Replication`: records the calls of partitions."""

    def __init__(self, metadata: Any) -> None:
        self.lag_max_ms = 30_000
        self.fetch_wait_max_ms = 500
        self.metadata = metadata
        self.isr_changes: list[tuple[Partition, PendingIsrChange]] = []
        self.followed: dict[Partition, tuple[int, int]] = {}
        self.elections: list[Partition] = []
        self.offline: list[tuple[str, int]] = []

    def broker_epoch_of(self, broker_id: int) -> int | None:
        broker = self.metadata.image.brokers.get(broker_id)
        return broker.epoch if broker is not None and broker.is_active else None

    def went_offline(self, topic: str, index: int, error: OSError) -> None:
        self.offline.append((topic, index))

    def change_isr(self, partition: Partition, change: PendingIsrChange) -> None:
        self.isr_changes.append((partition, change))

    def elected(self, partition: Partition) -> None:
        self.elections.append(partition)

    def follow(self, partition: Partition, leader: int) -> None:
        self.followed[partition] = leader, partition.leader_epoch

    def stop_following(self, partition: Partition) -> None:
        self.followed.pop(partition, None)


class Rig:
    """Data path of one broker. Metadata records create the topics, as in a node."""

    def __init__(
        self,
        folder: Path,
        *assignments: str,
        manual_commits: bool = False,
        config: LogConfig | None = None,
        node_id: int = NODE,
    ) -> None:
        self.node_id = node_id
        self.clock = Clock()
        self.disk = FailingDisk()
        self.logs = Logs(self.disk, folder)
        self.config = broker_context.config(*assignments)
        self.log_config = config or LogConfig()
        self.tasks: list[asyncio.Task[Any]] = []
        self.commits: list[ManualCommit] = []
        """With `manual_commits`: the commit condition of each leader term, in the order of the elections."""
        self.metadata = SimpleNamespace(image=EMPTY_IMAGE)
        self.rates = {"leader": INT64_MAX, "follower": INT64_MAX}
        self.throttles = ReplicaThrottles(
            node_id,
            Throttle(lambda: self.rates["leader"], self.clock),
            Throttle(lambda: self.rates["follower"], self.clock),
            self.is_in_sync,
        )
        self.replication: Any = self.make_replication()
        self.partitions = Partitions(
            node_id=node_id,
            logs=self.logs,  # type: ignore[arg-type]  # the part that is used
            clock=self.clock,
            spawn=self.spawn,
            config_of=self.config_of,
            replication=self.replication,
            leader_term=delayed_by(self._manual_commit) if manual_commits else LeaderTerm,
        )
        self.coordinator = FakeTxnCoordinator()
        self.authorizer: AllowAll = AllowAll()
        self.closed: list[str] = []
        self.contacts: list[int] = []
        self.session = Session(1, broker_context.LISTENER, "127.0.0.1", 5, on_close=self.closed.append)
        self.services: Any = SimpleNamespace(
            config=self.config,
            clock=self.clock,
            budget=ByteBudget(self.config.byte_budget),
            metadata=self.metadata,
            partitions=self.partitions,
            record_jobs=RecordJobs(ByteBudget(self.config.byte_budget)),
            verifier=TransactionVerifier(self.coordinator, self.config),
            fetch_sessions=FetchSessions(self.config.max_incremental_fetch_session_cache_slots, random.Random(3)),
            markers=MarkerWriter(
                self.partitions, self.clock, self.config.request_timeout_ms, lambda: COORDINATOR_EPOCH_MAX
            ),
            authorizer=self.authorizer,
            audit=None,
            quotas=Unlimited(),
            node_id=node_id,
            peers=SimpleNamespace(note_contact=self.contacts.append),
        )
        eager = self.config.replica_selector_class is not None
        self.sessions = ReplicaSessions(self.partitions, random.Random(4), eager=eager, throttles=self.throttles)
        self.services.replica_fetches = ReplicaFetches(
            self.sessions, self.clock, self.services.budget, self.spawn, self.config.fetch_max_bytes
        )
        self.begin()

    def _manual_commit(self, topic: str, partition: int, advance: Callable[[int], None]) -> ManualCommit:
        self.commits.append(ManualCommit(topic, partition, advance))
        return self.commits[-1]

    def is_in_sync(self, partition: Partition) -> bool:
        return self.node_id in self.metadata.image.partition(partition.topic, partition.index).isr

    def make_replication(self) -> Any:
        return FakeReplication(self.metadata)

    def begin(self) -> None:
        self.play(
            RegisterBrokerRecord(broker_id=NODE, broker_epoch=1, fenced=False),
            RegisterBrokerRecord(broker_id=2, broker_epoch=1, fenced=False),
        )

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self.tasks.append(task)
        return task

    def config_of(self, overrides: Mapping[str, str]) -> LogConfig:
        values: dict[str, Any] = {name.replace(".", "_"): int(value) for name, value in overrides.items()}
        return replace(self.log_config, **values)

    def play(self, *records: MetadataRecord) -> MetadataImage:
        delta = MetadataDelta(self.metadata.image)
        for number, record in enumerate(records, 1):
            delta.replay(self.metadata.image.offset + number, 1, record)
        image = delta.build()
        self.metadata.image = image
        self.partitions.on_metadata(delta, image)
        return image

    async def changes_applied(self) -> None:
        """Wait until all changes of the metadata are applied."""
        while self.tasks:
            await self.tasks.pop()

    def topic(
        self, name: str, count: int = 1, *, leader: int = NODE, replicas: Sequence[int] = (NODE,), number: int = 100
    ) -> UUID:
        topic_id = UUID(int=number)
        self.play(
            TopicRecord(name=name, topic_id=topic_id),
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=list(replicas),
                    isr=list(replicas),
                    leader=leader,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[DIRECTORY_UNASSIGNED] * len(replicas),
                )
                for index in range(count)
            ),
        )
        return topic_id

    def partition(self, topic: str = "t", index: int = 0) -> Partition:
        return self.partitions.find(topic, index)

    def context(self, api_key: int, version: int, client_id: str = "client") -> BrokerRequestContext:
        return broker_context.request_context(
            api_key, version, self.session, self.services, self.clock.now_ms, client_id
        )


def batch(
    *values: bytes, producer_id: int = -1, epoch: int = -1, sequence: int = -1, transactional: bool = False
) -> bytes:
    return build_batch(
        [(None, value, NOW_MS, ()) for value in values or (b"v",)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def fetched(rig: Rig, broker_id: int, offset: int, index: int = 0, topic: str = "t") -> None:
    """Record a fetch of follower `broker_id` that has all records below `offset`."""
    leading = rig.partition(topic, index).leader_term
    assert leading is not None
    leading.fetched(leading.replicas.followers[broker_id], 1, offset, rig.clock.now_ms)


async def outcome(result: Any) -> Any:
    """Return the response of a handler after both stages of the request."""
    while isinstance(result, Ordered):
        result = await result.awaitable
    return await result if isinstance(result, Awaitable) else result


EIO = errno.EIO
