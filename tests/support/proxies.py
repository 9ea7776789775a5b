"""HAProxy and nginx with the configurations of a page, on listening sockets of the test."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.command_line import TIMEOUT_S
from tests.support.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PACKAGES: Final = {"haproxy": "haproxy", "nginx": "nginx-light"}
"""Debian's package by the name of the program."""
FOLDERS: Final = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))


def program(name: str) -> str:
    """Return the path of a proxy. Skip the test if it is not installed."""
    found = shutil.which(name, path=FOLDERS)
    if found is None:
        pytest.skip(f"{name} is not installed, so its configuration is not run: apt-get install {PACKAGES[name]}")
    return found


@contextmanager
def haproxy(directory: Path, configuration: str, listening: Sequence[socket.socket]) -> Iterator[None]:
    """Run HAProxy. The n-th line `bind` takes connections of the n-th socket. A warning of HAProxy is an error."""
    path = directory / "haproxy.cfg"
    lines = []
    sockets = iter(listening)
    for line in configuration.splitlines():
        indentation, keyword, rest = line.partition("bind :")
        options = rest.partition(" ")[2]
        lines.append(f"{indentation}bind fd@{next(sockets).fileno()} {options}" if keyword else line)
    path.write_text("\n".join(lines) + "\n")
    command = [program("haproxy"), "-db", "-dW", "-f", str(path)]
    with _process(command, [each.fileno() for each in listening], {}):
        yield


@contextmanager
def nginx(directory: Path, configuration: str, listening: socket.socket) -> Iterator[None]:
    """Run nginx, which takes connections of the socket in place of port 443."""
    path = directory / "nginx.conf"
    bodies = "".join(f"    {name}_temp_path {directory / name};\n" for name in ("client_body", "proxy"))
    host, port = listening.getsockname()
    text = configuration.replace("http {\n", f"http {{\n    access_log off;\n{bodies}")
    path.write_text(text.replace("listen 443 ", f"listen {host}:{port} "))
    # NGINX names the inherited sockets.
    general = f"daemon off; pid {directory / 'nginx.pid'};"
    command = [program("nginx"), "-e", "stderr", "-p", str(directory), "-c", str(path), "-g", general]
    with _process(command, [listening.fileno()], {"NGINX": f"{listening.fileno()};"}):
        yield


@contextmanager
def _process(command: Sequence[str], descriptors: Sequence[int], environment: dict[str, str]) -> Iterator[None]:
    """Run a proxy. Connections wait in its sockets until it is ready. Fail if it ends before the test."""
    with subprocess.Popen(command, pass_fds=descriptors, env=os.environ | environment) as process:
        try:
            yield
            assert process.poll() is None, f"{command[0]} has ended with {process.returncode}"
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)


def listening_socket() -> socket.socket:
    """Return a socket that accepts connections on a free port."""
    return socket.create_server((HOST, 0))
