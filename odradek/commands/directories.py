"""State and errors of the directory of a local cluster, for all commands that read it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.commands import completion
from odradek.local.directory import ClusterDirectory, ClusterState, DirectoryUnusable, StateFileDamaged
from odradek.local.output import FAILED, errors, os_error_text
from odradek.local.processes import USAGE, BrokerFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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


def require_brokers(cluster: ClusterDirectory, state: ClusterState, nodes: Sequence[int]) -> None:
    """Raise BrokerFailed with the exit code of usage errors if the cluster does not have one of the brokers."""
    if unknown := [node_id for node_id in nodes if node_id not in state.plan.node_ids]:
        known = ", ".join(map(str, state.plan.node_ids))
        raise BrokerFailed(f"{cluster.path} has no broker {unknown[0]}; its brokers are {known}", USAGE)


@contextmanager
def exit_on_failure() -> Iterator[None]:
    """Print an error of a local cluster as one line, and raise typer.Exit with its exit code."""
    try:
        yield
    except (BrokerFailed, StateFileDamaged, OSError) as error:
        errors.print(os_error_text(error) if isinstance(error, OSError) else str(error), markup=False)
        code = error.exit_code if isinstance(error, BrokerFailed | DirectoryUnusable) else FAILED
        raise typer.Exit(code) from error
