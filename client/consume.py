"""Records of a topic, one by one, as a consumer without a group reads them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odradek.client import topics as topic_admin
from odradek.client.client import PASSING, RETRY_INTERVAL_S, TIMEOUT_S, Cluster, Failed, Unaskable, check
from odradek.client.content import shown, shown_headers
from odradek.protocol.batch import ControlType, Record, control_type, iter_batches, iter_records
from odradek.protocol.errors import ErrorCode, Malformed
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from odradek.protocol.messages.fetch import PartitionData
    from odradek.protocol.messages.metadata import MetadataResponseTopic

FETCH_BYTES_MAX = 8 * 2**20
DECOMPRESSED_BYTES_MAX = 256 * 2**20
"""Of one batch; a producer's compression may not fill the memory of whoever reads."""
FOLLOW_WAIT_MS = 500
"""How long a fetch waits for records where more than one leader has to be asked in turn."""
FOLLOW_LONG_WAIT_MS = 5_000
LEADERLESS = PASSING | {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.REPLICA_NOT_AVAILABLE}


@dataclass(slots=True)
class Reader:
    """One partition: where it is, and where it ends (None: never)."""

    index: int
    leader: int
    position: int
    end: int | None

    @property
    def done(self) -> bool:
        return self.end is not None and self.position >= self.end


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to read. `start` is earliest, latest or an offset; `follow` goes on at the end; `count` ends it before."""

    topic: str
    partitions: Sequence[int] = ()
    start: str = "earliest"
    follow: bool = False
    count: int | None = None
    committed_only: bool = True


@dataclass(slots=True)
class Consumer:
    """A topic in reading. `records` is all there is to it."""

    cluster: Cluster
    wanted: Wanted
    topic_id: UUID = field(init=False)
    readers: dict[int, Reader] = field(init=False)
    _lost_s: float | None = None  # since when a partition has had no leader

    def __post_init__(self) -> None:
        topic, wanted = self._topic(), self.wanted
        self.topic_id = topic.topic_id
        there = {partition.partition_index: partition.leader_id for partition in topic.partitions}
        if unknown := [index for index in wanted.partitions if index not in there]:
            raise Failed(f"topic {wanted.topic} has no partition {unknown[0]}; it has {len(there)}")
        isolation = topic_admin.READ_COMMITTED if wanted.committed_only else topic_admin.READ_UNCOMMITTED
        ends = topic_admin.offsets(self.cluster, [topic], topic_admin.LATEST, isolation)
        first = topic_admin.offsets(self.cluster, [topic], topic_admin.EARLIEST, isolation)
        self.readers = {}
        for index in sorted(wanted.partitions or there):
            key = (wanted.topic, index)
            if key not in ends or key not in first:
                raise Failed(
                    f"{wanted.topic}-{index} has no leader that answers; see: odradek topics describe {wanted.topic}"
                )
            end = None if wanted.follow else ends[key]
            self.readers[index] = Reader(index, there[index], first_of(wanted.start, first[key], ends[key]), end)

    def records(self) -> Iterator[dict[str, Any]]:
        """Until the end that was seen when it began, or for ever. Raises Failed."""
        left = self.wanted.count
        while waiting := [reader for reader in self.readers.values() if not reader.done]:
            by_leader: dict[int, list[Reader]] = {}
            for reader in waiting:
                by_leader.setdefault(reader.leader, []).append(reader)
            for leader, readers in by_leader.items():
                for row in self._fetch(leader, readers, alone=len(by_leader) == 1):
                    if left == 0:
                        return
                    yield row
                    left = None if left is None else left - 1
                    if left == 0:
                        return

    def _topic(self) -> MetadataResponseTopic:
        [topic] = topic_admin.named(self.cluster, [self.wanted.topic])
        return topic

    def _fetch(self, leader: int, readers: list[Reader], *, alone: bool) -> Iterator[dict[str, Any]]:
        parts = [
            FetchPartition(partition=each.index, fetch_offset=each.position, partition_max_bytes=FETCH_BYTES_MAX)
            for each in readers
        ]
        request = FetchRequest(
            max_wait_ms=FOLLOW_LONG_WAIT_MS if alone else FOLLOW_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=topic_admin.READ_COMMITTED if self.wanted.committed_only else topic_admin.READ_UNCOMMITTED,
            topics=[FetchTopic(topic=self.wanted.topic, topic_id=self.topic_id, partitions=parts)],
        )
        if leader < 0:
            self._look_again(ErrorCode.LEADER_NOT_AVAILABLE)
            return
        answer = self.cluster.node(leader).call(request)
        check(answer.error_code, f"reading {self.wanted.topic}")
        for topic in answer.responses:
            for data in topic.partitions:
                if data.error_code in LEADERLESS:
                    self._look_again(data.error_code)
                    continue
                check(data.error_code, f"reading {self.wanted.topic}-{data.partition_index}")
                self._lost_s = None
                yield from self._rows(self.readers[data.partition_index], data)

    def _look_again(self, error: int) -> None:
        """Somebody else leads, or nobody for a while. Raises Failed when that takes too long."""
        now_s = time.monotonic()
        self._lost_s = now_s if self._lost_s is None else self._lost_s
        if now_s - self._lost_s > TIMEOUT_S:
            check(error, f"reading {self.wanted.topic}")
        time.sleep(RETRY_INTERVAL_S)
        for partition in self._topic().partitions:
            if partition.partition_index in self.readers:
                self.readers[partition.partition_index].leader = partition.leader_id

    def _rows(self, reader: Reader, data: PartitionData) -> Iterator[dict[str, Any]]:
        aborted = [(each.first_offset, each.producer_id) for each in data.aborted_transactions or ()]
        try:
            for offset, record in readable(bytes(data.records or b""), aborted):
                if offset < reader.position:
                    continue
                if reader.end is not None and offset >= reader.end:
                    reader.position = reader.end
                    return
                reader.position = offset + 1
                if record is not None:
                    yield self._row(reader.index, record)
        except Malformed as error:
            raise Failed(f"{self.wanted.topic}-{reader.index}, at offset {reader.position}: {error}") from error

    def _row(self, index: int, record: Record) -> dict[str, Any]:
        return {
            "topic": self.wanted.topic,
            "partition": index,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": shown(record.key),
            "value": shown(record.value),
            "headers": shown_headers(record.headers),
        }


def readable(data: bytes, aborted: Sequence[tuple[int, int]]) -> Iterator[tuple[int, Record | None]]:
    """The records of an answer to a fetch, and (last offset, None) behind each batch, which may be of nothing to read.

    `aborted` has (first offset, producer id) of aborted transactions, as the answer tells them to who reads what is committed;
    their records are left out, and so are markers. Raises Malformed.
    """
    coming = sorted(aborted, reverse=True)
    in_abort: set[int] = set()
    for header, batch in iter_batches(data):
        while coming and coming[-1][0] <= header.last_offset:
            in_abort.add(coming.pop()[1])
        if header.is_control:
            for record in iter_records(batch, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX):
                if control_type(record.key) is ControlType.ABORT:
                    in_abort.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in in_abort):
            for record in iter_records(batch, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX):
                yield record.offset, record
        yield header.last_offset, None


def first_of(start: str, first: int, last: int) -> int:
    """The offset that `start` names in a log from `first` to `last`. Raises Unaskable."""
    match start:
        case "earliest":
            return first
        case "latest":
            return last
        case offset if offset.isdecimal():
            return min(max(int(offset), first), last)
        case other:
            raise Unaskable(f"--from {other}: expected earliest, latest or an offset")
