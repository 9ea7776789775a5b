"""Parse, ask, print one JSON value. Exit code 1 and one line on standard error when the answer is no, 2 when it cannot be asked."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from odradek.client import cluster as whole
from odradek.client import configs, group_reset, groups, topics, transactions
from odradek.client.client import Cluster, Failed, Unaskable

if TYPE_CHECKING:
    from collections.abc import Callable

FAILED, USAGE, INTERRUPTED = 1, 2, 130
"""Exit codes; after Ctrl-C as shells have it."""


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog="odradek.client")
    nouns = root.add_subparsers(dest="noun", required=True)
    connected(nouns.add_parser("status")).add_argument("--every-s", type=float)
    for wait in ("in-sync", "serving"):
        connected(nouns.add_parser(wait)).add_argument("--brokers", type=int, required=True)
    topic_verbs = nouns.add_parser("topics").add_subparsers(dest="verb", required=True)
    connected(topic_verbs.add_parser("list"))
    for verb in ("describe", "delete", "create"):
        command = connected(topic_verbs.add_parser(verb))
        command.add_argument("name")
    command.add_argument("--partitions", type=int, default=-1)
    command.add_argument("--replication-factor", type=int, default=-1)
    command.add_argument("--config", action="append", default=[])
    txn_verbs = nouns.add_parser("txns").add_subparsers(dest="verb", required=True)
    connected(txn_verbs.add_parser("list")).add_argument("--state", action="append", default=[])
    connected(txn_verbs.add_parser("describe")).add_argument("transactional_id")
    connected(txn_verbs.add_parser("blocking")).add_argument("--topic")
    abort = connected(txn_verbs.add_parser("abort"))
    abort.add_argument("--transactional-id")
    abort.add_argument("--topic")
    abort.add_argument("--partition", type=int)
    abort.add_argument("--producer-id", type=int)
    group_parser(nouns.add_parser("groups").add_subparsers(dest="verb", required=True))
    config_parser(nouns.add_parser("configs").add_subparsers(dest="verb", required=True))
    record_parsers(nouns)
    return root


def group_parser(verbs: Any) -> None:
    listed = connected(verbs.add_parser("list"))
    listed.add_argument("--state", action="append", default=[])
    listed.add_argument("--type", action="append", default=[])
    for verb in ("describe", "delete", "reset"):
        command = connected(verbs.add_parser(verb))
        command.add_argument("group")
    command.add_argument("--topic", action="append")
    command.add_argument("--specification", choices=group_reset.SPECIFICATIONS, required=True)
    command.add_argument("--value")
    command.add_argument("--execute", action="store_true")


def config_parser(verbs: Any) -> None:
    for verb in ("describe", "alter"):
        command = connected(verbs.add_parser(verb))
        command.add_argument("kind", choices=list(configs.KINDS))
        command.add_argument("name")
        if verb == "describe":
            command.add_argument("--all", action="store_true")
    command.add_argument("--change", action="append", default=[])
    command.add_argument("--validate-only", action="store_true")


def record_parsers(nouns: Any) -> None:
    consume = connected(nouns.add_parser("consume"))
    consume.add_argument("topic")
    consume.add_argument("--partition", type=int, action="append", default=[])
    consume.add_argument("--from", dest="start", default="earliest")
    consume.add_argument("--max", type=int)
    consume.add_argument("--follow", action="store_true")
    consume.add_argument("--uncommitted", action="store_true")
    produce = connected(nouns.add_parser("produce"))
    produce.add_argument("topic")
    produce.add_argument("--value")
    produce.add_argument("--key")
    produce.add_argument("--partition", type=int)
    produce.add_argument("--header", action="append", default=[])
    produce.add_argument("--key-separator")
    produce.add_argument("--from-json", action="store_true")
    produce.add_argument("--transactional-id")
    produce.add_argument("--abort", action="store_true")


def connected(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
    command.add_argument("--bootstrap", required=True)
    return command


def run(options: argparse.Namespace) -> Any:
    if options.noun in {"in-sync", "serving"}:
        enough = whole.all_of if options.noun == "in-sync" else whole.most_of
        return whole.wait_whole(options.bootstrap, options.brokers, enough)
    if options.noun == "status" and options.every_s is not None:
        return watched(options.bootstrap, options.every_s)
    partial = options.noun == "status" or (options.noun == "txns" and options.verb in {"list", "blocking"})
    cluster = Cluster(options.bootstrap, tolerant=partial)
    try:
        return COMMANDS[options.noun](cluster, options)
    finally:
        cluster.close()


def watched(bootstrap: str, every_s: float) -> Any:
    """A line of status again and again, until whoever reads has seen enough; while nobody answers, why."""
    while True:
        try:
            cluster = Cluster(bootstrap, tolerant=True)
            try:
                answer = whole.status(cluster)
            finally:
                cluster.close()
        except Failed as failed:
            answer = {"failed": str(failed)}
        print(json.dumps(answer, ensure_ascii=False), flush=True)
        time.sleep(every_s)


def status_command(cluster: Cluster, options: argparse.Namespace) -> Any:
    return whole.status(cluster)


def topic_command(cluster: Cluster, options: argparse.Namespace) -> Any:
    match options.verb:
        case "list":
            return topics.listing(cluster)
        case "describe":
            return topics.partitions(cluster, [options.name])
        case "create":
            return topics.create(
                cluster, options.name, options.config, count=options.partitions, factor=options.replication_factor
            )
        case _:
            return topics.delete(cluster, options.name)


def transaction_command(cluster: Cluster, options: argparse.Namespace) -> Any:
    match options.verb:
        case "list":
            return {"rows": transactions.listing(cluster, options.state), "unanswered": cluster.unanswered}
        case "describe":
            return transactions.one(cluster, options.transactional_id)
        case "blocking":
            rows = transactions.blocking(cluster, [options.topic] if options.topic else None)
            return {"rows": rows, "unanswered": cluster.unanswered}
        case _:
            if options.transactional_id is not None:
                return transactions.fence(cluster, options.transactional_id)
            return transactions.abort_hanging(cluster, options.topic, options.partition, options.producer_id)


def group_command(cluster: Cluster, options: argparse.Namespace) -> Any:
    match options.verb:
        case "list":
            return groups.listing(cluster, options.state, options.type)
        case "describe":
            return groups.describe(cluster, options.group)
        case "delete":
            return groups.delete(cluster, options.group)
        case _:
            return group_reset.reset(
                cluster, options.group, options.topic, options.specification, options.value, execute=options.execute
            )


def config_command(cluster: Cluster, options: argparse.Namespace) -> Any:
    if options.verb == "describe":
        return configs.describe(cluster, options.kind, options.name, everything=options.all)
    return configs.alter(cluster, options.kind, options.name, options.change, validate_only=options.validate_only)


def consume_command(cluster: Cluster, options: argparse.Namespace) -> Any:
    """A line a record, as they come; nothing behind them."""
    from odradek.client.consume import Consumer, Wanted

    wanted = Wanted(
        options.topic, options.partition, options.start, options.follow, options.max, not options.uncommitted
    )
    for row in Consumer(cluster, wanted).records():
        print(json.dumps(row, ensure_ascii=False), flush=options.follow)
    return STREAMED


def produce_command(cluster: Cluster, options: argparse.Namespace) -> Any:
    """What `--value` says, or each line of standard input."""
    from odradek.client import content, produce

    headers = tuple(produce.header(pair) for pair in options.header)
    if options.value is not None:
        key = None if options.key is None else content.bytes_of(options.key, "--key")
        lines = iter([produce.Line(key, content.bytes_of(options.value, "value"), headers, options.partition)])
    else:
        if not isinstance(sys.stdin, TextIOWrapper):
            raise Failed("standard input is closed; name the value, or give lines")
        sys.stdin.reconfigure(errors=content.ESCAPES)
        lines = produce.lines_of(
            sys.stdin, headers, options.partition, separator=options.key_separator, as_json=options.from_json
        )
    return produce.produce(
        produce.Producer(cluster, options.topic, options.transactional_id),
        lines,
        commit=not options.abort,
        at_once=options.value is None and sys.stdin.isatty(),
    )


STREAMED = object()
COMMANDS: dict[str, Callable[[Cluster, argparse.Namespace], Any]] = {
    "status": status_command,
    "topics": topic_command,
    "txns": transaction_command,
    "groups": group_command,
    "configs": config_command,
    "consume": consume_command,
    "produce": produce_command,
}


def main() -> int:
    try:
        answer = run(parser().parse_args())
        if answer is not STREAMED:
            json.dump(answer, sys.stdout, ensure_ascii=False)
            print()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Failed, OSError) as failed:
        print(failed, file=sys.stderr)
        return USAGE if isinstance(failed, Unaskable) else FAILED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
