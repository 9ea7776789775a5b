"""Make the logs of a data directory durable for a clean shutdown.

Logs that have not changed since the last clean shutdown need no disk operation. The others write their last files, and
all of them are synced: one by one in threads, or with a sync of the file system if they are many.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odradek.storage.disk.port import Disk
    from odradek.storage.log.log import PartitionLog

FILE_SYSTEM_SYNC_LOGS_MIN = 64
"""Minimum number of changed logs for a sync of the file system, which also writes the data of other processes.

A log needs six syncs, so that 64 logs take about as long as one sync of the file system.
"""


def flush_logs(
    disk: Disk, directory: str, logs: Sequence[PartitionLog], on_step: Callable[[], None]
) -> list[OSError | None]:
    """Write and sync the last files of all logs. Return the error of each log. The call blocks.

    Call `on_step`, also from threads, after each step of a log and after each sync of the file system.

    The caller closes the logs. No log may be appended to any more.
    """
    changed = [log for log in logs if not log.closes_without_writes]
    if len(changed) >= FILE_SYSTEM_SYNC_LOGS_MIN:
        failures = _flush_together(disk, directory, changed, on_step)
    else:
        failures = _each(disk, changed, lambda log: log.close(clean=True), on_step)
    by_log = {id(log): failure for log, failure in zip(changed, failures, strict=True)}
    return [by_log.get(id(log)) for log in logs]


def _each(
    disk: Disk, logs: Sequence[PartitionLog], work: Callable[[PartitionLog], None], on_step: Callable[[], None]
) -> Sequence[OSError | None]:
    def step(log: PartitionLog) -> None:
        work(log)
        on_step()

    return disk.run_all_now([partial(step, log) for log in logs])


def _flush_together(
    disk: Disk, directory: str, logs: Sequence[PartitionLog], on_step: Callable[[], None]
) -> Sequence[OSError | None]:
    """Sync the file system after the files are written, and again after the leader epochs have their names.

    The first sync must come before the renames: otherwise a power failure could leave an empty file under the name.
    """

    def failure_of(work: Callable[[], None]) -> OSError | None:
        try:
            work()
        except OSError as error:
            return error
        on_step()
        return None

    written = [failure_of(log.write_last) for log in logs]  # writes to the page cache: threads would not be faster
    ready = [log for log, failure in zip(logs, written, strict=True) if failure is None]
    try:
        if disk.sync_file_system_now(directory):
            on_step()
            installed: Sequence[OSError | None] = [failure_of(log.local.install_epochs) for log in ready]
            disk.sync_file_system_now(directory)
            on_step()
        else:
            installed = _each(disk, ready, lambda log: log.local.sync_now(), on_step)
    except OSError as error:
        return [error] * len(logs)
    later = iter(installed)
    return [next(later) if failure is None else failure for failure in written]
