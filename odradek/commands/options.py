"""Options that several commands have."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from odradek import client
from odradek.local.directory import DEFAULT_HOST, DEFAULT_PORT

BOOTSTRAP_VARIABLE = "ODRADEK_BOOTSTRAP"
Bootstrap = Annotated[
    str,
    typer.Option("--bootstrap", "-b", help="Address of any broker.", envvar=BOOTSTRAP_VARIABLE, metavar="HOST:PORT"),
]
COMMAND_CONFIG_VARIABLE = "ODRADEK_CLIENT_CONFIG"
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        help="Client properties in Kafka's format: TLS and SASL.",
        envvar=COMMAND_CONFIG_VARIABLE,
        metavar="FILE",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Directory = Annotated[Path, typer.Option("--dir", help="Directory of the local cluster: configuration, data and logs.")]

BOOTSTRAP_DEFAULT = f"{DEFAULT_HOST}:{DEFAULT_PORT}"
DIRECTORY_DEFAULT = Path("odradek-data")


def set_defaults(bootstrap: str, command_config: Path | None) -> None:
    """Apply options before a subcommand to the subcommand, unless it has the same options itself."""
    os.environ[BOOTSTRAP_VARIABLE] = bootstrap
    if command_config is not None:
        os.environ[COMMAND_CONFIG_VARIABLE] = str(command_config)


def parse_pair(text: str, option: str) -> tuple[str, str]:
    """Parse NAME=VALUE. Raise InvalidArgument if there is no equals sign."""
    name, equals, value = text.partition("=")
    if not equals:
        raise client.InvalidArgument(f"{option} {text}: expected name=value")
    return name, value
