"""Run client operations of commands. Print an error as one line, and exit with its exit code."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import typer

from odradek import client
from odradek.commands.target import find
from odradek.local.output import FAILED, errors, os_error_text
from odradek.local.processes import USAGE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from odradek.client import Cluster, Settings
    from odradek.commands.target import Target

CLIENT_ID = "odradek-admin"
"""Client id of the command line in quotas, metrics and logs of brokers."""
PARTIAL_TIMEOUT_S = 5.0
"""Seconds for a response if partial output is useful.

One broker that does not respond delays the output by this time.
"""

T = TypeVar("T")


def run(target: Target, operation: Callable[[Cluster], Awaitable[T]], *, partial: bool = False) -> T:
    """Connect to the cluster that the options find, run an operation, and return its result.

    With `partial`, wait only `PARTIAL_TIMEOUT_S` for each response. After a failure, print its reason and raise
    typer.Exit.
    """
    with exit_on_client_error():
        found = find(target, os.environ)
        return attempt(found.bootstrap, operation, settings(found.command_config, partial=partial))


def attempt(bootstrap: str, operation: Callable[[Cluster], Awaitable[T]], with_settings: Settings) -> T:
    """Do the same as `run`, but raise client.ClientError after a failure."""
    import asyncio

    async def on_cluster() -> T:
        async with client.Cluster(bootstrap, with_settings) as cluster:
            return await operation(cluster)

    return asyncio.run(on_cluster())


def settings(command_config: Path | None, *, partial: bool = False) -> Settings:
    """Return the client settings of the command line, with the security of a file of client properties.

    Print a warning for properties in the file that have no effect. Raise client.InvalidArgument if the file is invalid.
    """
    security = client.read_security(command_config, _warn)
    if partial:
        return client.Settings(client_id=CLIENT_ID, request_timeout_s=PARTIAL_TIMEOUT_S, security=security)
    return client.Settings(client_id=CLIENT_ID, security=security)


def _warn(text: str) -> None:
    errors.print(text, markup=False)


@contextmanager
def exit_on_client_error() -> Iterator[None]:
    """Print a client error as one line, and raise typer.Exit.

    The exit code is 2 if the error is an invalid argument, otherwise 1.
    """
    try:
        yield
    except client.ClientError as error:
        errors.print(str(error), markup=False)
        raise typer.Exit(USAGE if isinstance(error, client.InvalidArgument) else FAILED) from error
    except BrokenPipeError:
        raise  # the reader of the output has ended, as `head` does: the command ends without a message
    except OSError as error:
        errors.print(os_error_text(error), markup=False)
        raise typer.Exit(getattr(error, "exit_code", FAILED)) from error
