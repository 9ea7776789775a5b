"""``odradek txns``: what is open, what it holds back, and how to end it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from odradek import client
from odradek.commands.options import BOOTSTRAP_DEFAULT, BOOTSTRAP_VARIABLE, Bootstrap, Json
from odradek.commands.requests import run
from odradek.commands.rows import Row, blocked_row, row_of, transaction_row
from odradek.local.output import FAILED, errors, print_json, show, usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

app = typer.Typer(
    help="Transactions: which are open, which hold back readers, and how to end one.",
    rich_markup_mode="rich",
)

BLOCKING = {
    "topic": "topic",
    "partition": "partition",
    "last_stable_offset": "LSO",
    "held_back": "records held back",
    "transactional_id": "transactional id",
    "producer_id": "producer",
    "producer_epoch": "epoch",
    "client_id": "client",
    "state": "state",
    "since": "since",
    "times_out": "times out",
    "verdict": "verdict",
}


@app.callback(invoke_without_command=True)
def default(context: typer.Context, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT, as_json: Json = False) -> None:
    """Without a subcommand: which transaction holds back which partition's readers.

    Example:

      odradek txns --bootstrap 127.0.0.1:9092
    """
    if context.invoked_subcommand is None:
        blocking(bootstrap, None, as_json)
    else:
        # What stands before the subcommand holds for it, unless it is said again behind it.
        os.environ[BOOTSTRAP_VARIABLE] = bootstrap
        context.default_map = {context.invoked_subcommand: {"as_json": as_json}}


@app.command("list")
def list_transactions(
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    state: Annotated[
        list[str] | None, typer.Option(help="Only these states: Ongoing, PrepareCommit, ...", metavar="STATE")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the transactional ids that the coordinators know.

    Example:

      odradek txns list --state Ongoing
    """
    found = run(bootstrap, lambda cluster: client.list_transactions(cluster, state or ()), partial=True)
    columns = ("transactional_id", "state", "producer_id", "producer_epoch", "coordinator")
    show_known(
        [row_of(row) for row in found.rows],
        found.unreachable,
        {column: column for column in columns},
        as_json=as_json,
        empty="no transactional ids",
    )


@app.command()
def describe(
    transactional_id: Annotated[str, typer.Argument(help="The transactional id.")],
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: Json = False,
) -> None:
    """Show one transactional id: state, producer, partitions, deadline.

    Example:

      odradek txns describe payments-1
    """
    row = transaction_row(run(bootstrap, lambda cluster: client.describe_transaction(cluster, transactional_id)))
    if as_json:
        print_json(row)
        return
    show(
        [{"field": name, "value": value} for name, value in row.items()],
        {"field": "field", "value": "value"},
        as_json=False,
        empty="",
    )


@app.command()
def blocking(
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    as_json: Json = False,
) -> None:
    """Show which transaction holds back which partition's last stable offset.

    Since when, by which producer and client, and when it will time out. A verdict of [bold]hanging[/bold] means that no
    coordinator will ever end it: end it with odradek txns abort.

    Example:

      odradek txns blocking --topic payments
    """
    topics = None if topic is None else [topic]
    found = run(bootstrap, lambda cluster: client.blocked_partitions(cluster, topics), partial=True)
    show_known(
        [blocked_row(row) for row in found.rows],
        found.unreachable,
        BLOCKING,
        as_json=as_json,
        empty="no partition is held back by a transaction",
    )


@app.command()
def abort(
    transactional_id: Annotated[str | None, typer.Argument(help="The transactional id to fence and abort.")] = None,
    topic: Annotated[str | None, typer.Option(help="Of a hanging transaction.")] = None,
    partition: Annotated[int | None, typer.Option(help="Of a hanging transaction.")] = None,
    producer_id: Annotated[int | None, typer.Option(help="Of a hanging transaction.")] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: Json = False,
) -> None:
    """End a transaction that holds readers back.

    By its transactional id: its producer is fenced and the coordinator aborts the transaction everywhere. By topic,
    partition and producer: an abort marker is written into that partition alone, for a transaction that hangs because no
    coordinator knows it any more.

    Examples:

      odradek txns abort payments-1

      odradek txns abort --topic payments --partition 3 --producer-id 1000
    """
    if transactional_id is not None and topic is None:
        row = fence(bootstrap, transactional_id)
    elif transactional_id is None and topic is not None and partition is not None and producer_id is not None:
        row = abort_hanging(bootstrap, topic, partition, producer_id)
    else:
        usage("name either a transactional id, or --topic, --partition and --producer-id")
    if as_json:
        print_json(row)
    else:
        print(row["message"])


def fence(bootstrap: str, transactional_id: str) -> Row:
    """Fence the producer of a transactional id. Raise typer.Exit if that failed."""
    before = run(bootstrap, lambda cluster: client.fence_producer(cluster, transactional_id))
    message = f"{transactional_id}: producer {before.producer_id} epoch {before.producer_epoch} is fenced"
    if before.state == "Ongoing":
        message += ", its transaction is aborted"
    return {"transactional_id": transactional_id, "was": before.state, "message": message}


def abort_hanging(bootstrap: str, topic: str, partition: int, producer_id: int) -> Row:
    """Abort a hanging transaction in one partition. Raise typer.Exit if that failed."""
    aborted = run(bootstrap, lambda cluster: client.abort_hanging_transaction(cluster, topic, partition, producer_id))
    message = (
        f"{topic}-{partition}: the transaction of producer {producer_id} that began at offset {aborted.first_offset} "
        "is aborted"
    )
    return {"topic": topic, "partition": partition, "producer_id": producer_id, "message": message}


def show_known(
    rows: Sequence[Row], silent: Mapping[int, str], columns: dict[str, str], *, as_json: bool, empty: str
) -> None:
    """Print the rows. If brokers did not respond, name them and exit with code 1, because rows may be missing."""
    show(list(rows), columns, as_json=as_json, empty="none that is known" if silent else empty)
    for node_id, reason in sorted(silent.items()):
        errors.print(
            f"broker {node_id} did not answer ({reason}): what it leads or coordinates is missing here", markup=False
        )
    if silent:
        raise typer.Exit(FAILED)
