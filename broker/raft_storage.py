"""The raft driver's storage over a partition log and the `quorum-state` file beside it."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from cluster.raft.quorum_state import FILE_NAME, decode_quorum_state, encode_quorum_state
from protocol.batch import iter_batches, verify_crc
from storage.log import ColdRead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.raft.messages import HardState
    from protocol.schema import Buffer
    from runtime.clock import Clock
    from storage.disk import Disk
    from storage.log import PartitionLog


class PartitionRaftStorage:
    """Implements cluster.raft.ports.RaftStorage. It is the only writer of `log`."""

    def __init__(self, log: PartitionLog, disk: Disk, directory: str, voters: Sequence[int], clock: Clock) -> None:
        """`directory` is the log's own; `voters` are the configured ones, which the file has to agree with."""
        self._log = log
        self._disk = disk
        self._path = f"{directory}/{FILE_NAME}"
        self._voters = tuple(voters)
        self._clock = clock

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

    def write(self, truncate_to: int | None, batches: Sequence[bytes]) -> None:
        now_ms = self._clock.wall_ms()
        if truncate_to is not None and truncate_to < self._log.log_end_offset:
            self._log.truncate_to(truncate_to, now_ms=now_ms)
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
