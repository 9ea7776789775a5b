"""`odradek users`: list, add and remove users with SCRAM credentials."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from odradek import client
from odradek.commands import completion
from odradek.commands.options import Json
from odradek.commands.outputs import Output, Shape
from odradek.commands.requests import exit_on_client_error, run
from odradek.commands.rows import row_of
from odradek.commands.target import Target, on_cluster

app = typer.Typer(
    help="Users with SCRAM credentials: list, add, remove.", no_args_is_help=True, rich_markup_mode="rich"
)

LISTED = Output("users list", ("user", "mechanism", "iterations"))
ADDED = Output("users add", more=("user", "mechanism", "iterations"), shape=Shape.OBJECT)
REMOVED = Output("users remove", more=("user", "mechanisms"), shape=Shape.OBJECT)
MECHANISM = "SCRAM-SHA-512"
ITERATIONS = 4_096
STANDARD_INPUT = "-"

UserArgument = Annotated[str, typer.Argument(help="Name of the user.", autocompletion=completion.users)]


@app.command("list")
@on_cluster
def list_users(target: Target, as_json: Json = False) -> None:
    """List users with their mechanisms and iterations.

    Examples:

      odradek users list
    """
    users = run(target, client.describe_users)
    LISTED.show(map(row_of, users), as_json=as_json, empty="no users")


@app.command()
@on_cluster
def add(
    target: Target,
    user: UserArgument,
    mechanism: Annotated[
        str, typer.Option("--mechanism", help="SCRAM-SHA-256 or SCRAM-SHA-512.", metavar="NAME")
    ] = MECHANISM,
    iterations: Annotated[
        int, typer.Option("--iterations", help="Iterations of the hash, from 4,096 to 16,384.")
    ] = ITERATIONS,
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file", help="File whose first line is the password; - is standard input.", metavar="FILE"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Add a user, or change its password.

    Without --password-file, the command prompts for it. The cluster
    does not receive the password, only a hash of it.

    Examples:

      odradek users add alice

      odradek users add alice --mechanism SCRAM-SHA-256 --password-file -
    """
    with exit_on_client_error():
        password = read_password(password_file)
    run(
        target,
        lambda cluster: client.set_user(cluster, user, password, mechanism, iterations=iterations),
    )
    if as_json:
        ADDED.print_json({"user": user, "mechanism": mechanism.upper(), "iterations": iterations})
    else:
        print(f"added: {user} ({mechanism.upper()})")


@app.command()
@on_cluster
def remove(
    target: Target,
    user: UserArgument,
    mechanism: Annotated[
        str | None, typer.Option("--mechanism", help="Only this mechanism. Default: all.", metavar="NAME")
    ] = None,
    as_json: Json = False,
) -> None:
    """Remove the credentials of a user. Its existing sessions continue.

    Examples:

      odradek users remove alice

      odradek users remove alice --mechanism SCRAM-SHA-256
    """
    removed = run(target, lambda cluster: client.remove_user(cluster, user, mechanism))
    if as_json:
        REMOVED.print_json({"user": user, "mechanisms": removed})
    else:
        print(f"removed: {user} ({', '.join(removed)})")


def read_password(source: Path | None) -> str:
    """Return a password: the first line of a file or of standard input, or what the operator types.

    An argument would be visible to other users of the machine. Raise InvalidArgument if it cannot be read or is empty.
    """
    if source is None and sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    if source is None or str(source) == STANDARD_INPUT:
        text = sys.stdin.readline()
    else:
        try:
            text = source.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise client.InvalidArgument(f"{source}: {reason}") from None
    password = text.partition("\n")[0].removesuffix("\r")
    if not password:
        raise client.InvalidArgument("the password is empty; write it to the file, or to standard input")
    return password
