"""``make growth``: measure three brokers with more and more partitions.

Each number of partitions has a new cluster with replication factor 3. The figures are:

* The latency of another client while the partitions are created, and while each of them receives its first record.
* The longest callback of a broker, in CPU time.
* The duration of a clean stop, and the time to the first acknowledgment after the next start.
* The same after kill -9 of all brokers, and the gap in the acknowledgments after kill -9 of one.
* The seconds from complete ISRs to the balance of leaders. Preferred leaders are elected some seconds after they have
  joined the ISRs.
* The leaders of the most loaded broker after that time, relative to an equal share.

A topic has at most 1,000 partitions. One topic is one decision of the controller, so larger topics have longer
callbacks (docs/decisions/0075).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.failover import METADATA_SECONDS, PAUSE_SECONDS, await_in_sync, kill_leader
from benchmarks.growth_chart import table
from benchmarks.measured_broker import VARIABLE, Callback, measured_command, read_callbacks
from benchmarks.pulse import PulseProducer, Pulses, foreign_load, pulsing
from benchmarks.recording import GROWTH, Growth, GrowthRun, about_now, write_growth
from benchmarks.systems import BROKERS, ClusterSystem, KafkaThree, Odradek, Running
from benchmarks.workloads import CLIENT_TIMEOUT_S, create_topic
from odradek import run_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZES = (1_000, 5_000, 10_000)
TOPIC_PARTITIONS = 1_000
"""Maximum partitions per topic."""
REQUEST_TOPICS = 5
"""Maximum topics per CreateTopics request. A topic and each of its partitions are one record of the metadata log, and
Kafka and Odradek refuse a request that needs more than 10,000 records (POLICY_VIOLATION)."""
PULSE_TOPIC = "pulse"
BASELINE_S = 5.0
FILL_TIMEOUT_S = 900
"""Maximum seconds until each partition has acknowledged its first record. Apache Kafka needs more than two minutes for
10,000 partitions on two cores."""
IN_SYNC_S_MAX = 900.0
"""Maximum seconds until all replicas are in sync."""
AFTER_S = 3.0
"""Seconds for which pulses continue after the response to the creation: brokers then still start replication."""
IMBALANCE_MAX = 0.1
"""Maximum part of the partitions of a broker, as the preferred leader, that other brokers lead: the default of
`leader.imbalance.per.broker.percentage`. No system elects preferred leaders for less."""
BALANCE_SECONDS_MAX = 60.0
"""Maximum seconds to wait for the balance. Odradek elects preferred leaders five seconds after a broker has joined the
last ISR. Apache Kafka elects them every five minutes."""
STOP_TIMEOUT_S = 180.0
CALLBACKS_SHOWN = 5
Figures = dict[str, float]


class Run:
    """Measurements of one system with one number of partitions."""

    def __init__(self, system: ClusterSystem, partitions: int, callbacks: Path) -> None:
        self._system = system
        self._partitions = partitions
        self._callbacks = callbacks
        self.figures: Figures = {}
        self.longest: dict[str, list[Callback]] = {}

    def measure(self) -> None:
        self._system.start()
        create_topic(self._system.bootstrap, PULSE_TOPIC, 1, replicas=BROKERS)
        self._producer = PulseProducer(self._system.bootstrap, PULSE_TOPIC)
        self._producer.send_one()
        with foreign_load(BROKERS), pulsing(self._producer) as pulses:
            time.sleep(BASELINE_S)
        self._note_pulses("foreign load", pulses)
        self._phase("create", self._create)
        await_in_sync(self._system.bootstrap, IN_SYNC_S_MAX)
        self._phase("first records", self._fill)
        self._note_leaders("created")
        self._restart("clean stop", self._system.stop_brokers)
        self._restart("kill -9 of all", self._system.kill_brokers)
        with self._recording("kill -9 of one"):
            self.figures["kill -9 of one: gap s"] = kill_leader(self._system, PULSE_TOPIC).gap_s
        self._note_leaders("kill -9 of one")

    def _phase(self, name: str, work: Callable[[], None]) -> None:
        with self._recording(name), pulsing(self._producer) as pulses:
            began, used = time.perf_counter(), self._system.usage().cpu_seconds
            work()
            self.figures[f"{name}: s"] = time.perf_counter() - began
            time.sleep(AFTER_S)
            self.figures[f"{name}: CPU s"] = self._system.usage().cpu_seconds - used
        self._note_pulses(name, pulses)

    def _create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._system.bootstrap, "log_level": 0})
        for topics in creation_requests(self._partitions):
            for future in admin.create_topics(topics, request_timeout=CLIENT_TIMEOUT_S).values():
                future.result(CLIENT_TIMEOUT_S)

    def _fill(self) -> None:
        """Send one record to each partition."""
        producer = Producer(
            {
                "bootstrap.servers": self._system.bootstrap,
                "acks": "all",
                "log_level": 0,
                "message.timeout.ms": FILL_TIMEOUT_S * 1_000,
            }
        )
        for partition in range(self._partitions):
            first = partition - partition % TOPIC_PARTITIONS
            producer.produce(f"growth-{first}", b"x", partition=partition - first)
        if producer.flush(FILL_TIMEOUT_S):
            raise RuntimeError(f"not all first records were acknowledged in {FILL_TIMEOUT_S} s")

    def _restart(self, name: str, end: Callable[[], None]) -> None:
        """End all brokers, start them, and measure until a record is acknowledged."""
        with self._recording(name):
            began = time.perf_counter()
            end()
            self.figures[f"{name}: s"] = time.perf_counter() - began
        began = time.perf_counter()
        with ThreadPoolExecutor(1) as pool:
            started = pool.submit(self._system.start)
            self._producer.send_one()
            self.figures[f"{name}: first acknowledgment s"] = time.perf_counter() - began
            started.result()
        self.figures[f"{name}: CPU s of the start"] = self._system.usage().cpu_seconds
        await_in_sync(self._system.bootstrap, IN_SYNC_S_MAX)
        self._note_leaders(name)

    @contextmanager
    def _recording(self, name: str) -> Iterator[None]:
        """Note the longest callbacks of the brokers that run at the begin of the block. A start is not measured."""
        since, files = time.monotonic(), list(self._callbacks.iterdir())
        yield
        longest = read_callbacks(files, since)
        self.longest[name] = longest[:CALLBACKS_SHOWN]
        if longest:
            self.figures[f"{name}: longest callback ms"] = longest[0].cpu_ms

    def _note_pulses(self, name: str, pulses: Pulses) -> None:
        self.figures[f"{name}: worst pulse ms"] = pulses.worst_ms
        self.figures[f"{name}: p50 pulse ms"] = pulses.p50_ms
        if (baseline := self.figures.get("foreign load: worst pulse ms")) and name != "foreign load":
            self.figures[f"{name}: worst pulse / foreign load"] = pulses.worst_ms / baseline

    def _note_leaders(self, name: str) -> None:
        """Wait for the balance of leaders. Note the seconds, and the leaders of the most loaded broker relative to an
        equal share. All replicas must be in sync. Note no seconds if BALANCE_SECONDS_MAX pass.
        """
        admin = AdminClient({"bootstrap.servers": self._system.bootstrap, "log_level": 0})
        began = time.perf_counter()
        while not is_balanced(led := leaders_and_preferred(admin)):
            if time.perf_counter() - began > BALANCE_SECONDS_MAX:
                break
            time.sleep(PAUSE_SECONDS)  # brokers do not notify clients of elections
        else:
            self.figures[f"{name}: balanced after s in sync"] = time.perf_counter() - began
        leaders = Counter(leader for leader, _ in led)
        self.figures[f"{name}: most leaders / equal share"] = max(leaders.values()) * BROKERS / leaders.total()


def leaders_and_preferred(admin: AdminClient) -> list[tuple[int, int]]:
    """Return the leader and the preferred leader of each partition."""
    topics = admin.list_topics(timeout=METADATA_SECONDS).topics.values()
    return [(partition.leader, partition.replicas[0]) for topic in topics for partition in topic.partitions.values()]


def is_balanced(led: list[tuple[int, int]]) -> bool:
    """Return True if no broker has more than IMBALANCE_MAX of the partitions that prefer it led by others."""
    preferred = Counter(broker for _, broker in led)
    elsewhere = Counter(broker for leader, broker in led if leader != broker)
    return all(elsewhere[broker] <= IMBALANCE_MAX * count for broker, count in preferred.items())


def creation_requests(partitions: int) -> Iterator[list[NewTopic]]:
    """Yield the topics of each CreateTopics request. Together they have `partitions` partitions."""
    topics = (
        NewTopic(f"growth-{first}", min(TOPIC_PARTITIONS, partitions - first), BROKERS)
        for first in range(0, partitions, TOPIC_PARTITIONS)
    )
    while request := list(islice(topics, REQUEST_TOPICS)):
        yield request


def run(system: type[ClusterSystem], partitions: int) -> Run:
    """Measure a new cluster."""
    with tempfile.TemporaryDirectory(prefix="odradek-growth-") as callbacks:
        os.environ[VARIABLE] = callbacks
        cluster = Odradek(BROKERS, STOP_TIMEOUT_S) if system is Odradek else system()
        measured = Run(cluster, partitions, Path(callbacks))
        with Running(cluster):
            measured.measure()
        return measured


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make growth", description=__doc__, epilog="Example: make growth ARGS='1000 10000 --kafka'"
    )
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES, help="numbers of partitions (1000 5000 10000)")
    parser.add_argument("--kafka", action="store_true", help="measure Apache Kafka, too")
    parser.add_argument(
        "--json",
        type=Path,
        default=GROWTH,
        help="file for all figures, which `make bench` shows (default: %(default)s)",
    )
    options = parser.parse_args()
    run_module.command = measured_command
    systems: list[type[ClusterSystem]] = [Odradek, KafkaThree] if options.kafka else [Odradek]
    growth = Growth(about_now())
    try:
        for size in options.sizes:
            for system in systems:
                name = f"{system.name} {size:,}"
                print(f"{name} ...", file=sys.stderr)
                measured = run(system, size)
                growth.runs.append(GrowthRun(system.name, size, measured.figures))
                for phase, longest in measured.longest.items():
                    print(f"{name}, {phase}:", file=sys.stderr)
                    print(*(f"  {one.cpu_ms:7.1f} ms {one.name}" for one in longest), sep="\n", file=sys.stderr)
    finally:  # the figures of the other runs remain
        if growth.runs:
            print(table(growth.runs))
            write_growth(options.json, growth)
            print(options.json, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
