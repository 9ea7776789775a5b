"""State and errors of the directory of a local cluster, for all commands that read it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.commands import completion
from odradek.local.directory import ClusterDirectory, ClusterState, DirectoryUnusable, StateFileDamaged
from odradek.local.output import FAILED, errors
from odradek.local.processes import BrokerFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

NodeIds = Annotated[
    list[int] | None,
    typer.Argument(help="Node ids of brokers.", metavar="[NODE]...", autocompletion=completion.local_brokers),
]


def require_state(cluster: ClusterDirectory) -> ClusterState:
    """Return the state of a directory. Raise BrokerFailed if no cluster was started in it."""
    state = cluster.read_state()
    if state is None:
        raise BrokerFailed(
            f"no cluster was ever started in {cluster.path}; start one with: odradek up --dir {cluster.path}"
        )
    return state


@contextmanager
def exit_on_failure() -> Iterator[None]:
    """Print an error of a local cluster as one line, and raise typer.Exit with its exit code."""
    try:
        yield
    except (BrokerFailed, StateFileDamaged, OSError) as error:
        errors.print(str(error), markup=False)
        code = error.exit_code if isinstance(error, BrokerFailed | DirectoryUnusable) else FAILED
        raise typer.Exit(code) from error
