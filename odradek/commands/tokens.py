"""`odradek tokens`: create, renew, expire and list delegation tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from odradek import client
from odradek.commands.options import Json
from odradek.commands.requests import run
from odradek.commands.rows import moment, row_of
from odradek.commands.target import Target, on_cluster
from odradek.local.output import print_json, show

if TYPE_CHECKING:
    from odradek.commands.rows import Row

app = typer.Typer(help="Delegation tokens: create, renew, expire, list.", no_args_is_help=True, rich_markup_mode="rich")

COLUMNS = ("token_id", "owner", "requester", "renewers", "expires", "renewable_until")

TokenArgument = Annotated[str, typer.Argument(help="Id of the token.", metavar="TOKEN")]
PeriodOption = Annotated[
    int | None, typer.Option("--period", help="Milliseconds until it expires. Default: the longest.", metavar="MS")
]


@app.command()
@on_cluster
def create(
    target: Target,
    owner: Annotated[
        str | None, typer.Option("--owner", help="User that logs in by it. Default: this client.", metavar="USER")
    ] = None,
    renewers: Annotated[
        list[str] | None, typer.Option("--renewer", help="User that may renew it, too. Repeatable.", metavar="USER")
    ] = None,
    max_lifetime: Annotated[
        int | None, typer.Option("--max-lifetime", help="Milliseconds beyond which it cannot be renewed.", metavar="MS")
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
        print_json(row | {"hmac": token.hmac})
    else:
        print(f"token: {token.token_id}\nhmac: {token.hmac}\nowner: {token.owner}\nexpires: {row['expires']}")


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
        print_json({"token_id": token_id, "expires_ms": expires_ms, "expires": moment(expires_ms)})
    else:
        print(f"renewed: {token_id}, expires {moment(expires_ms)}")


@app.command()
@on_cluster
def expire(
    target: Target,
    token_id: TokenArgument,
    period: Annotated[
        int | None,
        typer.Option("--period", help="Milliseconds until it expires. Default: remove it now.", metavar="MS", min=0),
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
        print_json({"token_id": token_id, "expires_ms": expires_ms, "expires": moment(expires_ms)})
    elif period is None:
        print(f"removed: {token_id}")
    else:
        print(f"changed: {token_id}, expires {moment(expires_ms)}")


@app.command("list")
@on_cluster
def list_tokens(
    target: Target,
    owners: Annotated[
        list[str] | None, typer.Option("--owner", help="Only tokens of this user. Repeatable.", metavar="USER")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the tokens that this client may see, without their HMACs.

    Examples:

      odradek tokens list

      odradek tokens list --owner alice --json
    """
    tokens = run(target, lambda cluster: client.describe_tokens(cluster, owners or None))
    titles = {name: name.replace("_", " ") for name in COLUMNS}
    show([token_row(token) for token in tokens], titles, as_json=as_json, empty="no tokens")


def token_row(token: client.Token) -> Row:
    """Return a row of a token, with times as text and without its HMAC."""
    row = row_of(token)
    del row["hmac"]
    return row | {"expires": moment(token.expires_ms), "renewable_until": moment(token.max_ms)}
