"""`odradek records`: delete records from the beginning of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from odradek import client
from odradek.commands import completion
from odradek.commands.offset_targets import parse_scope
from odradek.commands.options import INT64_MAX, Json
from odradek.commands.outputs import Output
from odradek.commands.requests import exit_on_client_error, run
from odradek.commands.target import Target, on_cluster
from odradek.local.output import usage_error

if TYPE_CHECKING:
    from odradek.client import Cluster, TopicPartition

app = typer.Typer(
    help="Records: delete from the beginning of partitions.", no_args_is_help=True, rich_markup_mode="rich"
)

DELETED = Output("records delete", ("topic", "partition", "low_watermark"))


@app.callback()
def records() -> None:
    """Delete records from the beginning of partitions."""


@app.command()
@on_cluster
def delete(
    target: Target,
    scope: Annotated[
        list[str],
        typer.Argument(
            help="Topics, or some of their partitions.",
            metavar="TOPIC[:PARTITION,...]...",
            autocompletion=completion.topics,
        ),
    ],
    before: Annotated[
        int | None, typer.Option("--before", help="Delete records before this offset.", min=0, max=INT64_MAX)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all committed records.")] = False,
    as_json: Json = False,
) -> None:
    """Delete records from the beginning of partitions. They cannot be restored.

    Examples:

      odradek records delete payments:0 --before 1000

      odradek records delete payments --all
    """
    if (before is None) != everything:
        usage_error("specify either --before OFFSET, or --all")
    with exit_on_client_error():
        wanted = parse_scope(scope)
    offset = client.HIGH_WATERMARK if before is None else before

    async def remove(cluster: Cluster) -> dict[TopicPartition, int]:
        return await client.delete_records(cluster, dict.fromkeys(await client.partitions_of(cluster, wanted), offset))

    deleted = run(target, remove)
    rows = [{"topic": key.topic, "partition": key.partition, "low_watermark": start} for key, start in deleted.items()]
    DELETED.show(rows, as_json=as_json, empty="no partitions")
