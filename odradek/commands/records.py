"""``odradek consume`` and ``odradek produce``: records on a terminal and in a pipe."""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek import client
from odradek.commands.content import BASE64, bytes_of, json_of, json_of_headers
from odradek.commands.options import BOOTSTRAP_DEFAULT, Bootstrap, Json
from odradek.commands.record_lines import LineFormat, lines_of, parse_header
from odradek.commands.requests import failures, run
from odradek.commands.rows import moment
from odradek.local.output import INTERRUPTED, console, counted, errors, print_json, usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from odradek.client import Cluster, ConsumerRecord, ProducerRecord, Written

LINES_MAX, CHARACTERS_MAX = 1_000, 512 * 1024
"""Size of the input, in lines and in characters, after which its records are sent."""

Topic = Annotated[str, typer.Argument(help="Name of the topic.")]


def consume(
    topic: Topic,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    partition: Annotated[list[int] | None, typer.Option(help="Only these partitions.")] = None,
    start: Annotated[
        str, typer.Option("--from", help="earliest, latest or an offset.", metavar="POSITION")
    ] = "earliest",
    count: Annotated[int | None, typer.Option("--max", help="So many records at most.", min=1)] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on at the end, until Ctrl-C.")] = False,
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Records of open and aborted transactions too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print the records of a topic, up to the end it has now.

    Only what is committed, unless --uncommitted. With --json a line a record; keys, values and headers that are no text are
    {"base64": ...}.

    Examples:

      odradek consume payments --from latest --follow

      odradek consume payments --partition 0 --max 10 --json | jq .value
    """
    with failures():
        first = parse_start(start)
    isolation = client.IsolationLevel.READ_UNCOMMITTED if uncommitted else client.IsolationLevel.READ_COMMITTED

    async def printed(cluster: Cluster) -> None:
        consumer = client.Consumer(
            cluster, topic, partitions=partition or (), start=first, follow=follow, isolation=isolation
        )
        left = count
        async with aclosing(consumer.batches()) as batches:
            async for batch in batches:
                for record in batch[:left]:
                    sys.stdout.write((json_line(record) if as_json else text_line(record)) + "\n")
                if follow:
                    sys.stdout.flush()
                left = None if left is None else left - len(batch)
                if left is not None and left <= 0:
                    return

    try:
        run(bootstrap, printed)
    except KeyboardInterrupt as interrupted:
        raise typer.Exit(INTERRUPTED) from interrupted


def parse_start(text: str) -> int:
    """Parse a position: earliest, latest or an offset. Raise InvalidArgument if it is none."""
    match text:
        case "earliest":
            return client.EARLIEST
        case "latest":
            return client.LATEST
        case offset if offset.isascii() and offset.isdecimal():
            return int(offset)
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
    return json.dumps(row, ensure_ascii=False)


def text_line(record: ConsumerRecord) -> str:
    """Return a record as fields between tabs: partition and offset, time, key, value, headers."""
    fields = [f"{record.partition}@{record.offset}", moment(record.timestamp_ms), word(record.key), word(record.value)]
    return "\t".join([*fields, *(f"{name}={word(value)}" for name, value in record.headers)])


def word(content: bytes | None) -> str:
    value = json_of(content)
    if isinstance(value, dict):
        return f"base64:{value[BASE64]}"
    return "null" if value is None else value


def produce(
    topic: Topic,
    value: Annotated[
        str | None, typer.Argument(help="The value.", show_default="each line of standard input is one")
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    key: Annotated[str | None, typer.Option(help="The key of the value.")] = None,
    key_separator: Annotated[str | None, typer.Option(help="Lines are key, this, value.", metavar="TEXT")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(help="A header of every record; NAME alone is one without a value.", metavar="NAME=VALUE"),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(help="Into this partition.", show_default="by the key as Kafka's producers do, or in turn"),
    ] = None,
    from_json: Annotated[
        bool, typer.Option("--from-json", help="Lines are what odradek consume --json prints.")
    ] = False,
    transaction: Annotated[bool, typer.Option("--transaction", "-t", help="All of it in one transaction.")] = False,
    transactional_id: Annotated[str | None, typer.Option(help="In a transaction of this id.", metavar="ID")] = None,
    abort: Annotated[bool, typer.Option("--abort", help="In a transaction that is aborted at the end.")] = False,
    as_json: Json = False,
) -> None:
    """Write records: one that is named here, or each line of standard input.

    Each is written once, to all in-sync replicas. A transaction is all or nothing for who reads what is committed: also when the
    input ends early or is interrupted, it is aborted.

    Examples:

      odradek produce payments '{"amount": 3}' --key alice --header source=shell

      seq 1000 | odradek produce numbers --transaction

      odradek consume payments --json | odradek produce copies --from-json --transactional-id copier
    """
    if value is None and key is not None:
        usage("--key belongs to a value that is named; for lines use --key-separator")
    if value is not None and (key_separator is not None or from_json):
        usage("--key-separator and --from-json are for lines of standard input; leave out the value")
    if key_separator is not None and from_json:
        usage("--key-separator and --from-json exclude each other")
    with failures():
        headers = tuple(parse_header(each) for each in header or [])
        batches = input_batches(LineFormat(headers, partition, key_separator, from_json))
        if value is not None:
            key_bytes = None if key is None else bytes_of(key, "--key")
            one = client.ProducerRecord(key_bytes, bytes_of(value, "value"), headers, partition)
            batches = single(one)
        elif sys.stdin is None:
            raise client.ClientError("standard input is closed; name the value, or give lines")
    identity = (transactional_id or own_id()) if transaction or abort or transactional_id is not None else None
    try:
        result = run(bootstrap, lambda cluster: written(cluster, topic, identity, batches, commit=not abort))
    except KeyboardInterrupt as interrupted:
        errors.print("interrupted")
        raise typer.Exit(INTERRUPTED) from interrupted
    if as_json:
        print_json(result)
        return
    places = ", ".join(f"{each['partition']}@{each['first_offset']}" for each in result["partitions"])
    ended = "" if result["transaction"] == "none" else f", {result['transaction']}"
    console.print(f"{counted(result['records'], 'record')} to {topic} ({places or 'nothing'}){ended}", markup=False)


async def written(
    cluster: Cluster,
    topic: str,
    transactional_id: str | None,
    batches: AsyncIterator[list[ProducerRecord]],
    *,
    commit: bool,
) -> dict[str, Any]:
    """Write all batches and end the transaction if there is one. A failure or Ctrl-C aborts it."""
    try:
        await cluster.topic(topic)
    except client.NotFound as error:
        raise client.NotFound(
            error.problem, f"create it with: odradek topics create {topic}", code=error.code
        ) from error
    producer = client.Producer(cluster, transactional_id)
    sent: list[Written] = []
    try:
        if transactional_id is not None:
            await producer.begin()
        async for batch in batches:
            sent += await producer.send(topic, batch)
    except BaseException:
        if producer.in_transaction:
            await producer.abort()
        raise
    if transactional_id is not None:
        await (producer.commit() if commit else producer.abort())
    partitions: dict[int, dict[str, int]] = {}
    for each in sent:
        place = {"partition": each.partition, "first_offset": each.base_offset, "records": 0}
        partitions.setdefault(each.partition, place)["records"] += each.records
    return {
        "topic": topic,
        "records": sum(each.records for each in sent),
        "transaction": "none" if transactional_id is None else "committed" if commit else "aborted",
        "transactional_id": transactional_id,
        "partitions": [partitions[index] for index in sorted(partitions)],
    }


async def single(record: ProducerRecord) -> AsyncIterator[list[ProducerRecord]]:
    """Yield one batch of one record."""
    yield [record]


async def input_batches(form: LineFormat) -> AsyncIterator[list[ProducerRecord]]:
    """Yield the records of standard input in full batches. From a terminal, yield each line when it is complete."""
    terminal = sys.stdin.isatty()
    batch, size, number = list[client.ProducerRecord](), 0, 0
    async for lines in lines_of(sys.stdin.fileno()):
        for line in lines:
            number += 1
            batch.append(form.record(line, number))
            size += len(line)
            if terminal or len(batch) >= LINES_MAX or size >= CHARACTERS_MAX:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def own_id() -> str:
    """Return a transactional id of this process, so that two commands do not fence each other. Process ids bound their number."""
    return f"odradek-produce-{socket.gethostname()}-{os.getpid()}"
