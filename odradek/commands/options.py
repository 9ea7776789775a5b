"""Options that several commands have."""

from __future__ import annotations

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
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Directory = Annotated[Path, typer.Option("--dir", help="Directory of the local cluster: configuration, data and logs.")]

BOOTSTRAP_DEFAULT = f"{DEFAULT_HOST}:{DEFAULT_PORT}"
DIRECTORY_DEFAULT = Path("odradek-data")


def parse_pair(text: str, option: str) -> tuple[str, str]:
    """Parse NAME=VALUE. Raise InvalidArgument if there is no equals sign."""
    name, equals, value = text.partition("=")
    if not equals:
        raise client.InvalidArgument(f"{option} {text}: expected name=value")
    return name, value
