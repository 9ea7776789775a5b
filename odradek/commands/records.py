"""``odradek consume`` and ``odradek produce``: records on a terminal and in a pipe."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from odradek.commands.options import BOOTSTRAP_DEFAULT, Bootstrap, Json
from odradek.local.output import ask, console, counted, print_json, stream, usage

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
    arguments = ["consume", topic, "--bootstrap", bootstrap, "--from", start]
    arguments += [f"--partition={each}" for each in partition or []]
    if count is not None:
        arguments += ["--max", str(count)]
    arguments += [*(["--follow"] if follow else []), *(["--uncommitted"] if uncommitted else [])]
    for line in stream(*arguments):
        sys.stdout.write(line if as_json else row(json.loads(line)) + "\n")
        if follow:
            sys.stdout.flush()


def row(record: dict[str, Any]) -> str:
    """One record for a person: where it is, when, key, value, headers; fields between tabs."""
    at = datetime.fromtimestamp(record["timestamp"] / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
    fields = [f"{record['partition']}@{record['offset']}", at, word(record["key"]), word(record["value"])]
    return "\t".join([*fields, *(f"{name}={word(value)}" for name, value in record["headers"])])


def word(content: Any) -> str:
    if content is None:
        return "null"
    return content if isinstance(content, str) else f"base64:{content['base64']}"


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
    arguments = ["produce", topic, "--bootstrap", bootstrap]
    for name, given in (("value", value), ("key", key), ("key-separator", key_separator), ("partition", partition)):
        if given is not None:
            arguments.append(f"--{name}={given}")
    arguments += [f"--header={each}" for each in header or []]
    if transaction or abort or transactional_id is not None:
        arguments.append(f"--transactional-id={transactional_id or own_id()}")
    arguments += [*(["--from-json"] if from_json else []), *(["--abort"] if abort else [])]
    # Ctrl-C is for the process that sends, which aborts what it has begun; this one waits for it and says how it went.
    signal.signal(signal.SIGINT, lambda *_: None)
    answer = ask(*arguments)
    if as_json:
        print_json(answer)
        return
    places = ", ".join(f"{each['partition']}@{each['first_offset']}" for each in answer["partitions"])
    ended = "" if answer["transaction"] == "none" else f", {answer['transaction']}"
    console.print(f"{counted(answer['records'], 'record')} to {topic} ({places or 'nothing'}){ended}", markup=False)


def own_id() -> str:
    """Of this process, so that two at a time do not fence each other; bounded, as process ids are."""
    return f"odradek-produce-{socket.gethostname()}-{os.getpid()}"
