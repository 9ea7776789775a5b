"""Run commands of `odradek` in forks of this process: `python tests/support/command_line_server.py SOCKET`.

This process imports the command line once. A fork of it starts a command in milliseconds; a new interpreter needs 0.7 s
of CPU time for the imports. The fork has its own standard streams, environment, working directory and exit code.

A client connects to the Unix socket SOCKET and sends one JSON line with the arguments, the environment and the working
directory, together with the descriptors of standard input, output and error. The response is the exit code. If the
client closes the connection before that, the command is killed. This process ends when its standard input ends.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import select
import signal
import socket
import sys
import traceback
from typing import Any

import odradek.__main__

REQUEST_BYTES_MAX = 1 << 20
STREAMS = 3
IMPORTED_PER_COMMAND = ("odradek.__main__", "odradek.commands", "odradek.local")
"""Modules that read the environment when they are imported, such as the width of the terminal."""


def prepare() -> None:
    """Import what all commands share, also what they import when they run."""
    sys.argv = ["odradek", "topics", "--help"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        odradek.__main__.main()
    for name in [name for name in sys.modules if name.startswith(IMPORTED_PER_COMMAND)]:
        del sys.modules[name]


def serve(path: str) -> None:
    prepare()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the supervisors of commands
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while True:
            readable, _, _ = select.select([listener.fileno(), sys.stdin.fileno()], [], [])
            if sys.stdin.fileno() in readable:
                return
            connection, _ = listener.accept()
            with connection:
                if not os.fork():
                    listener.close()
                    supervise(connection)


def supervise(connection: socket.socket) -> None:
    """Run the command of one connection in a fork, and send its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, descriptors, _, _ = socket.recv_fds(connection, REQUEST_BYTES_MAX, STREAMS)
    child = os.fork()
    if not child:
        connection.close()
        run(json.loads(message), descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    ended = os.pidfd_open(child)
    readable, _, _ = select.select([connection.fileno(), ended], [], [])
    if ended not in readable:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def run(request: dict[str, Any], descriptors: list[int]) -> None:
    """Become the command. This function does not return."""
    code: Any = 1
    try:
        for stream, descriptor in enumerate(descriptors):
            os.dup2(descriptor, stream)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["directory"])
        sys.argv = ["odradek", *request["arguments"]]
        importlib.import_module("odradek.__main__").main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for buffered in (sys.stdout, sys.stderr):
            buffered.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
