"""The options by which each command finds its cluster, and the order in which they count.

A command declares one parameter `target: Target` and the decorator `on_cluster`, which gives it the options.
"""

from __future__ import annotations

import functools
import inspect
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer

from odradek import client
from odradek.commands import profiles
from odradek.local.output import usage_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
"""Address if nothing names a cluster. It is the first broker of `odradek up` without options, and Kafka's own port."""
DIRECTORY_DEFAULT = Path("odradek-data")
"""Directory of a local cluster, relative to the working directory."""
BOOTSTRAP_VARIABLE = "ODRADEK_BOOTSTRAP"
DIRECTORY_VARIABLE = "ODRADEK_DIR"
COMMAND_CONFIG_VARIABLE = "ODRADEK_CLIENT_CONFIG"
PANEL = "Cluster"
"""Heading of these options in the help texts."""

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Target:
    """Options of one command line that find a cluster. None: the option was not given."""

    directory: Path | None = None
    bootstrap: str | None = None
    command_config: Path | None = None

    def to_environment(self) -> None:
        """Apply the options to a subcommand that does not have the same options itself."""
        values = {
            DIRECTORY_VARIABLE: self.directory,
            BOOTSTRAP_VARIABLE: self.bootstrap,
            COMMAND_CONFIG_VARIABLE: self.command_config,
        }
        if self.directory or self.bootstrap:
            os.environ.pop(DIRECTORY_VARIABLE, None)
            os.environ.pop(BOOTSTRAP_VARIABLE, None)
        os.environ.update({name: str(value) for name, value in values.items() if value is not None})


@dataclass(frozen=True, slots=True)
class Found:
    """A cluster that a command works on.

    Attributes:
        bootstrap: Addresses of brokers, `host:port,...`.
        command_config: File of client properties. None: plain text.
        directory: Directory of a local cluster. None: the cluster was not found by its directory.
    """

    bootstrap: str
    command_config: Path | None
    directory: Path | None = None


def find(target: Target, environment: Mapping[str, str]) -> Found:
    """Find the cluster: by an option, an environment variable, the profile in use, or the local directory.

    Raises:
        client.InvalidArgument: Options contradict each other, or the addresses are malformed.
        client.ClientError: No cluster was started in the directory.
        OSError: The directory or the profile cannot be read.
    """
    if target.directory is not None and target.bootstrap is not None:
        raise client.InvalidArgument("--dir and --bootstrap name two clusters; specify one of them")
    given = environment.get(COMMAND_CONFIG_VARIABLE)
    config = target.command_config or (Path(given) if given else None)
    bootstrap, directory = target.bootstrap, target.directory
    if bootstrap is None and directory is None:
        bootstrap = environment.get(BOOTSTRAP_VARIABLE) or None
        directory = Path(environment[DIRECTORY_VARIABLE]) if environment.get(DIRECTORY_VARIABLE) else None
    if bootstrap is not None:
        from odradek.client.network.addresses import parse_bootstrap

        parse_bootstrap(bootstrap)
        return Found(bootstrap, config)
    if directory is None:
        profile = profiles.in_use(environment)
        if profile is not None:
            stored = None if profile.command_config is None else Path(profile.command_config)
            return Found(profile.bootstrap, config or stored)
    found = _local(directory or DIRECTORY_DEFAULT, config)
    if found is None and directory is not None:
        raise client.ClientError(
            f"no cluster was ever started in {directory}; start one with: odradek up --dir {directory}"
        )
    return found or Found(DEFAULT_BOOTSTRAP, config)


def _local(path: Path, config: Path | None) -> Found | None:
    """Return the local cluster of a directory, or None if none was started there."""
    if not (path.expanduser() / "cluster.json").exists() and not path.is_file():
        return None
    from odradek.local.directory import ClusterDirectory, StateFileDamaged

    cluster = ClusterDirectory(path)
    try:
        state = cluster.read_state()
    except StateFileDamaged as error:
        raise client.ClientError(str(error)) from error
    if state is None:
        return None
    running = ",".join(state.plan.endpoint(node_id) for node_id in state.alive())
    return Found(running or state.plan.bootstrap, config or cluster.own_client_config(state.plan), path)


DirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        help=f"Local cluster in this directory (or {DIRECTORY_VARIABLE}).",
        show_default=f"the profile in use, or {DIRECTORY_DEFAULT}",
        rich_help_panel=PANEL,
    ),
]
BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        help=f"Some brokers (or {BOOTSTRAP_VARIABLE}). --bootstrap-server is the same.",
        metavar="HOST:PORT,...",
        rich_help_panel=PANEL,
    ),
]
BootstrapServerOption = Annotated[str | None, typer.Option("--bootstrap-server", hidden=True)]
"""Kafka's name of `--bootstrap`. The help shows one name, because both do not fit on a line of 80 columns."""
CommandConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        help=f"Client properties in Kafka's format: TLS and SASL (or {COMMAND_CONFIG_VARIABLE}).",
        metavar="FILE",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
OPTIONS = {
    "directory": DirectoryOption,
    "bootstrap": BootstrapOption,
    "bootstrap_server": BootstrapServerOption,
    "command_config": CommandConfigOption,
}
"""Options by the name of their parameter."""


def on_cluster(command: Callable[Concatenate[Target, P], None]) -> Callable[..., None]:
    """Give a command the options that find a cluster, in place of its first parameter, a `Target`."""

    @functools.wraps(command)
    def with_options(*arguments: P.args, **values: P.kwargs) -> None:
        options: dict[str, Any] = {name: values.pop(name, None) for name in OPTIONS}
        kafka_name = options.pop("bootstrap_server")
        if kafka_name is not None and options["bootstrap"] is not None:
            usage_error("--bootstrap and --bootstrap-server are the same option: specify one of them")
        if kafka_name is not None:
            options["bootstrap"] = kafka_name
        command(Target(**options), *arguments, **values)

    signature = inspect.signature(command, eval_str=True)
    _, *others = signature.parameters.values()
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in OPTIONS.items()
    ]
    with_options.__signature__ = signature.replace(parameters=[*others, *added])  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in (*others, *added)}
    return with_options
