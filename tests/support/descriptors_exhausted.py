"""Reach the limit of open files in this process, and check the operations of a disk then. The argument is a folder."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from contextlib import suppress

from odradek.storage.disk.descriptors import RESERVED_DESCRIPTORS
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.disk.port import ResourcesExhausted

LIMIT = 64


async def main(root: str) -> None:
    disk = OsDisk(reserved_descriptors=RESERVED_DESCRIPTORS)
    await disk.in_thread(lambda: None)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, hard))
    taken: list[int] = []
    with suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    disk.check_resources()  # the reserve is still full
    for number in range(3):
        disk.replace_file_now(f"{root}/a", b"%d" % number)
        await disk.replace_file(f"{root}/b", b"%d" % number)
        await disk.sync_directory(root)
        assert disk.list(root) == ["a", "b"]
        assert disk.read_file(f"{root}/a") == b"%d" % number
        disk.check_resources()
    files = [disk.open(f"{root}/file-{number}", create=True) for number in range(RESERVED_DESCRIPTORS)]
    assert disk.open_files == RESERVED_DESCRIPTORS
    for attempt in (disk.check_resources, lambda: disk.open(f"{root}/more", create=True), lambda: disk.list(root)):
        try:
            attempt()
        except ResourcesExhausted:
            continue
        raise AssertionError("no descriptor was left")
    waiting = asyncio.ensure_future(disk.replace_file(f"{root}/a", b"later"))
    while not waiting.done():
        await asyncio.sleep(0)
        for file in files:
            file.close()
    await waiting
    disk.check_resources()
    assert disk.open_files == 0
    assert "more" not in disk.list(root)
    disk.close()
    os.close(taken.pop())
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(RESERVED_DESCRIPTORS + 1)]
    assert len(opened) == RESERVED_DESCRIPTORS + 1, "the reserve is closed with the disk"


asyncio.run(main(sys.argv[1]))
