"""One data directory: who it belongs to, its partitions' logs, and the checkpoints over all of them."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog

from odradek.storage.config import CLEANUP_COMPACT, LogConfig
from odradek.storage.files import checkpoint, names
from odradek.storage.files.checkpoint import ZERO_UUID, CorruptCheckpoint, MetaProperties
from odradek.storage.files.offset_checkpoint import OffsetCheckpoint
from odradek.storage.log.log import PartitionLog

if TYPE_CHECKING:
    import random

    from odradek.storage.disk.port import Disk, Lock

log = structlog.get_logger(__name__)

COMPACTED_TOPICS = ("__consumer_offsets", "__transaction_state")
SYNCED_TOPICS = ("__cluster_metadata",)
"""Written by consensus, which commits only what is durable: nothing below their high watermark can be lost by a crash."""
ConfigFor = Callable[[str], LogConfig]


class DirectoryRefused(OSError):
    """The data directory belongs to another node or cluster, or a file that says to whom is damaged."""


class NotForgotten(Exception):
    """A checkpoint on the disk may still speak of a log of that name that is gone: after `forget_gone` it does not."""


@dataclass(slots=True)
class DeletedDirectory:
    path: str
    delay_ms: int
    seen_ms: int | None = None


class LogManager:
    def __init__(self, disk: Disk, log_dir: str, default_config: LogConfig) -> None:
        self.disk = disk
        self.log_dir = log_dir
        self._default_config = default_config
        self._logs: dict[tuple[str, int], PartitionLog] = {}
        self._refused: dict[tuple[str, int], OSError] = {}
        self._deleted: list[DeletedDirectory] = []
        self._recovery_points = self._checkpoint_of(checkpoint.RECOVERY_POINTS, lambda each: each.recovery_point)
        self._log_starts = self._checkpoint_of(checkpoint.LOG_START_OFFSETS, lambda each: each.log_start_offset)
        self._high_watermarks = self._checkpoint_of(checkpoint.HIGH_WATERMARKS, lambda each: each.high_watermark)
        self._cleaned = self._checkpoint_of(checkpoint.CLEANER_OFFSETS, lambda each: each.cleaned_to)
        self._checkpoints = (self._recovery_points, self._log_starts, self._high_watermarks, self._cleaned)
        self._durable_at_stop: dict[tuple[str, int], int] = {}
        self._lock: Lock | None = None
        self.cluster_id = ""
        self.directory_id = ZERO_UUID
        self.clean_start = False
        self.previous_broker_epoch = -1  # from the clean-shutdown marker

    # -- start ------------------------------------------------------------------------------------------------------------

    def open_directory(
        self, *, node_id: int, rng: random.Random, cluster_id: str | None = None, may_name_cluster: bool = True
    ) -> None:
        """Claim the directory, making it when absent; find out who it belongs to and how it was left.

        A directory that belongs to nobody yet becomes part of `cluster_id`, or of a new cluster, if this node may name one.

        The clean-shutdown marker is gone, durably, when this returns: from here on only another clean stop makes one.

        Raises:
            DirectoryLocked: in use. DirectoryRefused: belongs to another node or cluster. OSError: the disk refuses.
        """
        self.disk.make_directory(self.log_dir)
        self._lock = self.disk.lock_directory(self.log_dir)
        meta = self._read_meta(node_id, cluster_id)
        if meta is None:
            if cluster_id is None and not may_name_cluster:
                raise DirectoryRefused(
                    errno.EINVAL,
                    "is new, and odradek.cluster.id is not set: a cluster of several nodes needs an id that all have",
                    self.log_dir,
                )
            made = cluster_id or checkpoint.encode_uuid(_random_uuid(rng))
            meta = MetaProperties(made, node_id, _random_uuid(rng))
        self.cluster_id, self.directory_id = meta.cluster_id, meta.directory_id
        marker = self._path(checkpoint.CLEAN_SHUTDOWN)
        if self.disk.exists(marker):
            self.clean_start = True
            self.previous_broker_epoch = checkpoint.decode_clean_shutdown(self.disk.read_file(marker))
            self.disk.remove(marker)
        # Also syncs the directory, and with it the removal of the marker.
        self.disk.write_atomic(self._path(checkpoint.META_PROPERTIES), checkpoint.encode_meta_properties(meta))

    def _read_meta(self, node_id: int, cluster_id: str | None) -> MetaProperties | None:
        path = self._path(checkpoint.META_PROPERTIES)
        if not self.disk.exists(path):
            return None
        try:
            meta = checkpoint.decode_meta_properties(self.disk.read_file(path))
        except CorruptCheckpoint as error:
            raise DirectoryRefused(errno.EINVAL, f"damaged: {error}", path) from error
        if meta.node_id != node_id:
            raise DirectoryRefused(errno.EINVAL, f"belongs to node {meta.node_id}, this is node {node_id}", path)
        if cluster_id is not None and meta.cluster_id != cluster_id:
            raise DirectoryRefused(errno.EINVAL, f"belongs to cluster {meta.cluster_id}, not {cluster_id}", path)
        return meta

    def load_all(
        self, now_ms: int, config_for: ConfigFor | None = None, *, refuse_loss: Sequence[str] = SYNCED_TOPICS
    ) -> None:
        """Open every log of the directory, recovering what an unclean stop has left. Waits for the disk.

        A log of `refuse_loss` that ends below its high watermark is not opened, since nobody else has what it lost.
        A log that the disk refuses to open is left out; `create` raises its error when somebody asks for it.
        """
        recovery_points, log_starts, high_watermarks, cleaned = (each.read() for each in self._checkpoints)
        self._durable_at_stop = {
            key: max(recovery_points.get(key, 0), high_watermarks.get(key, 0))
            for key in [*recovery_points, *high_watermarks]
        }
        for name in self.disk.list(self.log_dir):
            path = self._path(name)
            if not self.disk.is_directory(path):
                continue
            if name.endswith(names.DELETED_DIRECTORY_SUFFIX):
                self._deleted.append(DeletedDirectory(path, self._default_config.file_delete_delay_ms))
                continue
            key = names.parse_partition_directory(name)
            if key is None:
                log.warning("directory is no partition's and is left alone", path=path)
                continue
            config = (config_for or self._assumed_config)(key[0])
            if key in cleaned:
                config = _with_gaps(config)
            try:
                loaded = PartitionLog.open(
                    self.disk,
                    path,
                    config,
                    topic=key[0],
                    partition=key[1],
                    topic_id=self._read_topic_id(path),
                    recovery_point=recovery_points.get(key, 0),
                    log_start_offset=log_starts.get(key, 0),
                    clean=self.clean_start,
                    now_ms=now_ms,
                    high_watermark=max(high_watermarks.get(key, 0), cleaned.get(key, 0)),  # or it was not cleaned
                    durable_end=high_watermarks.get(key, 0) if key[0] in refuse_loss else 0,
                )
            except OSError as error:
                log.error("log cannot be opened", path=path, error=str(error))  # noqa: TRY400  # the reason says it all
                self._refused[key] = error
                for each in self._checkpoints:
                    each.keep(key)
                continue
            loaded.cleaned_to = cleaned.get(key)
            self._logs[key] = loaded
        # What a crash has taken from a log must not be spoken of when something else has been appended there, and the
        # next crash comes. Consensus, though, has to hear of it until it has said what it has lost.
        ends = {key: each.log_end_offset for key, each in self._logs.items() if key[0] not in SYNCED_TOPICS}
        for each in (self._recovery_points, self._high_watermarks, self._cleaned):
            each.limit(ends)

    def durable_at_stop(self, topic: str, partition: int) -> int:
        """Of a log that is synced before it counts: up to where it was known to be on the disk when this node stopped.

        Whatever has become of it since; 0 where it is not known.
        """
        return self._durable_at_stop.get((topic, partition), 0)

    def _assumed_config(self, topic: str) -> LogConfig:
        """Before the metadata is known: a topic that is always compacted may have gaps, others get theirs later."""
        return _with_gaps(self._default_config) if topic in COMPACTED_TOPICS else self._default_config

    def _checkpoint_of(self, name: str, value: Callable[[PartitionLog], int | None]) -> OffsetCheckpoint:
        """A log of which there is nothing to say has no entry."""

        def current() -> dict[tuple[str, int], int]:
            offsets = {key: value(each) for key, each in self._logs.items()}
            return {key: offset for key, offset in offsets.items() if offset is not None}

        return OffsetCheckpoint(self.disk, self._path(name), current)

    def _read_topic_id(self, directory: str) -> uuid.UUID:
        path = f"{directory}/{checkpoint.PARTITION_METADATA}"
        if not self.disk.exists(path):
            return ZERO_UUID
        try:
            return checkpoint.decode_partition_metadata(self.disk.read_file(path))
        except CorruptCheckpoint as error:
            log.warning("topic id is damaged; the metadata log will tell", path=path, reason=str(error))
            return ZERO_UUID

    # -- logs ---------------------------------------------------------------------------------------------------------------

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    def __iter__(self) -> Iterator[PartitionLog]:
        """Every open log; safe against changes while iterating."""
        return iter(list(self._logs.values()))

    def create(self, topic: str, partition: int, topic_id: uuid.UUID, config: LogConfig, now_ms: int) -> PartitionLog:
        """The log of that partition, made unless it is there.

        A log whose topic id got lost takes this one. A log of another topic id makes room: it was found at start, and the
        metadata does not know it. Either its topic was deleted just before a crash, or the metadata has been damaged, so
        its files are kept for a person to decide on, as Kafka does.

        Raises:
            NotForgotten: not yet. OSError: the disk refuses. ValueError: not a topic name.
        """
        key = topic, partition
        refused = self._refused.get(key)
        if refused is not None:
            raise OSError(refused.errno, f"the log could not be opened: {refused}")
        present = self._logs.get(key)
        if present is not None and present.topic_id == ZERO_UUID != topic_id:
            present.topic_id = topic_id
            present.write_partition_metadata()
        if present is not None and present.topic_id == topic_id:
            present.update_config(config)
            return present
        if present is not None:
            self._keep_as_stray(present)
        path = self._path(names.partition_directory(topic, partition))
        # Of what consensus has written the checkpoints say what was durable, and must go on saying so if it is missing.
        if topic not in SYNCED_TOPICS and any(each.names(key) for each in self._checkpoints):
            raise NotForgotten(path)
        self._make_room(path, topic, partition, topic_id)
        made = PartitionLog.open(
            self.disk,
            path,
            config,
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            recovery_point=0,
            log_start_offset=0,
            clean=True,
            now_ms=now_ms,
        )
        self._logs[key] = made
        return made

    def _keep_as_stray(self, present: PartitionLog) -> None:
        del self._logs[present.topic, present.partition]
        present.close(clean=False)
        path = self._free_path(names.stray_directories(present.topic, present.partition, present.topic_id))
        self.disk.rename(present.directory, path)
        log.warning("log of a topic that the metadata does not know is set aside", path=path)

    def _make_room(self, path: str, topic: str, partition: int, topic_id: uuid.UUID) -> None:
        """A directory that a failed deletion has left behind must not become the log of a new topic."""
        if self.disk.is_directory(path):
            left_behind = self._read_topic_id(path)
            if left_behind not in {ZERO_UUID, topic_id}:
                self._give_deleted_name(path, topic, partition, left_behind, self._default_config.file_delete_delay_ms)

    def delete(self, topic: str, partition: int) -> Coroutine[Any, Any, None]:
        """Take the log out at once; awaiting the answer makes that durable. Its files go by `remove_deleted`.

        The returned coroutine raises OSError.
        """
        present = self._logs.get((topic, partition))
        failure: OSError | None = None
        if present is not None:
            try:
                self._retire(present)
            except OSError as error:
                failure = error
        return self._deleted_durably(failure)

    def _retire(self, present: PartitionLog) -> None:
        """Give the directory its deleted name. The log counts as gone even if that fails."""
        del self._logs[present.topic, present.partition]
        present.close(clean=False)
        self._give_deleted_name(
            present.directory, present.topic, present.partition, present.topic_id, present.config.file_delete_delay_ms
        )

    def _give_deleted_name(self, path: str, topic: str, partition: int, topic_id: uuid.UUID, delay_ms: int) -> None:
        deleted = self._free_path(names.deleted_directories(topic, partition, topic_id))
        self.disk.rename(path, deleted)
        self._deleted.append(DeletedDirectory(deleted, delay_ms))

    async def _deleted_durably(self, failure: OSError | None) -> None:
        if failure is not None:
            raise failure
        await self.disk.sync_directory(self.log_dir)
        await self.forget_gone()

    async def forget_gone(self) -> None:
        """Let the checkpoints speak of the logs that are there and of no others. Raises OSError.

        A crash would give the high watermark, the recovery point and the log start of one that is gone to the next one of the
        same name: it would show what is not committed, trust what was not flushed, and hide what is there.
        """
        for each in self._checkpoints:
            if each.names_others(self._logs):
                await each.replace()

    async def remove_deleted(self, now_ms: int) -> None:
        """Remove what was deleted at least file.delete.delay.ms ago, counted from the first call that saw it."""
        for each in self:
            each.remove_deleted(now_ms)
        for directory in list(self._deleted):
            if directory.seen_ms is None:
                directory.seen_ms = now_ms
            if now_ms - directory.seen_ms >= directory.delay_ms:
                self._deleted.remove(directory)
                await self.disk.remove_tree(directory.path)

    # -- upkeep -------------------------------------------------------------------------------------------------------------

    async def flush_sealed(self) -> list[tuple[PartitionLog, OSError]]:
        """Bring rolled segments to stable storage, so that a recovery has little to read; logs that the disk refused."""
        failures = []
        for each in self:
            if each.sealed_unflushed and not each.failed and not each.closed:
                try:
                    await each.flush(each.segments.active.base_offset)
                except OSError as error:
                    failures.append((each, error))
        return failures

    async def checkpoint_recovery_points(self) -> None:
        await self._recovery_points.replace()

    async def checkpoint_log_starts(self) -> None:
        await self._log_starts.replace()

    async def checkpoint_high_watermarks(self) -> None:
        await self._high_watermarks.replace()

    async def checkpoint_cleaned(self) -> None:
        await self._cleaned.replace()

    async def lower_recovery_point(self, topic: str, partition: int, offset: int) -> None:
        """Before a log is cut at `offset`: a crash right after it must not find what is appended next below a recovery
        point, where it would be believed unread. Raises OSError.
        """
        present = self._logs[topic, partition]
        if offset < present.recovery_point:
            present.flusher.truncated(offset, present.segments)
            await self.checkpoint_recovery_points()
        if present.cleaned_to is not None and offset < present.cleaned_to:
            present.cleaned_to = offset  # or a tombstone that comes there would go without what it deletes
            await self.checkpoint_cleaned()

    def close(self, *, clean: bool = True, broker_epoch: int = -1) -> None:
        """Close every log and give the directory back; waits for the disk.

        The clean-shutdown marker is written only if every log could be closed cleanly. Raises nothing: what the disk
        refuses is logged, and the next start recovers.
        """
        whole = clean and not self._refused
        for each in self:
            try:
                each.close(clean=clean)
            except OSError as error:
                log.error("log did not close cleanly", path=each.directory, error=str(error))  # noqa: TRY400  # as above
                whole = False
            whole = whole and not each.failed
        try:
            if whole and self._lock is not None:
                for checkpointed in self._checkpoints:
                    checkpointed.write()
                marker = checkpoint.encode_clean_shutdown(broker_epoch)
                self.disk.write_atomic(self._path(checkpoint.CLEAN_SHUTDOWN), marker)
        except OSError as error:
            log.error("no clean-shutdown marker", path=self.log_dir, error=str(error))  # noqa: TRY400  # as above
        finally:
            self._logs.clear()
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def _free_path(self, choice: Iterator[str]) -> str:
        return next(path for path in map(self._path, choice) if not self.disk.exists(path))

    def _path(self, name: str) -> str:
        return f"{self.log_dir}/{name}"


def _random_uuid(rng: random.Random) -> uuid.UUID:
    return uuid.UUID(int=rng.getrandbits(128), version=4)


def _with_gaps(config: LogConfig) -> LogConfig:
    return replace(config, cleanup_policy=(CLEANUP_COMPACT,))
