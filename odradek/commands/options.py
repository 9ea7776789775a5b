"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from odradek import client
from odradek.commands.target import DIRECTORY_VARIABLE

INT16_MAX, INT32_MAX, INT64_MAX = 2**15 - 1, 2**31 - 1, 2**63 - 1
"""Largest numbers in the fields of Kafka's requests."""
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Directory = Annotated[
    Path,
    typer.Option(
        "--dir", help="Directory of the local cluster: configuration, data and logs.", envvar=DIRECTORY_VARIABLE
    ),
]


def parse_pair(text: str, option: str) -> tuple[str, str]:
    """Parse NAME=VALUE. Raise InvalidArgument if there is no equals sign."""
    name, equals, value = text.partition("=")
    if not equals:
        raise client.InvalidArgument(f"{option} {text}: expected name=value")
    return name, value
