"""`odradek txns`: open transactions, the partitions whose readers they hold back, and their abort."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from odradek import client
from odradek.commands import completion
from odradek.commands.options import INT32_MAX, INT64_MAX, Json
from odradek.commands.outputs import Output, Shape
from odradek.commands.requests import run
from odradek.commands.rows import Row, blocked_row, row_of, transaction_row
from odradek.commands.selection import Address, ClientId, Idle, Selection
from odradek.commands.target import Target, on_cluster
from odradek.local.output import FAILED, errors, show, usage_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

app = typer.Typer(
    help="Transactions: list, describe, find those that hold back readers, abort.",
    rich_markup_mode="rich",
)

LISTED = Output(
    "txns list",
    (
        "transactional_id", "transaction_state", "producer_id", "producer_epoch", "coordinator", "client_id",
        "client_host",
    ),
    ("idle_ms",),
)  # fmt: skip
DESCRIBED = Output(
    "txns describe",
    (
        "transactional_id", "transaction_state", "producer_id", "producer_epoch", "client_id", "client_host",
        "coordinator", "transaction_timeout_ms", "transaction_start_time_ms", "since", "times_out", "in_doubt",
        "transaction_duration_ms", "topic_partitions",
    ),
    shape=Shape.OBJECT,
)  # fmt: skip
BLOCKING = Output(
    "txns blocking",
    (
        "topic", "partition", "last_stable_offset", "held_back", "transactional_id", "producer_id", "producer_epoch",
        "client_id", "client_host", "transaction_state", "since", "times_out", "condition",
    ),
    ("high_watermark", "transaction_duration_ms"),
)  # fmt: skip
ABORTED = Output(
    "txns abort", more=("transactional_id", "was", "topic", "partition", "producer_id", "message"), shape=Shape.OBJECT
)
CLIENTS = Output("txns clients", ("coordinator", "client_id", "client_host", "transactional_ids"))
EXPIRED = Output("txns expire", more=("selected", "removed", "kept", "message"), shape=Shape.OBJECT)


@app.callback(invoke_without_command=True)
@on_cluster
def default(
    target: Target,
    context: typer.Context,
    as_json: Json = False,
) -> None:
    """Without a subcommand: show the transactions that hold back readers, as odradek txns blocking.

    Example:

      odradek txns --dir /var/tmp/kafka
    """
    if context.invoked_subcommand is None:
        show_blocking(target, None, as_json=as_json)
    else:
        # Options before the subcommand apply to it, unless it has the same options itself.
        target.to_environment()
        context.default_map = {context.invoked_subcommand: {"as_json": as_json}}


@app.command("list")
@on_cluster
def list_transactions(
    target: Target,
    state: Annotated[
        list[str] | None, typer.Option(help="Show only this state: Ongoing, PrepareCommit, ...", metavar="STATE")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the transactional ids of all coordinators.

    Example:

      odradek txns list --state Ongoing
    """
    result = run(target, lambda cluster: client.list_transactions(cluster, state or ()), partial=True)
    rows = map(row_of, result.rows)
    show_partial(LISTED, rows, result.unreachable, as_json=as_json, empty="no transactional ids")


@app.command()
@on_cluster
def describe(
    target: Target,
    transactional_id: Annotated[
        str, typer.Argument(help="Transactional id of a producer.", autocompletion=completion.transactional_ids)
    ],
    as_json: Json = False,
) -> None:
    """Show the state, producer, partitions and time-out of a transactional id.

    Example:

      odradek txns describe payments-1
    """
    row = transaction_row(run(target, lambda cluster: client.describe_transaction(cluster, transactional_id)))
    if as_json:
        DESCRIBED.print_json(row)
        return
    fields = [{"field": name, "value": value} for name, value in DESCRIBED.row(row).items()]
    show(fields, ("field", "value"), as_json=False, empty="")


@app.command()
@on_cluster
def blocking(
    target: Target,
    topic: Annotated[str | None, typer.Option(help="Show only this topic.", autocompletion=completion.topics)] = None,
    as_json: Json = False,
) -> None:
    """Show the partitions whose last stable offset an open transaction holds back.

    The output has the start, the producer, the client and the time-out of the
    transaction. The condition [bold]hanging[/bold] means that no coordinator
    knows the transaction, so that it does not time out: end it with odradek txns
    abort. The condition [bold]in doubt[/bold] means that it takes part in a
    two-phase commit: its owner ends it, and no time-out aborts it. The condition
    [bold]unknown[/bold] means that a broker did not respond, or that the user
    may not describe all transactional ids.

    Example:

      odradek txns blocking --topic payments
    """
    show_blocking(target, topic, as_json=as_json)


def show_blocking(target: Target, topic: str | None, *, as_json: bool) -> None:
    """Print the partitions of a topic, or of all topics, whose readers wait for open transactions."""
    topics = None if topic is None else [topic]
    result = run(target, lambda cluster: client.blocked_partitions(cluster, topics), partial=True)
    rows = map(blocked_row, result.rows)
    show_partial(
        BLOCKING, rows, result.unreachable, as_json=as_json, empty="no partition is held back by a transaction"
    )


@app.command()
@on_cluster
def abort(
    target: Target,
    transactional_id: Annotated[
        str | None,
        typer.Argument(help="Transactional id of the producer to fence.", autocompletion=completion.transactional_ids),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="Topic of a hanging transaction.", autocompletion=completion.topics)
    ] = None,
    partition: Annotated[
        int | None, typer.Option(help="Partition of a hanging transaction.", min=0, max=INT32_MAX)
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option(help="Producer id of a hanging transaction.", min=0, max=INT64_MAX)
    ] = None,
    as_json: Json = False,
) -> None:
    """Abort a transaction that holds back readers.

    With a transactional id, the coordinator fences the producer and aborts the
    transaction in all partitions. With topic, partition and producer id, the
    leader writes an abort marker into this partition only. Use this for a hanging
    transaction, which no coordinator knows.

    Examples:

      odradek txns abort payments-1

      odradek txns abort --topic payments --partition 3 --producer-id 1000
    """
    if transactional_id is not None and (topic, partition, producer_id) == (None, None, None):
        row = fence(target, transactional_id)
    elif transactional_id is None and topic is not None and partition is not None and producer_id is not None:
        row = abort_hanging(target, topic, partition, producer_id)
    else:
        usage_error("specify either a transactional id, or --topic, --partition and --producer-id")
    if as_json:
        ABORTED.print_json(row)
    else:
        print(row["message"])


@app.command()
@on_cluster
def clients(target: Target, as_json: Json = False) -> None:
    """Count the transactional ids of each client at each coordinator: which client fills a coordinator.

    Example:

      odradek txns clients
    """
    result = run(target, client.list_transactions, partial=True)
    counts = Counter((row.coordinator, row.client_id, row.address) for row in result.rows)
    rows: list[Row] = [
        {"coordinator": node_id, "client_id": client_id, "client_host": address, "transactional_ids": count}
        for (node_id, client_id, address), count in counts.most_common()
    ]
    show_partial(CLIENTS, rows, result.unreachable, as_json=as_json, empty="no transactional ids")


@app.command()
@on_cluster
def expire(
    target: Target,
    transactional_id: Annotated[
        str | None, typer.Argument(help="Transactional id to remove.", autocompletion=completion.transactional_ids)
    ] = None,
    idle_s: Idle = None,
    client_id: ClientId = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Remove transactional ids without an open transaction from their coordinators.

    Ids with an open transaction stay: end it with odradek txns abort. Ids that
    were used since they were listed stay, too. The producer of a removed id is
    fenced: it must initialize the id again, as after its expiration.

    Examples:

      odradek txns expire payments-1

      odradek txns expire --client-id loader --idle 3600
    """
    selection = Selection(idle_s, client_id, address)
    if (transactional_id is None) == selection.is_empty:
        usage_error("specify either a transactional id, or at least one of --idle, --client-id and --address")

    async def remove(cluster: client.Cluster) -> tuple[int, dict[str, str], Mapping[int, str]]:
        listed = await client.list_transactions(cluster)
        chosen = [
            row
            for row in listed.rows
            if row.transactional_id == transactional_id
            or (transactional_id is None and selection.matches(row.idle_ms, row.client_id, row.address))
        ]
        if transactional_id is not None and not chosen and not listed.unreachable:
            raise client.NotFound(f"transactional id {transactional_id} does not exist")
        return len(chosen), await client.expire_transactional_ids(cluster, chosen), listed.unreachable

    chosen, kept, unreachable = run(target, remove)
    message = f"{chosen - len(kept)} of {chosen} selected transactional ids are removed"
    if as_json:
        EXPIRED.print_json({"selected": chosen, "removed": chosen - len(kept), "kept": kept, "message": message})
    else:
        print(message)
        for name, reason in kept.items():
            print(f"{name} stays: {reason}")
    exit_if_partial(unreachable)


def fence(target: Target, transactional_id: str) -> Row:
    """Fence the producer of a transactional id. Return the row to print. Raise typer.Exit on failure."""
    before = run(target, lambda cluster: client.fence_producer(cluster, transactional_id))
    message = f"{transactional_id}: producer {before.producer_id} epoch {before.producer_epoch} is fenced"
    if before.state == "Ongoing":
        message += ", its transaction is aborted"
    return {"transactional_id": transactional_id, "was": before.state, "message": message}


def abort_hanging(target: Target, topic: str, partition: int, producer_id: int) -> Row:
    """Abort a hanging transaction in one partition. Return the row to print. Raise typer.Exit on failure."""
    aborted = run(
        target,
        lambda cluster: client.abort_hanging_transaction(cluster, topic, partition, producer_id),
    )
    message = (
        f"{topic}-{partition}: the transaction of producer {producer_id} that began at offset {aborted.first_offset} "
        "is aborted"
    )
    return {"topic": topic, "partition": partition, "producer_id": producer_id, "message": message}


def show_partial(
    output: Output, rows: Iterable[Row], unreachable: Mapping[int, str], *, as_json: bool, empty: str
) -> None:
    """Print the rows. If brokers did not respond, name them, and raise typer.Exit with code 1: rows may be missing.

    `unreachable` has the reasons by node id.
    """
    output.show(rows, as_json=as_json, empty="no rows from the brokers that responded" if unreachable else empty)
    exit_if_partial(unreachable)


def exit_if_partial(unreachable: Mapping[int, str]) -> None:
    """Name the brokers that did not respond, and raise typer.Exit with code 1 if there is one."""
    for node_id, reason in sorted(unreachable.items()):
        errors.print(
            f"broker {node_id} did not respond ({reason}): its partitions and transactions are missing", markup=False
        )
    if unreachable:
        raise typer.Exit(FAILED)
