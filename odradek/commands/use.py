"""`odradek use`: store clusters by name, and choose the one that commands use without other options."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from odradek import client
from odradek.commands import completion, profiles
from odradek.commands.options import Json
from odradek.commands.outputs import Output
from odradek.commands.requests import exit_on_client_error
from odradek.commands.target import Target, find, on_cluster
from odradek.local.output import print_json, usage_error

if TYPE_CHECKING:
    from odradek.commands.rows import Row

LISTED = Output("use", ("used", "name", "bootstrap", "command_config"))


@on_cluster
def use(
    target: Target,
    name: Annotated[
        str | None, typer.Argument(help="Name of the profile.", autocompletion=completion.profile_names)
    ] = None,
    show_all: Annotated[bool, typer.Option("--list", help="List the profiles.")] = False,
    none: Annotated[bool, typer.Option("--none", help="Use no profile.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the profile.")] = False,
    as_json: Json = False,
) -> None:
    """Use a cluster in all later commands, until another one is used.

    With --bootstrap or --dir, the command first stores the profile, together with
    the path of --command-config. Options and environment variables of a command
    have precedence over the profile in use.

    Examples:

      odradek use prod --bootstrap kafka-1:9092,kafka-2:9092

      odradek use prod --bootstrap kafka-1:9093 --command-config prod.properties

      odradek use prod

      odradek use --list

      odradek use --none
    """
    if show_all + none + (name is not None) != 1:
        usage_error("specify one of: a name, --list, --none")
    stores = target.bootstrap is not None or target.directory is not None or target.command_config is not None
    if name is None and (remove or stores):
        usage_error("--list and --none have no profile to remove or to store: specify a name instead")
    if remove and stores:
        usage_error("--remove and the options of a cluster exclude each other: specify one of them")
    with exit_on_client_error():
        stored = profiles.read(os.environ)
        if name is not None:
            stored = without(stored, name) if remove else with_profile(stored, name, target)
        elif none:
            stored = replace(stored, current=None)
        if not show_all:
            profiles.write(os.environ, stored)
    rows: list[Row] = [
        {
            "used": "*" if each == stored.current else "",
            "name": each,
            "bootstrap": profile.bootstrap,
            "command_config": profile.command_config,
        }
        for each, profile in sorted(stored.profiles.items())
    ]
    if as_json:
        print_json(LISTED.rows(row | {"used": row["name"] == stored.current} for row in rows))
    elif show_all:
        empty = "no profiles; store one with: odradek use NAME --bootstrap HOST:PORT"
        LISTED.show(rows, as_json=False, empty=empty)
    elif remove:
        print(f"removed: {name}")
    elif stored.current is None:
        print("no profile is used")
    else:
        print(f"using {stored.current}: {stored.profiles[stored.current].bootstrap}")


def with_profile(stored: profiles.Profiles, name: str, target: Target) -> profiles.Profiles:
    """Return the profiles with this one in use, stored from the options if they name a cluster.

    Raise client.NotFound if there is no such profile, and the options do not name a cluster.
    """
    known = dict(stored.profiles)
    if target.bootstrap is not None or target.directory is not None:
        found = find(target, {})
        config = None if found.command_config is None else str(found.command_config.expanduser().resolve())
        known[name] = profiles.Profile(found.bootstrap, config)
    elif target.command_config is not None:
        raise client.InvalidArgument(f"profile {name}: --command-config needs --bootstrap")
    elif name not in known:
        raise client.InvalidArgument(f"there is no profile {name}; store it with --bootstrap HOST:PORT")
    return profiles.Profiles(name, known)


def without(stored: profiles.Profiles, name: str) -> profiles.Profiles:
    """Return the profiles without this one. Raise client.InvalidArgument if there is none of this name."""
    if name not in stored.profiles:
        raise client.InvalidArgument(f"there is no profile {name}; see odradek use --list")
    known = {each: profile for each, profile in stored.profiles.items() if each != name}
    return profiles.Profiles(None if stored.current == name else stored.current, known)
