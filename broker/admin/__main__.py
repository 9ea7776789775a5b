"""Parse, ask, print one JSON value. Exit code 1 and one line on standard error when the answer is no."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from broker.admin import cluster as whole
from broker.admin import topics, transactions
from broker.admin.client import Cluster, Failed


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog="broker.admin")
    nouns = root.add_subparsers(dest="noun", required=True)
    connected(nouns.add_parser("status"))
    for wait in ("in-sync", "serving"):
        connected(nouns.add_parser(wait)).add_argument("--brokers", type=int, required=True)
    topic_verbs = nouns.add_parser("topics").add_subparsers(dest="verb", required=True)
    connected(topic_verbs.add_parser("list"))
    for verb in ("describe", "delete", "create"):
        command = connected(topic_verbs.add_parser(verb))
        command.add_argument("name")
    command.add_argument("--partitions", type=int, default=-1)
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
    dump = nouns.add_parser("dump")
    dump.add_argument("files", nargs="+")
    dump.add_argument("--records", action="store_true")
    return root


def connected(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
    command.add_argument("--bootstrap", required=True)
    return command


def run(options: argparse.Namespace) -> Any:
    if options.noun == "dump":
        from broker.admin.files import dump  # needs no cluster

        return dump(options.files, records=options.records)
    if options.noun in {"in-sync", "serving"}:
        enough = whole.all_of if options.noun == "in-sync" else whole.most_of
        return whole.wait_whole(options.bootstrap, options.brokers, enough)
    partial = options.noun == "status" or (options.noun == "txns" and options.verb in {"list", "blocking"})
    cluster = Cluster(options.bootstrap, tolerant=partial)
    try:
        if options.noun == "status":
            return whole.status(cluster)
        return (topic_command if options.noun == "topics" else transaction_command)(cluster, options)
    finally:
        cluster.close()


def topic_command(cluster: Cluster, options: argparse.Namespace) -> Any:
    match options.verb:
        case "list":
            return topics.listing(cluster)
        case "describe":
            return topics.partitions(cluster, [options.name])
        case "create":
            return topics.create(cluster, options.name, options.partitions, options.config)
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


def main() -> int:
    try:
        answer = run(parser().parse_args())
    except (Failed, OSError) as failed:
        print(failed, file=sys.stderr)
        return 1
    json.dump(answer, sys.stdout, ensure_ascii=False)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
