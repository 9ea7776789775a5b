"""`odradek consume` and `odradek produce`: records on standard output and from standard input."""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek import client
from odradek.commands import completion
from odradek.commands.content import BASE64, bytes_of, json_of, json_of_headers
from odradek.commands.offset_targets import parse_number
from odradek.commands.options import INT32_MAX, INT64_MAX, Json
from odradek.commands.outputs import Output, Shape
from odradek.commands.record_lines import LineFormat, lines_of, parse_header
from odradek.commands.requests import exit_on_client_error, run
from odradek.commands.rows import moment
from odradek.commands.target import Target, on_cluster
from odradek.interruption import INTERRUPTED
from odradek.local.output import console, errors, usage_error
from odradek.plurals import counted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from odradek.client import Cluster, ConsumerRecord, ProducerRecord, Written

LINES_MAX, CHARACTERS_MAX = 1_000, 512 * 1024
"""Maximum lines and characters of standard input per batch."""

CONSUMED = Output(
    "consume",
    more=("topic", "partition", "offset", "timestamp", "key", "value", "headers"),
    shape=Shape.LINES,
)
PRODUCED = Output(
    "produce", more=("topic", "records", "transaction", "transactional_id", "partitions"), shape=Shape.OBJECT
)
WRITTEN = Output("produce", more=("partition", "base_offset", "records"), within="partitions")

Topic = Annotated[str, typer.Argument(help="Name of the topic.", autocompletion=completion.topics)]

TransactionalId = Annotated[
    str | None,
    typer.Option(
        help="Use a transaction with this transactional id.",
        metavar="ID",
        autocompletion=completion.transactional_ids,
    ),
]


@on_cluster
def consume(
    target: Target,
    topic: Topic,
    partition: Annotated[
        list[int] | None, typer.Option(help="Print only this partition.", min=0, max=INT32_MAX)
    ] = None,
    start: Annotated[
        str, typer.Option("--from", help="Start at earliest, latest or an offset.", metavar="POSITION")
    ] = "earliest",
    count: Annotated[int | None, typer.Option("--max", help="Maximum number of records.", min=1)] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new records until Ctrl-C.")] = False,
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Include records of open and aborted transactions.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print the records of a topic up to its present end.

    Records of open and aborted transactions are left out, unless --uncommitted is
    set. With --json, each record is one line. Keys, values and headers that are
    not UTF-8 are {"base64": ...}.

    Examples:

      odradek consume payments --from latest --follow

      odradek consume payments --partition 0 --max 10 --json | jq .value
    """
    with exit_on_client_error():
        first = parse_start(start)
    isolation = client.IsolationLevel.READ_UNCOMMITTED if uncommitted else client.IsolationLevel.READ_COMMITTED

    async def print_records(cluster: Cluster) -> None:
        consumer = client.Consumer(
            cluster, topic, partitions=partition or (), start=first, follow=follow, isolation=isolation
        )
        remaining = count
        async with aclosing(consumer.batches()) as batches:
            async for batch in batches:
                for record in batch[:remaining]:
                    sys.stdout.write((json_line(record) if as_json else text_line(record)) + "\n")
                if follow:
                    sys.stdout.flush()
                remaining = None if remaining is None else remaining - len(batch)
                if remaining is not None and remaining <= 0:
                    return

    try:
        run(target, print_records)
    except KeyboardInterrupt as interrupted:
        raise typer.Exit(INTERRUPTED) from interrupted


def parse_start(text: str) -> int:
    """Parse a start position: earliest, latest or an offset. Raise InvalidArgument for other texts."""
    match text:
        case "earliest":
            return client.EARLIEST
        case "latest":
            return client.LATEST
        case offset if offset.isascii() and offset.isdecimal():
            return parse_number(offset, "--from", 0, INT64_MAX)
        case other:
            raise client.InvalidArgument(f"--from {other}: expected earliest, latest or an offset")


def json_line(record: ConsumerRecord) -> str:
    """Return a record as one line of JSON."""
    row = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": json_of(record.key),
        "value": json_of(record.value),
        "headers": json_of_headers(record.headers),
    }
    return json.dumps(CONSUMED.row(row), ensure_ascii=False)


def text_line(record: ConsumerRecord) -> str:
    """Return a record as fields separated by tabs: partition and offset, time, key, value, headers."""
    fields = [
        f"{record.partition}@{record.offset}",
        moment(record.timestamp_ms),
        content_text(record.key),
        content_text(record.value),
    ]
    return "\t".join([*fields, *(f"{name}={content_text(value)}" for name, value in record.headers)])


def content_text(content: bytes | None) -> str:
    """Return a key, value or header value as text: "base64:..." if it is not UTF-8, "null" if it is null."""
    value = json_of(content)
    if isinstance(value, dict):
        return f"base64:{value[BASE64]}"
    return "null" if value is None else value


@on_cluster
def produce(
    target: Target,
    topic: Topic,
    value: Annotated[
        str | None, typer.Argument(help="Value of the record.", show_default="one record per line of standard input")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Key of the record.")] = None,
    key_separator: Annotated[
        str | None, typer.Option(help="Text between key and value in each input line.", metavar="TEXT")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(help="Add a header to all records. NAME alone is a header without a value.", metavar="NAME=VALUE"),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            help="Partition of all records.", show_default="by hash of the key, or round robin", min=0, max=INT32_MAX
        ),
    ] = None,
    from_json: Annotated[
        bool, typer.Option("--from-json", help="Read lines of JSON, as odradek consume --json prints them.")
    ] = False,
    transaction: Annotated[
        bool, typer.Option("--transaction", "-t", help="Write all records in one transaction.")
    ] = False,
    transactional_id: TransactionalId = None,
    abort: Annotated[bool, typer.Option("--abort", help="Use a transaction, and abort it at the end.")] = False,
    as_json: Json = False,
) -> None:
    """Write one record, or one record per line of standard input.

    The producer is idempotent and waits for all in-sync replicas. With
    --transaction, consumers with read_committed see all records or none: after an
    error or Ctrl-C, the transaction is aborted.

    Examples:

      odradek produce payments '{"amount": 3}' --key alice --header from=shell

      seq 1000 | odradek produce numbers --transaction

      odradek consume payments --json | odradek produce copies --from-json
    """
    refuse_contradictions(value, key, key_separator, from_json=from_json)
    with exit_on_client_error():
        headers = tuple(parse_header(pair) for pair in header or [])
        batches = input_batches(LineFormat(headers, partition, key_separator, from_json))
        if value is not None:
            key_bytes = None if key is None else bytes_of(key, "--key")
            record = client.ProducerRecord(key_bytes, bytes_of(value, "value"), headers, partition)
            batches = single_batch(record)
        elif sys.stdin is None:
            raise client.ClientError("standard input is closed; specify a value, or redirect standard input")
    effective_id = (
        (transactional_id or default_transactional_id())
        if transaction or abort or transactional_id is not None
        else None
    )
    try:
        result = run(
            target,
            lambda cluster: write_records(cluster, topic, effective_id, batches, commit=not abort),
        )
    except KeyboardInterrupt as interrupted:
        errors.print("interrupted")
        raise typer.Exit(INTERRUPTED) from interrupted
    print_result(result, as_json=as_json)


def refuse_contradictions(value: str | None, key: str | None, key_separator: str | None, *, from_json: bool) -> None:
    """Print an error and raise typer.Exit if options of `odradek produce` contradict each other."""
    if value is None and key is not None:
        usage_error("--key needs a value on the command line; for lines of standard input use --key-separator")
    if value is not None and (key_separator is not None or from_json):
        usage_error("--key-separator and --from-json are for lines of standard input: remove the value")
    if key_separator is not None and from_json:
        usage_error("--key-separator and --from-json exclude each other: specify one of them")


def print_result(result: dict[str, Any], *, as_json: bool) -> None:
    """Print a result of `write_records` as JSON or as one line."""
    if as_json:
        PRODUCED.print_json(result | {"partitions": WRITTEN.rows(result["partitions"])})
        return
    positions = ", ".join(f"{row['partition']}@{row['base_offset']}" for row in result["partitions"])
    outcome = "" if result["transaction"] == "none" else f", {result['transaction']}"
    console.print(
        f"{counted(result['records'], 'record')} to {result['topic']} ({positions or 'no partition'}){outcome}",
        markup=False,
    )


async def write_records(
    cluster: Cluster,
    topic: str,
    transactional_id: str | None,
    batches: AsyncIterator[list[ProducerRecord]],
    *,
    commit: bool,
) -> dict[str, Any]:
    """Write all batches, and return the row to print.

    With a transactional id, write them in a transaction. Abort it after an error or Ctrl-C, or if `commit` is False.
    """
    try:
        await cluster.topic(topic)
    except client.NotFound as error:
        raise client.NotFound(
            error.problem, f"create it with: odradek topics create {topic}", code=error.code
        ) from error
    producer = client.Producer(cluster, transactional_id)
    written: list[Written] = []
    try:
        if transactional_id is not None:
            await producer.begin()
        async for batch in batches:
            written += await producer.send(topic, batch)
    except BaseException:
        if producer.in_transaction:
            await producer.abort()
        raise
    if transactional_id is not None:
        await (producer.commit() if commit else producer.abort())
    partitions: dict[int, dict[str, int]] = {}
    for batch_result in written:
        row = {"partition": batch_result.partition, "base_offset": batch_result.base_offset, "records": 0}
        partitions.setdefault(batch_result.partition, row)["records"] += batch_result.records
    return {
        "topic": topic,
        "records": sum(batch_result.records for batch_result in written),
        "transaction": "none" if transactional_id is None else "committed" if commit else "aborted",
        "transactional_id": transactional_id,
        "partitions": [partitions[index] for index in sorted(partitions)],
    }


async def single_batch(record: ProducerRecord) -> AsyncIterator[list[ProducerRecord]]:
    """Yield one batch with one record."""
    yield [record]


async def input_batches(line_format: LineFormat) -> AsyncIterator[list[ProducerRecord]]:
    """Yield the records of standard input in batches. If it is a terminal, yield each line as a batch."""
    is_terminal = sys.stdin.isatty()
    batch, size, number = list[client.ProducerRecord](), 0, 0
    async for lines in lines_of(sys.stdin.fileno()):
        for line in lines:
            number += 1
            batch.append(line_format.record(line, number))
            size += len(line)
            if is_terminal or len(batch) >= LINES_MAX or size >= CHARACTERS_MAX:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def default_transactional_id() -> str:
    """Return a transactional id from host name and process id.

    Two commands that run in parallel therefore do not fence each other. The number of ids per host is bounded, because
    the kernel reuses process ids.
    """
    return f"odradek-produce-{socket.gethostname()}-{os.getpid()}"
