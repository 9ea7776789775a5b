"""A cut is on the disk before anything is written behind it.

A power cut may take a truncation, and the first write behind it, and leave the writes after those: then what was cut off comes
back in the middle of what another leader has written, where every checksum is right and the epochs at the end of the log are its
leader's, so that nobody would ever see it. So is it with a removed segment whose name comes back. Kafka relies on the order in
which file systems write.

Until then a file beside the log says so: a process that is killed leaves to the next one a cut which is not on the disk. It
need not be durable itself, since after a power cut there is nothing that is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.storage.files import names

if TYPE_CHECKING:
    from odradek.storage.disk.port import Disk
    from odradek.storage.log.log_base import LogBase
    from odradek.storage.segment.segment import Segment


def announce(disk: Disk, directory: str) -> None:
    """Before anything of the log in `directory` is cut. Raises OSError."""
    disk.open(_mark(directory), create=True).close()


def finish(disk: Disk, directory: str, last: Segment) -> None:
    """At the start: if a cut was announced make it durable. `last` is the segment that the log ends with. Waits; raises OSError."""
    if disk.exists(_mark(directory)):
        sync_now(disk, directory, last)


def sync_now(disk: Disk, directory: str, last: Segment) -> None:
    """Make a cut durable, waiting on the spot. Raises OSError."""
    last.file.sync_now()
    disk.sync_directory_now(directory)
    disk.remove(_mark(directory))


async def sync(log: LogBase) -> None:
    """Return when no cut of `log` has still to become durable, or it was closed. Raises OSError."""
    while (last := log.unsynced_cut) is not None and not log.closed:
        cuts = log.cuts
        await last.file.sync()
        await log.disk.sync_directory(log.directory)
        if cuts == log.cuts and log.unsynced_cut is last and not log.closed:
            log.unsynced_cut = None
            log.disk.remove(_mark(log.directory))


def _mark(directory: str) -> str:
    return f"{directory}/{names.CUT_MARK}"
