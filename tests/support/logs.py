"""Batches and logs for tests of the storage."""

from __future__ import annotations

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from odradek.protocol.batch import Compression, build_batch, end_txn_marker, iter_batches
from odradek.storage.config import LogConfig
from odradek.storage.data_directory.loading import FLUSHED_TOPICS
from odradek.storage.log.log import PartitionLog
from odradek.storage.log.reads import ColdRead
from odradek.storage.producers.entry import Origin
from odradek.storage.recovery.loaded_log import OpenOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from odradek.protocol.batch import BatchHeader
    from odradek.storage.data_directory.log_manager import LogManager
    from odradek.storage.disk.port import Disk
    from odradek.storage.log.append import AppendInfo

TOPIC_ID = uuid.UUID("11111111-2222-4333-8444-555555555555")
NOW_MS = 1_700_000_000_000


def open_log(disk: Disk, directory: str, config: LogConfig | None = None, **options: Any) -> PartitionLog:
    """A log, new or as the directory has it; uncleanly unless `clean` is given."""
    settings: dict[str, Any] = {"now_ms": NOW_MS, "monotonic_ms": NOW_MS} | options
    return PartitionLog.open(
        disk,
        f"{directory}/t-0",
        config or LogConfig(),
        OpenOptions(**settings),
        topic="t",
        partition=0,
        topic_id=TOPIC_ID,
    )


def records(count: int, *, size: int = 10, timestamp: int = NOW_MS) -> list[tuple[bytes, bytes, int, tuple[()]]]:
    return [(b"k%d" % n, b"v" * size, timestamp + n, ()) for n in range(count)]


def batch(count: int = 1, *, size: int = 10, timestamp: int = NOW_MS, **fields: Any) -> bytes:
    return build_batch(records(count, size=size, timestamp=timestamp), **fields)


def produced(producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0, **fields: Any) -> bytes:
    """A batch of an idempotent or (transactional=True) transactional producer."""
    return batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)


def marker(
    producer_id: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0, timestamp: int = NOW_MS
) -> bytes:
    return end_txn_marker(
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        commit=commit,
        timestamp=timestamp,
    )


def append(log: PartitionLog, data: bytes, *, commit: bool = True, **options: Any) -> AppendInfo:
    """Append as a client (`origin` to change that), with a valid guard for a transactional batch, and commit it."""
    settings: dict[str, Any] = {"leader_epoch": 0, "origin": Origin.CLIENT, "now_ms": NOW_MS} | options
    settings.setdefault("monotonic_ms", settings["now_ms"])
    header = next(iter_batches(data))[0]
    if header.is_control:
        settings["origin"] = Origin.COORDINATOR
    elif header.is_transactional and "guard" not in options:
        settings["guard"] = log.producers.start_verification(
            header.producer_id, header.producer_epoch, header.base_sequence, supports_epoch_bump=False
        )
    info = log.append_as_leader(data, **settings)
    if commit:
        log.update_high_watermark(log.log_end_offset)
    return info


def read(log: PartitionLog, offset: int, **options: Any) -> bytes:
    settings: dict[str, Any] = {"max_bytes": 1 << 20} | options
    found = log.read(offset, **settings)
    assert not isinstance(found, ColdRead)
    return bytes(found.records)


def headers(log: PartitionLog, limit: int | None = None) -> list[BatchHeader]:
    """Headers of all batches from the log start to `limit`, read as a consumer would."""
    found: list[BatchHeader] = []
    offset = log.log_start_offset
    end = log.log_end_offset if limit is None else limit
    while offset < end:
        piece = [header for header, _ in iter_batches(read(log, offset, limit=end))]
        if not piece or piece[-1].last_offset < offset:
            break  # damaged, in tests that damage
        found += piece
        offset = piece[-1].last_offset + 1
    return found


CODECS = list(Compression)


def load_all(
    manager: LogManager,
    now_ms: int = NOW_MS,
    *,
    refuse_loss: Sequence[str] = FLUSHED_TOPICS,
    on_flushed_loss: Callable[[str], None] | None = None,
    run: Callable[[Coroutine[Any, Any, None]], object] | None = None,
) -> None:
    """Open all logs of a directory. `run` runs a coroutine to its end; the default is a new event loop in a thread."""
    manager.scan(now_ms, now_ms, refuse_loss=refuse_loss, on_flushed_loss=on_flushed_loss)
    if run is not None:
        run(manager.load())
        return
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, manager.load()).result()
