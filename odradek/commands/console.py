"""`odradek console`: the web console."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from odradek import client
from odradek.commands.requests import exit_on_client_error
from odradek.commands.target import Target, find, on_cluster
from odradek.local.output import errors, usage_error

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = ("starlette", "uvicorn", "jinja2", "fastavro")
"""Packages of the extra `console`."""
PORT_MAX = 65_535


@on_cluster
def console(
    target: Target,
    listen: Annotated[
        str, typer.Option("--listen", help="Address of the console.", metavar="HOST:PORT")
    ] = "127.0.0.1:8080",
    allow_actions: Annotated[
        bool, typer.Option("--allow-actions", help="Allow changes of the cluster. Without it, pages only read.")
    ] = False,
    schema_registry: Annotated[
        str | None, typer.Option("--schema-registry", help="Schema registry, to decode Avro.", metavar="URL")
    ] = None,
    prometheus: Annotated[
        list[str] | None,
        typer.Option("--prometheus", help="Metrics of a broker. May be given several times.", metavar="URL"),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="Name of the console in a browser, behind a proxy.", metavar="NAME"),
    ] = None,
) -> None:
    """Serve the web console until Ctrl-C.

    It reads the cluster as a client, and works with Apache Kafka, too. If the
    cluster uses SASL, each user logs in with the own user and password.

    Examples:

      odradek console

      odradek console -b kafka:9092 --listen 127.0.0.1:9000
    """
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        usage_error(f"the console needs {', '.join(missing)}; install them with: pip install 'odradek[console]'")
    import asyncio

    from odradek.console.server import serve
    from odradek.console.settings import Settings

    host, port = parse_listen(listen)
    with exit_on_client_error():
        found = find(target, os.environ)
        security, mechanism = read_security(found.command_config)
        settings = Settings(
            found.bootstrap,
            security,
            mechanism,
            host,
            port,
            allow_actions,
            schema_registry,
            tuple(prometheus or ()),
            tuple(allow_host or ()),
        )
        asyncio.run(serve(settings, lambda address: print(f"console {address}", flush=True)))


def parse_listen(text: str) -> tuple[str, int]:
    """Parse HOST:PORT. Exit with a message if it is malformed."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > PORT_MAX:
        usage_error(f"--listen is {text!r}: expected HOST:PORT, such as 127.0.0.1:8080")
    return host.strip("[]"), int(port)


def read_security(path: Path | None) -> tuple[client.Security, str]:
    """Return the security of a file of client properties, without credentials, and the mechanism of the login form.

    Raise client.InvalidArgument if the file is invalid, or if its mechanism has no user and password.
    """
    from odradek.client.security.security import read_security_of_logins
    from odradek.console.settings import MECHANISMS

    security, mechanism = read_security_of_logins(path, lambda text: errors.print(text, markup=False))
    if mechanism is not None and mechanism not in MECHANISMS:
        raise client.InvalidArgument(
            f"the console does not support logins by {mechanism}", f"set sasl.mechanism to {', '.join(MECHANISMS)}"
        )
    return security, mechanism or MECHANISMS[0]
