"""The raft driver's storage: a partition log, snapshots and the `quorum-state` file beside it."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

import structlog

from odradek.broker.quorum.snapshots import SnapshotFiles, SnapshotFileWriter
from odradek.cluster.raft.log_view import SNAPSHOTS_KEPT
from odradek.cluster.raft.messages import EpochEnd
from odradek.cluster.raft.quorum_state import FILE_NAME, decode_quorum_state, encode_quorum_state
from odradek.cluster.raft.snapshot_reader import read_snapshot
from odradek.protocol.batch import iter_batches, verify_crc
from odradek.protocol.errors import Malformed, Refusal
from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.storage.log.reads import ColdRead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.cluster.raft.messages import HardState
    from odradek.cluster.raft.ports import SnapshotBytes
    from odradek.protocol.schema import Buffer
    from odradek.runtime.clock import Clock
    from odradek.storage.data_directory.log_manager import LogManager
    from odradek.storage.disk.port import Disk
    from odradek.storage.log.log import PartitionLog

READ_BYTES_MAX: Final = 1024 * 1024
"""Read at a time when the log is looked through at the start."""
_logger = structlog.get_logger("broker.raft")


class PartitionRaftStorage:
    """Implements cluster.raft.ports.RaftStorage. It is the only writer of `log`."""

    def __init__(
        self, logs: LogManager, log: PartitionLog, disk: Disk, voters: Sequence[int], clock: Clock, *, alone: bool
    ) -> None:
        """`voters` are the configured ones, which the file has to agree with.

        `alone`: there is no other voter from which something could be had again.
        """
        self._logs = logs
        self._log = log
        self._disk = disk
        self._path = f"{log.directory}/{FILE_NAME}"
        self._voters = tuple(voters)
        self._clock = clock
        self._alone = alone
        self._snapshots = SnapshotFiles(disk, log.directory)

    # ---- start --------------------------------------------------------------------------------------------------------

    async def open(self) -> bool:
        self._snapshots.remove_unfinished()
        snapshots = [each for each in self._snapshots.complete() if await self._is_sound(each)]
        newest = snapshots[-1] if snapshots else EpochEnd(0, 0)
        whole = await self._cut_damage()
        if newest.end_offset > self._log.log_end_offset or not await self._begin_at(snapshots):
            # A snapshot of the leader had come, and power went before the log was made to begin there; or the log was cut.
            if newest.end_offset == 0:
                self._refuse_alone("begins behind a snapshot that is missing or damaged")
                whole = False
            await self.restart_at(newest)
        known = self._logs.durable_at_stop(CLUSTER_METADATA, 0)
        if max(newest.end_offset, self._log.log_end_offset) < known:
            self._refuse_alone(f"ends at offset {self._log.log_end_offset}, but {known} were on the disk")
            whole = False
        if not whole:
            _logger.error("metadata that was committed is missing here and is fetched again", directory=self.directory)
        return whole

    async def _is_sound(self, snapshot: EpochEnd) -> bool:
        try:
            async for _ in read_snapshot(self, snapshot):
                pass
        except Malformed as error:
            path = self._snapshots.set_aside(snapshot)
            _logger.error("a snapshot of the metadata is damaged and set aside", path=path, reason=str(error))  # noqa: TRY400  # the reason says it all
            return False
        return True

    async def _cut_damage(self) -> bool:
        """Look the log through; what begins with a damaged batch cannot be had but from another voter."""
        if self._alone:
            return True  # found when it is replayed, and nothing must be cut
        offset = self._log.log_start_offset
        while offset < self._log.log_end_offset:
            try:
                records = await self.read(offset, self._log.log_end_offset, READ_BYTES_MAX)
                ends = [header.last_offset + 1 for header, _ in iter_batches(records)]
            except (Refusal, Malformed, OSError) as error:
                _logger.error("the metadata log is damaged", directory=self.directory, offset=offset, reason=str(error))  # noqa: TRY400  # as above
                ends = []
            if not ends:
                await self._cut_at_damage(offset)
                return False
            offset = ends[-1]
        return True

    async def _cut_at_damage(self, offset: int) -> None:
        """Batch by batch to the first bad one: what was read with it may be good."""
        while True:
            try:
                records = await self.read(offset, self._log.log_end_offset, 1)
            except (Refusal, Malformed, OSError):
                break
            headers = [header for header, _ in iter_batches(records)]
            if not headers:
                break
            offset = headers[-1].last_offset + 1
        await self.truncate_to(offset)

    async def _begin_at(self, snapshots: Sequence[EpochEnd]) -> bool:
        """Let the log begin where a snapshot ends, or at 0; whether that is possible."""
        log = self._log
        if log.log_start_offset == 0 and len(snapshots) < SNAPSHOTS_KEPT:
            return True
        fitting = [each for each in snapshots if each.end_offset >= log.log_start_offset]
        if not fitting:
            return False
        self.set_high_watermark(fitting[-1].end_offset)
        await self.forget_before(fitting[-SNAPSHOTS_KEPT:][0])
        return True

    def _refuse_alone(self, told: str) -> None:
        if self._alone:
            raise OSError(errno.EIO, f"the metadata log {told}, and no other voter has it", self.directory)

    # ---- log ------------------------------------------------------------------------------------------------------------

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
        await self._disk.replace_file(self._path, encode_quorum_state(state, self._voters))

    async def truncate_to(self, offset: int) -> None:
        if offset < self._log.recovery_point:
            await self._logs.lower_recovery_point(CLUSTER_METADATA, 0, offset)
        if offset < self._log.log_end_offset:
            self._log.truncate_to(offset, now_ms=self._clock.wall_ms())
            await self._log.sync_truncation()

    def write(self, batches: Sequence[bytes]) -> None:
        now_ms = self._clock.wall_ms()
        for batch in batches:
            # Offsets and epoch were given by the leader, this node or another: the batch is written as it is.
            self._log.append_as_follower(batch, now_ms=now_ms)

    async def sync(self) -> None:
        await self._log.flush()

    async def read(self, offset: int, end: int, max_bytes: int) -> Buffer:
        found = self._log.read(offset, max_bytes=max_bytes, limit=end, min_one_batch=True)
        if isinstance(found, ColdRead):
            found = await found.resolve()
        for header, batch in iter_batches(found.records):
            if not verify_crc(batch, 0, header):
                told = f"damaged at offset {header.base_offset}: the checksum of the batch does not match"
                raise OSError(errno.EIO, told, self._log.directory)
        return found.records

    def set_high_watermark(self, offset: int) -> None:
        self._log.update_high_watermark(offset)

    # ---- snapshots ------------------------------------------------------------------------------------------------------

    def snapshots(self) -> Sequence[EpochEnd]:
        return self._snapshots.complete()

    def begin_snapshot(self, snapshot: EpochEnd) -> SnapshotFileWriter:
        return self._snapshots.begin(snapshot)

    async def read_snapshot(self, snapshot: EpochEnd, position: int, max_bytes: int) -> SnapshotBytes | None:
        return await self._snapshots.read(snapshot, position, max_bytes)

    async def restart_at(self, snapshot: EpochEnd) -> None:
        await self._logs.lower_recovery_point(CLUSTER_METADATA, 0, 0)
        self._log.truncate_fully_and_start_at(snapshot.end_offset, now_ms=self._clock.wall_ms())
        await self._log.sync_truncation()
        await self._log.flush()
        for each in self._snapshots.complete():
            if each != snapshot:
                self._snapshots.remove(each)

    async def forget_before(self, snapshot: EpochEnd) -> None:
        for each in self._snapshots.complete():
            if each.end_offset < snapshot.end_offset:
                self._snapshots.remove(each)
        self._log.advance_log_start(snapshot.end_offset)
        now_ms = self._clock.wall_ms()
        self._log.roll(now_ms)  # only whole segments can go: this one with the snapshot after the next
        self._log.delete_expired_segments(now_ms)
