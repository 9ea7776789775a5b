"""Run client operations of commands. Print an error as one line, and exit with its exit code."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import typer

from odradek import client
from odradek.local.output import FAILED, errors
from odradek.local.processes import USAGE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from odradek.client import Cluster, Settings

CLIENT_ID = "odradek-admin"
"""Client id of the command line in quotas, metrics and logs of brokers."""
PARTIAL_TIMEOUT_S = 5.0
"""Seconds for a response if partial output is useful.

One broker that does not respond delays the output by this time.
"""

T = TypeVar("T")


def run(bootstrap: str, operation: Callable[[Cluster], Awaitable[T]], *, partial: bool = False) -> T:
    """Connect to a cluster, run an operation, and return its result.

    With `partial`, wait only `PARTIAL_TIMEOUT_S` for each response. After a failure, print its reason and raise
    typer.Exit.
    """
    with exit_on_client_error():
        return attempt(bootstrap, operation, partial=partial)


def attempt(bootstrap: str, operation: Callable[[Cluster], Awaitable[T]], *, partial: bool = False) -> T:
    """Do the same as `run`, but raise client.ClientError after a failure."""
    import asyncio

    async def on_cluster() -> T:
        async with client.Cluster(bootstrap, settings(partial=partial)) as cluster:
            return await operation(cluster)

    return asyncio.run(on_cluster())


def settings(*, partial: bool = False) -> Settings:
    """Return the client settings of the command line."""
    if partial:
        return client.Settings(client_id=CLIENT_ID, request_timeout_s=PARTIAL_TIMEOUT_S)
    return client.Settings(client_id=CLIENT_ID)


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
