"""The transactional producer, a process of its own: it is there to be killed.

It writes every hour of the feed as one transaction: the flights to a topic of several partitions, and one progress record
to a topic of one. Started again with the same transactional id it goes on after the last *committed* progress record, so
what a kill left open is completed or undone by the broker and never guessed here. What it is about to do, and what is
done, it tells on standard output, one JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, Producer

from odradek.pipeline.flights.feed import Feed
from odradek.pipeline.flights.plan import Fate, Hour, aborted_hours, attempt_name, fates
from odradek.pipeline.flights.progress_topic import Progress, last_progress

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST_SECONDS_MAX = 30.0
TRANSACTION_MS_MAX = 60_000
REFUSALS_MAX = 10


def tell(event: str, **details: object) -> None:
    """One whole line by one write: a reader sees all of it or nothing, whenever this process is killed."""
    os.write(sys.stdout.fileno(), json.dumps({"event": event} | details).encode() + b"\n")


def retried(call: Callable[[float], None]) -> None:
    """Call until it is done; what may be retried (a time-out among it) means: outcome unknown, ask again."""
    for attempt in range(REFUSALS_MAX):
        try:
            call(REQUEST_SECONDS_MAX)
        except KafkaException as refused:
            if not refused.args[0].retriable() or attempt == REFUSALS_MAX - 1:
                raise
        else:
            return


class Writer:
    """One life of the producer."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._topic: str = arguments.topic
        self._progress_topic: str = arguments.progress_topic
        self._life: int = arguments.life
        self._attempts = 0
        self._gates: list[int] = arguments.gates
        self._opened: threading.Semaphore = arguments.opened
        self._feed = Feed(arguments.feed)
        self._producer = Producer(
            {
                "bootstrap.servers": arguments.bootstrap,
                "transactional.id": arguments.transactional_id,
                "transaction.timeout.ms": TRANSACTION_MS_MAX,
                "compression.type": "lz4",
                "linger.ms": 0,  # a commit flushes; waiting for more rows of the same hour gains nothing
            }
        )

    def run(self, bootstrap: str, seed: int) -> None:
        """Fence the life before this one, find its last committed hour, write the rest."""
        retried(self._producer.init_transactions)
        # Only now, when the broker has resolved what the life before left open, is the last record the last one.
        last = last_progress(bootstrap, self._progress_topic)
        first = 0 if last is None else last.hour + 1
        tell("resumed", hour=first)
        aborted = aborted_hours(seed, len(self._feed.hours))
        for hour in self._feed.hours[first:]:
            if self._gates and hour.index == self._gates[0]:
                tell("waiting", hour=self._gates.pop(0))
                self._opened.acquire()
            for fate in fates(hour.index, aborted):
                while not self._attempt(hour, fate):
                    pass
        tell("finished")

    def _attempt(self, hour: Hour, fate: Fate) -> bool:
        """Try an hour once. False: the broker wants this transaction aborted, which is done; try again."""
        self._attempts += 1
        attempt = attempt_name(hour.index, self._life, self._attempts, fate)
        details = {"hour": hour.index, "attempt": attempt, "rows": hour.rows}
        tell("writing", **details)
        try:
            self._write(hour, attempt)
            # A commit would flush by itself; an abort would drop what is still in the client, and hide nothing in the log.
            self._producer.flush(REQUEST_SECONDS_MAX)
            if fate is Fate.COMMIT:
                tell("committing", **details)
                retried(self._producer.commit_transaction)
                tell("committed", **details)
                return True
        except KafkaException as refused:
            if not refused.args[0].txn_requires_abort():
                raise
            fate = Fate.COMMIT
        tell("aborting", **details)
        retried(self._producer.abort_transaction)
        tell("aborted", **details)
        return fate is Fate.ABORT

    def _write(self, hour: Hour, attempt: str) -> None:
        headers: dict[str, str | bytes | None] = {"attempt": attempt.encode()}
        self._producer.begin_transaction()
        for line in self._feed.lines(hour):
            flight = json.loads(line)
            key = f"{flight['carrier']}{flight['flight']}".encode()
            self._producer.produce(self._topic, line, key, headers=headers)
        progress = Progress(hour.index, attempt, hour.rows)
        self._producer.produce(self._progress_topic, progress.encode(), headers=headers)
        self._producer.poll(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True, help="where to write: HOST:PORT")
    parser.add_argument("--progress-bootstrap", required=True, help="where to read the progress topic: HOST:PORT")
    parser.add_argument("--feed", type=Path, required=True, help="directory of the feed and its index")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--progress-topic", required=True)
    parser.add_argument("--transactional-id", required=True)
    parser.add_argument("--life", type=int, required=True, help="how many producers came before this one")
    parser.add_argument("--seed", type=int, required=True, help="which hours are aborted first")
    gates = "hours that are not begun before a byte for each has come on standard input"
    parser.add_argument("--gates", type=int, nargs="*", default=[], help=gates)
    arguments = parser.parse_args()
    arguments.opened = threading.Semaphore(0)

    def end_with_owner() -> None:
        while os.read(sys.stdin.fileno(), 1):  # not through sys.stdin: its lock would outlive this thread at exit
            arguments.opened.release()
        os._exit(1)

    threading.Thread(target=end_with_owner, daemon=True).start()
    try:
        Writer(arguments).run(arguments.progress_bootstrap, arguments.seed)
    except (KafkaException, TimeoutError) as failure:
        sys.exit(f"producer: {failure}")


if __name__ == "__main__":
    main()
