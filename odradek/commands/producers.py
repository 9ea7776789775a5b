"""`odradek producers`: the producers that a partition keeps, their clients, and their removal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from odradek import client
from odradek.commands import completion
from odradek.commands.options import INT32_MAX, Json
from odradek.commands.outputs import Output, Shape
from odradek.commands.requests import run
from odradek.commands.rows import row_of
from odradek.commands.selection import Address, ClientId, Idle, Selection
from odradek.commands.target import Target, on_cluster
from odradek.commands.txns import exit_if_partial, show_partial
from odradek.local.output import usage_error

if TYPE_CHECKING:
    from collections.abc import Mapping

app = typer.Typer(
    help="Producers of a partition: list, count by client, remove.",
    rich_markup_mode="rich",
    no_args_is_help=True,
)

LISTED = Output(
    "producers list",
    ("partition", "producer_id", "producer_epoch", "client_id", "client_host", "idle_ms", "open_transaction"),
    ("topic", "last_sequence", "last_timestamp", "current_txn_start_offset"),
)
CLIENTS = Output("producers clients", ("partition", "client_id", "client_host", "producers"))
EXPIRED = Output("producers expire", more=("topic", "selected", "removed", "message"), shape=Shape.OBJECT)

TopicName = Annotated[str, typer.Argument(help="Topic.", metavar="TOPIC", autocompletion=completion.topics)]
PartitionIndex = Annotated[
    int | None,
    typer.Option("--partition", "-p", help="Partition; without it, all partitions.", min=0, max=INT32_MAX),
]


@app.callback()
@on_cluster
def default(target: Target) -> None:
    """Show and remove the producers that partitions keep to detect duplicates."""
    target.to_environment()


@app.command("list")
@on_cluster
def list_producers(
    target: Target,
    topic: TopicName,
    partition: PartitionIndex = None,
    as_json: Json = False,
) -> None:
    """List the producers of a topic, the longest idle first.

    The client is the one that has added the producer. It is unknown after a
    restart or an election of the leader.

    Example:

      odradek producers list payments --partition 3
    """
    result = run(target, lambda cluster: client.list_producers(cluster, topic, partition), partial=True)
    show_partial(LISTED, map(row_of, result.rows), result.unreachable, as_json=as_json, empty="no producers")


@app.command()
@on_cluster
def clients(
    target: Target,
    topic: TopicName,
    partition: PartitionIndex = None,
    as_json: Json = False,
) -> None:
    """Count the producers of each client, in each partition: which client fills a partition.

    Example:

      odradek producers clients payments
    """
    result = run(target, lambda cluster: client.list_producers(cluster, topic, partition), partial=True)
    counts = Counter((row.partition, row.client_id, row.address) for row in result.rows)
    rows = [
        {"partition": index, "client_id": client_id, "client_host": address, "producers": count}
        for (index, client_id, address), count in counts.most_common()
    ]
    show_partial(CLIENTS, rows, result.unreachable, as_json=as_json, empty="no producers")


@app.command()
@on_cluster
def expire(
    target: Target,
    topic: TopicName,
    partition: PartitionIndex = None,
    idle_s: Idle = None,
    client_id: ClientId = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Remove producers from the partitions of a topic. At least one option selects them.

    Producers with an open transaction stay, and so do those that were used since
    they were listed. If a removed producer retries a batch, the batch is written
    twice. After 15 minutes without a batch, no client retries.

    Examples:

      odradek producers expire payments --idle 900

      odradek producers expire payments --partition 3 --client-id loader
    """
    selection = Selection(idle_s, client_id, address)
    if selection.is_empty:
        usage_error("specify at least one of --idle, --client-id and --address")

    async def remove(cluster: client.Cluster) -> tuple[int, int, Mapping[int, str]]:
        listed = await client.list_producers(cluster, topic, partition)
        chosen = [row for row in listed.rows if selection.matches(row.idle_ms, row.client_id, row.address)]
        return len(chosen), await client.expire_producers(cluster, chosen), listed.unreachable

    chosen, removed, unreachable = run(target, remove)
    message = f"{topic}: {removed} of {chosen} selected producers are removed"
    if as_json:
        EXPIRED.print_json({"topic": topic, "selected": chosen, "removed": removed, "message": message})
    else:
        print(message)
    exit_if_partial(unreachable)
