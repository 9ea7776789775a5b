"""Transactional producer of the demo: a separate process, which the supervisor kills.

It writes each hour of the feed as one transaction: the flights to a topic with several partitions, and one progress
record to a topic with one partition. After a restart with the same transactional id, it continues after the last
*committed* progress record. The broker completes or aborts the open transaction of the previous run; the producer never
guesses its outcome. It reports each step on standard output, as one JSON object per line.

The first two lines of standard input are the access to the brokers, for writes and for reads of the progress topic.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from pathlib import Path

from confluent_kafka import KafkaException, Producer

from odradek.pipeline.cluster.access import Access
from odradek.pipeline.flights.feed import Feed
from odradek.pipeline.flights.plan import Hour, Intent, aborted_hours, attempt_name, intents
from odradek.pipeline.flights.progress_topic import Progress, last_progress
from odradek.pipeline.producer.retry import REQUEST_SECONDS_MAX, retry

TRANSACTION_MS_MAX = 60_000
"""Property `transaction.timeout.ms`: the coordinator aborts a transaction that is open for longer."""


def report(event: str, **details: object) -> None:
    """Write an event to standard output as one line of JSON.

    It is one write call. Whenever this process is killed, the supervisor reads the whole line or nothing.
    """
    os.write(sys.stdout.fileno(), json.dumps({"event": event} | details).encode() + b"\n")


class Writer:
    """One run of the producer, from init_transactions to the last hour of the feed."""

    def __init__(self, access: Access, arguments: argparse.Namespace) -> None:
        self._topic: str = arguments.topic
        self._progress_topic: str = arguments.progress_topic
        self._run: int = arguments.run
        self._attempts = 0
        self._pauses: list[int] = arguments.pauses
        self._ended_pauses: threading.Semaphore = arguments.ended_pauses
        self._feed = Feed(arguments.feed)
        self._producer = Producer(
            {
                **access.confluent(),
                "transactional.id": arguments.transactional_id,
                "transaction.timeout.ms": TRANSACTION_MS_MAX,
                "compression.type": "lz4",
                # Each transaction ends with a flush. Waiting for further rows of the same hour would only delay it.
                "linger.ms": 0,
            }
        )

    def run(self, progress_access: Access, seed: int) -> None:
        """Fence the previous run, find its last committed hour, and write the remaining hours.

        `progress_access` is for reads of the progress topic. `seed` determines the hours that are aborted first.
        Raise KafkaException on a fatal error of the client, and TimeoutError if the progress topic cannot be read.
        """
        retry(self._producer.init_transactions)
        # Read the progress only after init_transactions: before it, a transaction of the previous run may still commit.
        last = last_progress(progress_access, self._progress_topic)
        first = 0 if last is None else last.hour + 1
        report("resumed", hour=first)
        aborted = aborted_hours(seed, len(self._feed.hours))
        for hour in self._feed.hours[first:]:
            if self._pauses and hour.index == self._pauses[0]:
                report("paused", hour=self._pauses.pop(0))
                self._ended_pauses.acquire()
            for intent in intents(hour.index, aborted):
                while not self._attempt(hour, intent):
                    pass
        report("finished")

    def _attempt(self, hour: Hour, intent: Intent) -> bool:
        """Write an hour once, and end the transaction according to `intent`.

        Return False if the transaction was aborted because of an abortable error. The caller then repeats the attempt.
        """
        self._attempts += 1
        attempt = attempt_name(hour.index, self._run, self._attempts, intent)
        details = {"hour": hour.index, "attempt": attempt, "rows": hour.rows}
        report("writing", **details)
        try:
            self._write(hour, attempt)
            # Without this flush, an abort would drop the rows that the client has not sent. The log would then contain
            # no aborted rows, and the run would not show that readers skip them.
            self._producer.flush(REQUEST_SECONDS_MAX)
            if intent is Intent.COMMIT:
                report("committing", **details)
                retry(self._producer.commit_transaction)
                report("committed", **details)
                return True
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            intent = Intent.COMMIT
        report("aborting", **details)
        retry(self._producer.abort_transaction)
        report("aborted", **details)
        return intent is Intent.ABORT

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


def read_line() -> str:
    """Return the next line of standard input, and read nothing after it: each later byte ends a pause."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(sys.stdin.fileno(), 1)
        if not byte:
            sys.exit("producer: standard input ended before the two lines with the access to the brokers")
        line += byte
    return line.decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--feed", type=Path, required=True, help="directory of the feed and its index")
    parser.add_argument("--topic", required=True, help="topic of the flights")
    parser.add_argument("--progress-topic", required=True, help="topic of the progress records")
    parser.add_argument("--transactional-id", required=True)
    parser.add_argument("--run", type=int, required=True, help="number of this run of the producer, from 1")
    parser.add_argument("--seed", type=int, required=True, help="selects the hours that are aborted first")
    pauses = "hours before which the producer pauses until it has received one more byte per pause on standard input"
    parser.add_argument("--pauses", type=int, nargs="*", default=[], help=pauses)
    arguments = parser.parse_args()
    arguments.ended_pauses = threading.Semaphore(0)
    access, progress_access = Access.decode(read_line()), Access.decode(read_line())

    def terminate_with_owner() -> None:
        # Do not use sys.stdin: this thread would hold its lock, for which the interpreter waits at exit.
        while os.read(sys.stdin.fileno(), 1):
            arguments.ended_pauses.release()
        os._exit(1)

    threading.Thread(target=terminate_with_owner, daemon=True).start()
    try:
        Writer(access, arguments).run(progress_access, arguments.seed)
    except (KafkaException, TimeoutError) as error:
        sys.exit(f"producer: {error}")


if __name__ == "__main__":
    main()
