"""`odradek tokens`: create, renew, expire and list delegation tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from odradek import client
from odradek.commands import completion
from odradek.commands.options import INT64_MAX, Json
from odradek.commands.outputs import Output, Shape
from odradek.commands.requests import run
from odradek.commands.rows import moment
from odradek.commands.target import Target, on_cluster

if TYPE_CHECKING:
    from odradek.commands.rows import Row

app = typer.Typer(help="Delegation tokens: create, renew, expire, list.", no_args_is_help=True, rich_markup_mode="rich")

TABLE = ("token_id", "owner", "requester", "renewers", "issue_date", "expiry_date", "max_date")
TIMESTAMPS = ("issue_timestamp", "expiry_timestamp", "max_timestamp")
LISTED = Output("tokens list", TABLE, TIMESTAMPS)
CREATED = Output("tokens create", more=(*TABLE, *TIMESTAMPS, "hmac"), shape=Shape.OBJECT)
CHANGED_FIELDS = ("token_id", "expiry_timestamp", "expiry_date")
RENEWED = Output("tokens renew", more=CHANGED_FIELDS, shape=Shape.OBJECT)
EXPIRED = Output("tokens expire", more=CHANGED_FIELDS, shape=Shape.OBJECT)

TokenArgument = Annotated[
    str, typer.Argument(help="Id of the token.", metavar="TOKEN", autocompletion=completion.tokens)
]
PeriodOption = Annotated[
    int | None,
    typer.Option(
        "--period", help="Milliseconds until it expires. Default: the longest.", metavar="MS", min=0, max=INT64_MAX
    ),
]


@app.command()
@on_cluster
def create(
    target: Target,
    owner: Annotated[
        str | None,
        typer.Option(
            "--owner",
            help="User that logs in by it. Default: this client.",
            metavar="USER",
            autocompletion=completion.users,
        ),
    ] = None,
    renewers: Annotated[
        list[str] | None,
        typer.Option(
            "--renewer",
            help="User that may renew it, too. Repeatable.",
            metavar="USER",
            autocompletion=completion.users,
        ),
    ] = None,
    max_lifetime: Annotated[
        int | None,
        typer.Option(
            "--max-lifetime",
            help="Milliseconds beyond which it cannot be renewed.",
            metavar="MS",
            min=1,
            max=INT64_MAX,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create a token, and print its id and its HMAC.

    A client logs in by SCRAM: the id is the user name, and the HMAC
    the password. The HMAC is a secret: other commands do not print it.

    Examples:

      odradek tokens create --renewer scheduler

      odradek tokens create --owner alice --max-lifetime 3600000
    """
    token = run(
        target,
        lambda cluster: client.create_token(
            cluster,
            owner=owner,
            renewers=renewers or (),
            max_lifetime_ms=-1 if max_lifetime is None else max_lifetime,
        ),
    )
    row = token_row(token)
    if as_json:
        CREATED.print_json(row | {"hmac": token.hmac})
    else:
        print(f"token: {token.token_id}\nhmac: {token.hmac}\nowner: {token.owner}\nexpires: {row['expiry_date']}")


@app.command()
@on_cluster
def renew(
    target: Target,
    token_id: TokenArgument,
    period: PeriodOption = None,
    as_json: Json = False,
) -> None:
    """Let a token expire later. Its owner and its renewers may do this.

    Examples:

      odradek tokens renew qEMlqzbRTiKDCTqbDd0X7w

      odradek tokens renew qEMlqzbRTiKDCTqbDd0X7w --period 3600000
    """
    period_ms = -1 if period is None else period
    expires_ms = run(target, lambda cluster: client.renew_token(cluster, token_id, period_ms=period_ms))
    if as_json:
        RENEWED.print_json(changed_row(token_id, expires_ms))
    else:
        print(f"renewed: {token_id}, expires {moment(expires_ms)}")


@app.command()
@on_cluster
def expire(
    target: Target,
    token_id: TokenArgument,
    period: Annotated[
        int | None,
        typer.Option(
            "--period",
            help="Milliseconds until it expires. Default: remove it now.",
            metavar="MS",
            min=0,
            max=INT64_MAX,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Remove a token, or let it expire. Its existing sessions continue.

    Examples:

      odradek tokens expire qEMlqzbRTiKDCTqbDd0X7w

      odradek tokens expire qEMlqzbRTiKDCTqbDd0X7w --period 60000
    """
    period_ms = -1 if period is None else period
    expires_ms = run(target, lambda cluster: client.expire_token(cluster, token_id, period_ms=period_ms))
    if as_json:
        EXPIRED.print_json(changed_row(token_id, expires_ms))
    elif period is None:
        print(f"removed: {token_id}")
    else:
        print(f"changed: {token_id}, expires {moment(expires_ms)}")


@app.command("list")
@on_cluster
def list_tokens(
    target: Target,
    owners: Annotated[
        list[str] | None,
        typer.Option(
            "--owner", help="Only tokens of this user. Repeatable.", metavar="USER", autocompletion=completion.users
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the tokens that this client may see, without their HMACs.

    Examples:

      odradek tokens list

      odradek tokens list --owner alice --json
    """
    tokens = run(target, lambda cluster: client.describe_tokens(cluster, owners or None))
    LISTED.show(map(token_row, tokens), as_json=as_json, empty="no tokens")


def token_row(token: client.Token) -> Row:
    """Return a row of a token, with times as text and without its HMAC."""
    timestamps = {"issue": token.issued_ms, "expiry": token.expires_ms, "max": token.max_ms}
    return {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        **{f"{name}_timestamp": value for name, value in timestamps.items()},
        **{f"{name}_date": moment(value) for name, value in timestamps.items()},
    }


def changed_row(token_id: str, expires_ms: int) -> Row:
    """Return a row of a token whose expiration was changed."""
    return {"token_id": token_id, "expiry_timestamp": expires_ms, "expiry_date": moment(expires_ms)}
