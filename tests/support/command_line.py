"""Run `odradek` as a user does, and read what it prints.

`odradek` and `json_output` run a command to its end in a fork of one prepared process (command_line_server.py). A test
that needs a real start, a signal or a terminal starts ODRADEK itself.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ODRADEK = Path(sys.executable).with_name("odradek")
SERVER = Path(__file__).with_name("command_line_server.py")
TIMEOUT_S = 120.0
CODE_BYTES_MAX = 16


class CommandLine:
    """A process that has imported the command line, and forks for each command."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="odradek-")
        self._path = str(Path(self._directory.name) / "socket")
        self._server = subprocess.Popen(
            [sys.executable, "-P", str(SERVER), self._path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == "ready\n"

    def run(
        self, arguments: list[str], environment: dict[str, str], stdin: str, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection,
            tempfile.TemporaryFile("w+") as given,
            tempfile.TemporaryFile("w+") as out,
            tempfile.TemporaryFile("w+") as err,
        ):
            given.write(stdin)
            given.seek(0)
            request = {"arguments": arguments, "environment": environment, "directory": str(Path.cwd())}
            connection.connect(self._path)
            connection.settimeout(timeout)
            streams = [stream.fileno() for stream in (given, out, err)]
            socket.send_fds(connection, [json.dumps(request).encode()], streams)
            code = int(connection.recv(CODE_BYTES_MAX))
            for printed in (out, err):
                printed.seek(0)
            return subprocess.CompletedProcess(["odradek", *arguments], code, out.read(), err.read())

    def close(self) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()
        self._directory.cleanup()


@functools.cache
def command_line() -> CommandLine:
    """Return the one of this process. It ends with this process."""
    running = CommandLine()
    atexit.register(running.close)
    return running


def terminal(columns: int = 250) -> dict[str, str]:
    """Return the environment of a command on a terminal of that width, without colors."""
    return {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"}


def odradek(
    *arguments: str, stdin: str = "", columns: int = 250, timeout: float = TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. The caller judges its exit code."""
    return command_line().run(list(arguments), terminal(columns), stdin, timeout)


def shorter_path(path: Path) -> str:
    """Return the path as `up` prints it: absolute, or relative to the current directory if that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def json_output(*arguments: str) -> Any:
    """Run a command with --json, which must succeed, and return what it printed."""
    finished = odradek(*arguments, "--json")
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def without_progress(lines: Iterable[str]) -> Iterator[str]:
    """Leave out the lines that `up` prints, besides its result, while brokers start slowly."""
    return (line for line in lines if "waiting for broker " not in line)
