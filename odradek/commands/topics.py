"""`odradek topics`: list, describe, create and delete topics."""

from __future__ import annotations

from typing import Annotated

import typer

from odradek import client
from odradek.commands import completion
from odradek.commands.options import INT16_MAX, INT32_MAX, Json, parse_pair
from odradek.commands.outputs import Output, Shape
from odradek.commands.requests import exit_on_client_error, run
from odradek.commands.rows import row_of
from odradek.commands.target import Target, on_cluster
from odradek.plurals import counted

app = typer.Typer(help="Topics: list, describe, create, delete.", no_args_is_help=True, rich_markup_mode="rich")

LISTED = Output("topics list", ("topic", "topic_id", "partition_count", "replication_factor"), ("is_internal",))
DESCRIBED = Output(
    "topics describe",
    (
        "topic", "partition", "leader", "leader_epoch", "replicas", "isr", "log_start_offset", "last_stable_offset",
        "high_watermark",
    ),
    ("log_end_offset", "is_internal"),
)  # fmt: skip
CREATED = Output(
    "topics create", more=("topic", "topic_id", "partition_count", "replication_factor"), shape=Shape.OBJECT
)
DELETED = Output("topics delete", more=("topic", "topic_id"), shape=Shape.OBJECT)

Name = Annotated[str, typer.Argument(help="Name of the topic.", autocompletion=completion.topics)]
NewName = Annotated[str, typer.Argument(help="Name of the topic.")]


@app.command("list")
@on_cluster
def list_topics(
    target: Target,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    as_json: Json = False,
) -> None:
    """List the topics of the cluster.

    Example:

      odradek topics list --internal --json
    """
    rows = [row_of(row) for row in run(target, client.list_topics) if internal or not row.internal]
    LISTED.show(rows, as_json=as_json, empty="no topics")


@app.command()
@on_cluster
def describe(
    target: Target,
    name: Annotated[
        str | None, typer.Argument(help="Name of the topic. Without it: all topics.", autocompletion=completion.topics)
    ] = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Show only partitions with a replica that is not in sync.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the partitions of a topic, or of all topics, with their offsets.

    Examples:

      odradek topics describe payments

      odradek topics describe --under-replicated
    """
    names = None if name is None else [name]
    described = run(target, lambda cluster: client.describe_partitions(cluster, names))
    rows = [row_of(row) for row in described if not under_replicated or not set(row.isr).issuperset(row.replicas)]
    columns = DESCRIBED.table if name is None else DESCRIBED.table[1:]
    DESCRIBED.show(rows, as_json=as_json, empty="no partitions", columns=columns)


@app.command()
@on_cluster
def create(
    target: Target,
    name: NewName,
    partitions: Annotated[
        int, typer.Option(help="Number of partitions. -1: the broker's num.partitions.", min=-1, max=INT32_MAX)
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option(help="Replicas per partition. -1: the broker's default.", min=-1, max=INT16_MAX)
    ] = -1,
    configs: Annotated[
        list[str] | None,
        typer.Option("--config", help="Set a topic configuration, by Kafka's name.", metavar="NAME=VALUE"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create a topic.

    Examples:

      odradek topics create payments --partitions 6 --replication-factor 3

      odradek topics create payments --config retention.ms=3600000
    """
    with exit_on_client_error():
        pairs = dict(parse_pair(config, "--config") for config in configs or [])
    created = run(
        target,
        lambda cluster: client.create_topic(
            cluster, name, partitions=partitions, replication_factor=replication_factor, configs=pairs
        ),
    )
    if as_json:
        CREATED.print_json(row_of(created))
    else:
        print(f"created {name} with {counted(created.partitions, 'partition')}, id {created.topic_id}")


@app.command()
@on_cluster
def delete(target: Target, name: Name, as_json: Json = False) -> None:
    """Delete a topic and its records.

    Example:

      odradek topics delete payments
    """
    topic_id = run(target, lambda cluster: client.delete_topic(cluster, name))
    if as_json:
        DELETED.print_json({"topic": name, "topic_id": str(topic_id)})
    else:
        print(f"deleted {name}")
