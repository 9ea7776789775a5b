"""Sync a whole file system with syncfs(2), for a clean shutdown of many logs (as PostgreSQL's sync method `syncfs`).

One call replaces several syncs per log. Its cost depends on the amount of unsynced data, not on the number of files.
Linux reports failed writes of any file since version 5.8, for the time since the descriptor was opened. So the caller
passes a descriptor that it has opened before the first write.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re

LINUX_WITH_ERRORS = (5, 8)
"""First version of Linux whose syncfs reports failed writes."""
SYNCED_FILE_SYSTEMS = frozenset({0xEF53, 0x58465342, 0x9123683E, 0x01021994})
"""Types (`f_type` of statfs) of file systems that write everything in syncfs: ext2 to ext4, XFS, Btrfs, tmpfs.

Others are excluded: a FUSE file system, for example, may not pass the call on.
"""
STATFS_BYTES = 256
"""Bytes of the buffer for `struct statfs`. The kernel writes 120 bytes on 64-bit systems; `f_type` is first."""


def sync_file_system(descriptor: int) -> bool:
    """Sync the file system of an open file. Return False without an effect if syncfs is not reliable here.

    Raises:
        OSError: Data of the file system was lost since the descriptor was opened, or the call failed.
    """
    libc = _libc()
    if libc is None or _file_system_type(libc, descriptor) not in SYNCED_FILE_SYSTEMS:
        return False
    if libc.syncfs(descriptor) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"the sync of the file system failed: {os.strerror(error)}")
    return True


@functools.cache
def _libc() -> ctypes.CDLL | None:
    """Return the C library if it has syncfs, and if the kernel reports failed writes; None otherwise."""
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if version is None or (int(version[1]), int(version[2])) < LINUX_WITH_ERRORS:
        return None
    try:
        libc = ctypes.CDLL(None, use_errno=True)
    except OSError:
        return None
    return libc if hasattr(libc, "syncfs") and hasattr(libc, "fstatfs") else None


def _file_system_type(libc: ctypes.CDLL, descriptor: int) -> int:
    status = ctypes.create_string_buffer(STATFS_BYTES)
    if libc.fstatfs(descriptor, status) != 0:
        return 0
    return ctypes.c_long.from_buffer(status).value & 0xFFFFFFFF
