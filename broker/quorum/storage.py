"""Storage of the Raft driver: a partition log with its snapshots and its file `quorum-state`."""

from __future__ import annotations

import errno
from asyncio import sleep
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from odradek.broker.quorum.snapshots import SnapshotFiles, SnapshotFileWriter
from odradek.cluster.raft.log_view import SNAPSHOTS_KEPT
from odradek.cluster.raft.messages import EpochEnd, Standing
from odradek.cluster.raft.quorum_state import FILE_NAME, decode_quorum_state, encode_quorum_state, with_standing_lost
from odradek.cluster.raft.snapshot_reader import read_snapshot
from odradek.protocol.batch import iter_batches, verify_crc
from odradek.protocol.errors import Malformed, Refusal
from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.storage.disk.port import ResourcesExhausted
from odradek.storage.files import names
from odradek.storage.log.reads import ColdRead

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from odradek.cluster.raft.messages import HardState
    from odradek.cluster.raft.ports import SnapshotBytes
    from odradek.protocol.schema import Buffer
    from odradek.runtime.clock import Clock
    from odradek.storage.data_directory.log_manager import LogManager
    from odradek.storage.disk.port import Disk
    from odradek.storage.log.log import PartitionLog

RECOVERY_READ_BYTES: Final = 1024 * 1024
"""Bytes per read when the checksums of the log are verified at start. It bounds the memory."""
RESOURCE_RETRY_S: Final = 0.1
"""Seconds between two attempts of a write while no file descriptor or memory is left."""
T = TypeVar("T")

_logger = structlog.get_logger(__name__)


class DamagedLog(OSError):
    """A record batch of the metadata log is not the one that was written. A read error is not of this type."""


def note_lost_entries(disk: Disk, log_dir: str, reason: str, *, may_truncate: bool) -> None:
    """Save that this voter may have lost entries, before recovery truncates its metadata log. The call blocks.

    The checkpoints do not show the loss of entries that were acknowledged after they were written. After the truncation
    nothing does, and an ORDINARY voter would elect a leader that lacks the entries.

    Raises:
        BadQuorumState: `quorum-state` is corrupt.
        OSError: A disk operation fails; or `may_truncate` is False, because no other voter has the entries.
    """
    directory = f"{log_dir}/{names.partition_directory(CLUSTER_METADATA, 0)}"
    if not may_truncate:
        problem = f"metadata log damaged, and no other voter has the entries from there on: {reason}"
        raise DamagedLog(errno.EIO, problem, directory)
    _logger.error("metadata log damaged", directory=directory, reason=reason)
    path = f"{directory}/{FILE_NAME}"
    if disk.exists(path):
        disk.replace_file_now(path, with_standing_lost(disk.read_file(path)))


class PartitionRaftStorage:
    """Storage of one replica of the metadata log. It implements `odradek.cluster.raft.ports.RaftStorage`.

    It is the only writer of `log`.
    """

    def __init__(
        self, logs: LogManager, log: PartitionLog, voters: Sequence[int], clock: Clock, *, sole_voter: bool
    ) -> None:
        """Open nothing; `open` does.

        `voters`: node ids of controller.quorum.voters. The voters in `quorum-state` must be the same.
        `sole_voter`: no other voter has the entries that are missing here.
        """
        self._logs = logs
        self._log = log
        self._disk = log.disk
        """Disk with a thread of its own, so that votes and commits do not wait for operations of other logs.

        The writers of snapshots use the shared threads: the sync of a large snapshot would delay votes and commits.
        """
        self._path = f"{log.directory}/{FILE_NAME}"
        self._voters = tuple(voters)
        self._clock = clock
        self._sole_voter = sole_voter
        self._snapshots = SnapshotFiles(self._disk, log.directory, disk_of_writers=logs.disk)

    # ---- start ------------------------------------------------------------------------------------------------------

    async def open(self) -> bool:
        self._snapshots.remove_unfinished()
        snapshots = [snapshot for snapshot in self._snapshots.complete() if await self._is_valid(snapshot)]
        newest = snapshots[-1] if snapshots else EpochEnd(0, 0)
        complete = await self._truncate_damage()
        diverges = not await self._contains(newest)
        if newest.end_offset > self._log.log_end_offset or diverges or not await self._begin_at(snapshots):
            # Either the log was truncated below the snapshot, or:
            # 1. A snapshot arrived from the leader and was finished.
            # 2. The process ended before `restart_at` let the log begin at its end.
            if newest.end_offset == 0:
                self._fail_if_sole_voter("begins after a snapshot that is missing or damaged")
            if newest.end_offset == 0 or diverges:
                complete = False  # if it diverges: no checksum covers the epoch of the compared batch
                await self._save_lost()
            await self.restart_at(newest)
        durable = self._logs.durable_at_stop(CLUSTER_METADATA, 0)
        if max(newest.end_offset, self._log.log_end_offset) < durable:
            self._fail_if_sole_voter(f"ends at offset {self._log.log_end_offset}, but was flushed up to {durable}")
            complete = False
        if not complete:
            _logger.error("committed metadata missing, fetching it from the leader", directory=self.directory)
        return complete

    async def _is_valid(self, snapshot: EpochEnd) -> bool:
        try:
            async for _ in read_snapshot(self, snapshot):
                pass
        except Malformed as error:
            path = self._snapshots.rename_damaged(snapshot)
            _logger.error("damaged metadata snapshot renamed", path=path, reason=str(error))  # noqa: TRY400  # the reason is complete without a stack trace
            return False
        return True

    async def _truncate_damage(self) -> bool:
        """Truncate the log at its first damaged batch. Return True if no batch is damaged.

        The other voters have the truncated entries. A sole voter keeps its log unchanged.

        Raises:
            OSError: A disk operation fails. A log that cannot be read is not truncated: it may be intact.
        """
        if self._sole_voter:
            return True  # the replay reports the damage, and truncation would lose the only copy of the entries
        offset, max_bytes = self._log.log_start_offset, RECOVERY_READ_BYTES
        while offset < self._log.log_end_offset:
            try:
                offset = await self._end_of_intact_batches(offset, max_bytes)
            except (Refusal, Malformed, DamagedLog) as error:
                if max_bytes > 1:
                    max_bytes = 1  # a failed read of several batches does not show which of them is damaged
                    continue
                _logger.error("metadata log damaged", directory=self.directory, offset=offset, reason=str(error))  # noqa: TRY400  # the reason is complete without a stack trace
                await self._save_lost()
                await self.truncate_to(offset)
                return False
            except OSError as error:
                problem = f"the metadata log cannot be read at offset {offset}: {error.strerror}"
                raise OSError(error.errno, problem, self.directory) from error
        return True

    async def _end_of_intact_batches(self, offset: int, max_bytes: int) -> int:
        """Read batches from `offset` on, and return the end offset of the last one.

        Raises:
            Refusal, Malformed, DamagedLog: One of the batches is damaged.
            OSError: The disk cannot be read. This does not show that a batch is damaged.
        """
        end = offset
        for header, _ in iter_batches(await self.read(offset, self._log.log_end_offset, max_bytes)):
            # The checksum does not cover the base offset. The log can begin within a batch.
            if header.base_offset > end or (header.base_offset < end and end != offset):
                raise DamagedLog(errno.EIO, f"base offset {header.base_offset} instead of {end}", self.directory)
            end = header.last_offset + 1
        if end <= offset:
            raise DamagedLog(errno.EIO, f"no batch at offset {offset}", self.directory)
        return end

    async def _save_lost(self) -> None:
        """Save that this voter has lost entries, before they are removed: a start after a crash finds no damage."""
        state = self.load_hard_state()
        if state is not None and state.standing is Standing.ORDINARY:
            await self.save_hard_state(replace(state, standing=Standing.LOST))

    async def _begin_at(self, snapshots: Sequence[EpochEnd]) -> bool:
        """Let the log begin at the end of a snapshot, or at 0. Return False if no valid snapshot reaches its start."""
        log = self._log
        if log.log_start_offset == 0 and len(snapshots) < SNAPSHOTS_KEPT:
            return True
        adjoining = [snapshot for snapshot in snapshots if snapshot.end_offset >= log.log_start_offset]
        if not adjoining:
            return False
        self.set_high_watermark(adjoining[-1].end_offset)
        await self.forget_before(adjoining[-SNAPSHOTS_KEPT:][0])
        return True

    async def _contains(self, snapshot: EpochEnd) -> bool:
        """Return False if the entry before the end of the snapshot, or the first one of the log, is not committed.

        1. A deposed leader has more uncommitted entries than the snapshot of the new leader covers.
        2. It receives that snapshot, and its process ends before `restart_at`.
        3. Its log ends behind the snapshot, but has other entries below the end of the snapshot.

        Another leader, whose log begins earlier, would then demand a truncation below the snapshot (LostCommitted).
        """
        offset = max(snapshot.end_offset - 1, self._log.log_start_offset)
        if self._sole_voter or snapshot.end_offset == 0 or offset >= self._log.log_end_offset:
            return True  # the log of a sole voter never diverges
        for header, _ in iter_batches(await self.read(offset, self._log.log_end_offset, 1)):
            if offset < snapshot.end_offset:
                return header.leader_epoch == snapshot.epoch
            return header.leader_epoch >= snapshot.epoch
        return True

    def _fail_if_sole_voter(self, problem: str) -> None:
        if self._sole_voter:
            raise OSError(
                errno.EIO, f"the metadata log {problem}, and no other voter has the missing entries", self.directory
            )

    # ---- log --------------------------------------------------------------------------------------------------------

    @property
    def directory(self) -> str:
        return self._log.directory

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    def epochs(self) -> Sequence[tuple[int, int]]:
        return self._log.epochs.entries()

    def load_hard_state(self) -> HardState | None:
        if not self._disk.exists(self._path):
            return None
        return decode_quorum_state(self._disk.read_file(self._path), self._voters)

    async def save_hard_state(self, state: HardState) -> None:
        data = encode_quorum_state(state, self._voters)
        await self._when_possible(lambda: self._disk.replace_file(self._path, data))

    async def truncate_to(self, offset: int) -> None:
        await self._when_possible(self._check_resources)  # a truncation that fails in between cannot be repeated
        await self._logs.lower_recovery_point(CLUSTER_METADATA, 0, offset)
        if offset < self._log.log_end_offset:
            self._log.truncate_to(offset, now_ms=self._clock.wall_ms(), monotonic_ms=self._clock.monotonic_ms())
            await self._log.sync_truncation()

    async def write(self, batches: Sequence[bytes]) -> None:
        now_ms, monotonic_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        for batch in batches:

            async def append(batch: bytes = batch) -> None:
                # The leader (this node or another) has set offsets and epoch in the batch, so it is written unchanged.
                self._log.append_as_follower(batch, now_ms=now_ms, monotonic_ms=monotonic_ms)

            await self._when_possible(append)

    async def sync(self) -> None:
        await self._when_possible(self._log.flush)

    async def _check_resources(self) -> None:
        self._disk.check_resources()

    async def _when_possible(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `operation`. Repeat it while no descriptor or memory is left: it had no effect then.

        Meanwhile this node sends and acknowledges nothing, so the other voters elect a leader if this node was it.
        """
        waits = False
        while True:
            try:
                return await operation()
            except ResourcesExhausted as error:
                if not waits:
                    _logger.warning("metadata log waits for descriptors or memory", reason=str(error))
                waits = True
            await sleep(RESOURCE_RETRY_S)

    async def read(self, offset: int, end: int, max_bytes: int) -> Buffer:
        result = self._log.read(offset, max_bytes=max_bytes, limit=end, min_one_batch=True)
        if isinstance(result, ColdRead):
            result = await result.resolve()
        for header, batch in iter_batches(result.records):
            if not verify_crc(batch, 0, header):
                problem = f"damaged at offset {header.base_offset}: the checksum of the batch does not match"
                raise DamagedLog(errno.EIO, problem, self._log.directory)
        return result.records

    def set_high_watermark(self, offset: int) -> None:
        self._log.update_high_watermark(offset)

    # ---- snapshots --------------------------------------------------------------------------------------------------

    def snapshots(self) -> Sequence[EpochEnd]:
        return self._snapshots.complete()

    def begin_snapshot(self, snapshot: EpochEnd) -> SnapshotFileWriter:
        return self._snapshots.create(snapshot)

    async def read_snapshot(self, snapshot: EpochEnd, position: int, max_bytes: int) -> SnapshotBytes | None:
        return await self._when_possible(lambda: self._snapshots.read(snapshot, position, max_bytes))

    async def restart_at(self, snapshot: EpochEnd) -> None:
        await self._when_possible(self._check_resources)  # as in `truncate_to`
        await self._logs.lower_recovery_point(CLUSTER_METADATA, 0, 0)
        self._log.truncate_fully_and_start_at(snapshot.end_offset, now_ms=self._clock.wall_ms())
        await self._log.sync_truncation()
        await self._log.flush()
        for other in self._snapshots.complete():
            if other != snapshot:
                self._snapshots.remove(other)

    async def forget_before(self, snapshot: EpochEnd) -> None:
        for other in self._snapshots.complete():
            if other.end_offset < snapshot.end_offset:
                self._snapshots.remove(other)
        self._log.advance_log_start(snapshot.end_offset)
        now_ms = self._clock.wall_ms()
        with suppress(ResourcesExhausted):  # no descriptor is left: the next snapshot deletes the segments
            # Only sealed segments are deleted. This one is deleted when the snapshot after the next one exists.
            self._log.roll(now_ms)
            self._log.delete_expired_segments(now_ms)
