"""`odradek logs`: the logs of the brokers of a local cluster."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from odradek.broker_interface import ROTATED_SUFFIX
from odradek.commands.directories import NodeIds, exit_on_failure, require_brokers, require_state
from odradek.commands.options import Directory
from odradek.commands.target import DIRECTORY_DEFAULT
from odradek.interruption import INTERRUPTED
from odradek.local.directory import ClusterDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator

POLL_INTERVAL_S = 0.2
"""Seconds between two reads of logs that have not grown."""
READ_BYTES_MAX = 1 << 20
"""Maximum bytes per read of a log."""
LINES_DEFAULT = 20


class Tail:
    """The lines that are appended to a log, also after the log was replaced by a new file."""

    def __init__(self, path: Path, lines: int) -> None:
        """Begin with the last `lines` lines."""
        self._path = path
        self._inode, self._offset, self._rest = 0, 0, b""
        self.last: deque[str] = deque(maxlen=lines)
        while found := list(self.read()):
            self.last.extend(found)

    def read(self) -> Iterator[str]:
        """Yield the complete lines that were appended since the last call."""
        data = self._rest_of_rotated() or self._appended()
        *lines, self._rest = (self._rest + data).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)

    def _appended(self) -> bytes:
        """Return the next bytes of the log, from its beginning if it is a new file."""
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_ino != self._inode or status.st_size < self._offset:
                self._inode, self._offset, self._rest = status.st_ino, 0, b""
            return self._next(file)
        return b""

    def _rest_of_rotated(self) -> bytes:
        """Return the next bytes of the file that was the log at the last call, if the broker has rotated it."""
        rotated = Path(f"{self._path}{ROTATED_SUFFIX}")
        with suppress(FileNotFoundError, IsADirectoryError), rotated.open("rb") as file:
            if os.fstat(file.fileno()).st_ino == self._inode:
                return self._next(file)
        return b""

    def _next(self, file: BinaryIO) -> bytes:
        file.seek(self._offset)
        data = file.read(READ_BYTES_MAX)
        self._offset += len(data)
        return data


def logs(
    nodes: NodeIds = None,
    directory: Directory = DIRECTORY_DEFAULT,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new lines until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", help="Last lines of each broker.", min=0)] = LINES_DEFAULT,
) -> None:
    """Print the last lines of the logs of a local cluster, each with its node id.

    Examples:

      odradek logs --follow

      odradek logs 2 --lines 100 --dir /var/tmp/kafka
    """
    cluster = ClusterDirectory(directory)
    with exit_on_failure():
        state = require_state(cluster)
        require_brokers(cluster, state, nodes or ())
        tails = {node_id: Tail(cluster.log(node_id), lines) for node_id in nodes or state.plan.node_ids}
    for node_id, tail in tails.items():
        write(node_id, tail.last)
    try:
        while follow:
            if not sum([write(node_id, tail.read()) for node_id, tail in tails.items()]):
                sys.stdout.flush()
                time.sleep(POLL_INTERVAL_S)
    except KeyboardInterrupt as interrupted:
        raise typer.Exit(INTERRUPTED) from interrupted


def write(node_id: int, lines: Iterator[str] | deque[str]) -> int:
    """Print lines of a broker. Return their number."""
    count = 0
    for line in lines:
        sys.stdout.write(f"{node_id} | {line}\n")
        count += 1
    return count
