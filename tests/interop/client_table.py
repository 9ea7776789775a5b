"""Render docs/clients.md, the table of tested client features, from the results of the tests that ran.

``pytest tests/interop --write-client-table`` writes it. Every complete run compares it.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

PATH = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
CLIENTS = {
    "confluent-kafka": "confluent-kafka",
    "kafka-python": "kafka-python",
    "aiokafka": "aiokafka",
    "Java 4.4": None,
    "Java 4.3": None,
    "Java 3.9": None,
    "Kafka's tools 4.3": None,
}
HAND_WRITTEN = """
## Known client behavior that looks like a broker error

The following problems come from the clients, in the versions above.

- **librdkafka may read from the beginning instead of from the assigned offset.** librdkafka logs this only with
  `debug=topic`. The property `auto.offset.reset=error` does not prevent it. A ListOffsets response is outdated if its
  partition was revoked or assigned again after the request. librdkafka does not discard such a response. librdkafka
  repeats the request half a second later, whatever the state of the partition is (`rd_kafka_toppar_handle_Offset`,
  `rd_kafka_toppar_offset_retry`).
  - A partition that was assigned at offset 150 then starts at 0. To reproduce it each time: stop the broker (SIGSTOP),
    assign the beginning, assign offset 150, and continue the broker. The same happens with Apache Kafka.
  - A revoked partition may be fetched from 0 in the background. When it is assigned again, the application receives
    these records (17 of 48 partitions with Apache Kafka). The reason: librdkafka opens the queue to the application
    before it sets the barrier against old records (`rd_kafka_toppar_op_fetch_start`).
  - The problem occurs if members join a group without offsets within a tenth of a second. If every partition has a
    committed offset, no member requests the beginning.
- **librdkafka may wait without end in `send_offsets_to_transaction`**, whatever its time-out is. The problem occurs if
  the cached group coordinator is not in the metadata any more. In that case librdkafka has removed the broker, but
  waits for a connection to it, and does not check the time-out (librdkafka issues 5511 and 5456). At that point
  librdkafka has received the AddOffsetsToTxn response. It sends neither FindCoordinator nor TxnOffsetCommit. To
  reproduce it each time: kill the coordinator between two transactions, and wait until the producer has refreshed its
  metadata. The same happens with Apache Kafka.
- **aiokafka ignores the group error of OffsetFetch**, and starts at the first record if the coordinator moves or loads
  at that moment. Odradek repeats the error in each partition (decision 0066), and aiokafka then retries. Apache Kafka
  sets only the group error.
- **kafka-python may forget that it has joined.** If `poll` times out during JoinGroup or SyncGroup, no later call reads
  the response (`join_group_async`). The next `poll` usually joins again: one more rebalance if the member is the group
  leader. But the next `poll` may also do nothing. The reason: the lost join may have been for partitions that the
  member did not know at the last assignment. Both metadata snapshots are then equal
  (`ConsumerCoordinator.need_rejoin`). The member then has no partitions and sends no heartbeats, and the coordinator
  removes it after the session time-out. Both cases need short `poll` time-outs on a busy machine. A call of
  `partitions_for_topic` before the first `poll` prevents the second case. Seen with Odradek and with Apache Kafka.
- **@platformatic/kafka 1.35 ends the process if its coordinator fails**, with an uncaught TypeError in its connection
  pool. The cached coordinator is not in the metadata any more. The group members of the process do not return. The same
  happens with Apache Kafka.
- **kafka-go waits up to six seconds** after the failure of a leader. The Writer of kafka-go refreshes the metadata
  periodically, and not after a failed write.
- `tests/chaos/README.md` lists further observations of the chaos runs.

## Manual tests

The following clients are not part of the test runs. Each client was tested once against three brokers of Odradek. If a
result looked wrong, the test was repeated against three brokers of Apache Kafka. For clients marked *, all brokers were
killed (kill -9) and restarted, one after the other.

- kafkajs 2.2.4 *: producer, transactions with offsets, groups, admin client. Every record exactly once.
- sarama 1.61.1 *: five codecs, six protocol versions, idempotent and transactional producers, groups, ClusterAdmin.
  Every record exactly once.
- franz-go 1.22.2 with kadm 1.19 *: GroupTransactSession in groups of both protocols, with killed members too; about 30
  calls of the admin client. Every record exactly once.
- kafka-go 0.4.51 *: Writer, Reader, groups, Client. No record lost.
- @platformatic/kafka 1.35: producer, transactions, groups of both protocols, admin client. Group members do not survive
  the failure of their coordinator (see above).
- kafka-clients 1.1.1 *, 2.1.1 *, 2.8.2, 3.3.2, 3.9.1: producers, transactions with offsets, groups (cooperative,
  static), all AdminClient calls. Requests of version 1.1 that Kafka 4.3 no longer supports receive the same errors.
- Kafka Connect 4.3.1, distributed, with `exactly.once.source.support=enabled`, its worker killed twice. MirrorMaker 2
  between Odradek and Apache Kafka, exactly once in both directions, killed once. Kafka Streams 3.9.1, exactly_once_v2,
  killed once. All results are the same as with Apache Kafka.
"""
_results: dict[tuple[str, str], bool] = {}


def record(client: str, feature: str, *, passed: bool) -> None:
    """Record one result. A feature works only if all its tests passed."""
    assert client in CLIENTS, client
    _results[client, feature] = _results.get((client, feature), True) and passed


def results() -> list[tuple[str, str, bool]]:
    """Return all results so far, as plain values for another process."""
    return [(client, feature, passed) for (client, feature), passed in _results.items()]


def render() -> str:
    clients = [client for client in CLIENTS if any(name == client for name, _ in _results)]
    titles = [f"{client} {version(package)}" if (package := CLIENTS[client]) else client for client in clients]
    lines = [
        "# Clients",
        "",
        "Generated from the results of `tests/interop`: real clients against a real broker process. A dash means that",
        "the feature was not tested with that client.",
        "",
        "| feature | " + " | ".join(titles) + " |",
        "|---|" + "---|" * len(titles),
    ]
    for feature in sorted({feature for _, feature in _results}):
        cells = [cell(client, feature) for client in clients]
        lines.append(f"| {feature} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n" + HAND_WRITTEN


def settle(*, write: bool) -> str:
    """Write docs/clients.md, or compare it if all its results were produced again.

    Return an error message, or an empty string.
    """
    if not _results:
        return ""
    if write:
        PATH.write_text(render(), encoding="utf-8")
        return ""
    written_text = PATH.read_text(encoding="utf-8") if PATH.exists() else ""
    if written_text and written_text != render() and _tested(written_text) <= _results.keys():
        return f"{PATH.name} differs from these results; renew it: pytest tests/interop --write-client-table"
    return ""


def _tested(text: str) -> set[tuple[str, str]]:
    """Return the cells of a written table that have a result."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    if not rows:
        return set()
    clients = [next(client for client in CLIENTS if title.startswith(client)) for title in rows[0][1:]]
    return {
        (client, row[0]) for row in rows[1:] for client, result in zip(clients, row[1:], strict=True) if result != "-"
    }


def cell(client: str, feature: str) -> str:
    result = _results.get((client, feature))
    return "-" if result is None else ("yes" if result else "**no**")
