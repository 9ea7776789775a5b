"""`odradek quotas`: quotas of users, client ids and addresses, by Kafka's names."""

from __future__ import annotations

from typing import Annotated

import typer

from odradek import client
from odradek.commands import completion
from odradek.commands.options import Json, parse_pair
from odradek.commands.outputs import Output, Shape
from odradek.commands.requests import exit_on_client_error, run
from odradek.commands.target import Target, on_cluster
from odradek.local.output import usage_error

app = typer.Typer(help="Client quotas: list, set, remove.", no_args_is_help=True, rich_markup_mode="rich")

DEFAULT_NAME = "<default>"
"""Name of the entity that stands for all names without quotas of their own, as in Kafka's tools."""
LISTED = Output("quotas list", ("entity", "quotas"))
CHANGED_FIELDS = ("entity", "quotas", "validate_only")
SET = Output("quotas set", more=CHANGED_FIELDS, shape=Shape.OBJECT)
REMOVED = Output("quotas remove", more=CHANGED_FIELDS, shape=Shape.OBJECT)

User = Annotated[
    str | None,
    typer.Option("--user", help=f"User; {DEFAULT_NAME}: the default of all users.", autocompletion=completion.users),
]
ClientId = Annotated[str | None, typer.Option("--client-id", help=f"Client id; {DEFAULT_NAME}: the default.")]
Ip = Annotated[str | None, typer.Option("--ip", help=f"Address; {DEFAULT_NAME}: the default of all.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Validate the changes only.")]


@app.command("list")
@on_cluster
def list_quotas(
    target: Target, user: User = None, client_id: ClientId = None, ip: Ip = None, as_json: Json = False
) -> None:
    """List quotas: all, or those of the entities with these names.

    Examples:

      odradek quotas list

      odradek quotas list --user alice --json
    """
    entity = entity_of(user, client_id, ip)
    quotas = run(target, lambda cluster: client.describe_quotas(cluster, entity))
    rows = [
        {
            "entity": {kind: DEFAULT_NAME if name is None else name for kind, name in quota.entity.items()},
            "quotas": {name: int(value) if value.is_integer() else value for name, value in quota.values.items()},
        }
        for quota in quotas
    ]
    LISTED.show(rows, as_json=as_json, empty="no quotas")


@app.command("set")
@on_cluster
def set_quotas(
    target: Target,
    pairs: Annotated[list[str], typer.Argument(help="Quotas, by Kafka's names.", metavar="NAME=VALUE...")],
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Set quotas of a user, a client id, both together, or an address.

    The quotas are producer_byte_rate and consumer_byte_rate in bytes per second,
    request_percentage, controller_mutation_rate, connection_creation_rate.

    Examples:

      odradek quotas set producer_byte_rate=1048576 --user alice

      odradek quotas set consumer_byte_rate=2e6 --client-id "<default>"
    """
    with exit_on_client_error():
        values: dict[str, float | None] = dict(map(parse_quota, pairs))
    change(SET, target, (user, client_id, ip), values, dry_run=dry_run, as_json=as_json)


@app.command()
@on_cluster
def remove(
    target: Target,
    names: Annotated[list[str], typer.Argument(help="Quotas, by Kafka's names.", metavar="NAME...")],
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Remove quotas of an entity, so that the default applies.

    Example:

      odradek quotas remove producer_byte_rate --user alice
    """
    change(REMOVED, target, (user, client_id, ip), dict.fromkeys(names), dry_run=dry_run, as_json=as_json)


def change(
    output: Output,
    target: Target,
    names: tuple[str | None, str | None, str | None],
    values: dict[str, float | None],
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Set or remove quotas of an entity, and print the result."""
    entity = entity_of(*names)
    if not entity:
        usage_error("no entity is named: specify --user, --client-id or --ip")
    run(target, lambda cluster: client.alter_quotas(cluster, entity, values, validate_only=dry_run))
    if as_json:
        shown = {kind: DEFAULT_NAME if name is None else name for kind, name in entity.items()}
        output.print_json({"entity": shown, "quotas": values, "validate_only": dry_run})
    else:
        print(f"{'would change' if dry_run else 'changed'} {', '.join(values)}")


def entity_of(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str | None]:
    """Return names by the type of the entity. None is the default."""
    given = zip(client.ENTITY_TYPES, (user, client_id, ip), strict=True)
    return {kind: None if name == DEFAULT_NAME else name for kind, name in given if name is not None}


def parse_quota(text: str) -> tuple[str, float]:
    """Parse NAME=VALUE. Raise InvalidArgument if the value is not a number."""
    name, value = parse_pair(text, "quota")
    try:
        return name, float(value)
    except ValueError as error:
        raise client.InvalidArgument(f"quota {text}: expected a number") from error
