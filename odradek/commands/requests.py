"""Run client operations for a command: on an event loop, with one line of error and an exit code."""

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
"""Seconds for a response if the output may be partial: a broker that hangs must not delay the rows of the others for long."""

T = TypeVar("T")


def run(bootstrap: str, operation: Callable[[Cluster], Awaitable[T]], *, partial: bool = False) -> T:
    """Run an operation on a cluster and return its result. Raise typer.Exit after a failure, whose reason has been printed."""
    import asyncio

    async def on_cluster() -> T:
        async with client.Cluster(bootstrap, settings(partial=partial)) as cluster:
            return await operation(cluster)

    with failures():
        return asyncio.run(on_cluster())


def settings(*, partial: bool = False) -> Settings:
    """Return the settings of the command line's clients."""
    if partial:
        return client.Settings(client_id=CLIENT_ID, request_timeout_s=PARTIAL_TIMEOUT_S)
    return client.Settings(client_id=CLIENT_ID)


@contextmanager
def failures() -> Iterator[None]:
    """Print a client error as one line and raise typer.Exit, with exit code 2 if the operation is invalid for any cluster."""
    try:
        yield
    except client.ClientError as error:
        errors.print(str(error), markup=False)
        raise typer.Exit(USAGE if isinstance(error, client.InvalidArgument) else FAILED) from error
