"""docs/clients.md: which client does what here, generated from the results of the tests that ran.

``pytest tests/interop --write-client-table`` writes it; every complete run compares.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

PATH = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
CLIENTS = {
    "confluent-kafka": "confluent-kafka",
    "kafka-python": "kafka-python",
    "aiokafka": "aiokafka",
    "Java 4.3": None,
    "Kafka's tools 4.3": None,
}
OF_THEIR_OWN = """
## Of the clients' own

What looks as if a broker had answered wrongly and is the client's, in the versions above:

- **librdkafka may read from the beginning what it was told to read from elsewhere**, without a word unless `debug=topic` is set, and with `auto.offset.reset=error`,
  too. An answer to ListOffsets whose partition has been taken away or assigned anew meanwhile is outdated, and what handles it does not drop it but asks again half
  a second later, whatever has become of the partition (`rd_kafka_toppar_handle_Offset`, `rd_kafka_toppar_offset_retry`). So a partition that was assigned at
  offset 150 goes back to 0, each time, from Odradek and from Apache Kafka: stop the broker (SIGSTOP), assign the beginning, assign 150, let it go on. And one that was
  taken away is fetched from 0 unseen; what came is given out when it is assigned again (17 of 48 partitions from Apache Kafka), since its queue is opened to the
  application before the barrier that keeps out what is old (`rd_kafka_toppar_op_fetch_start`). It takes members that join a group without offsets within a
  tenth of a second; where offsets are committed for every partition nobody asks for the beginning.
- **librdkafka may wait for ever in `send_offsets_to_transaction`**, whatever time-out it was given, for a coordinator of the group that it has cached and that the
  metadata does not name any more: it waits for a connection to that broker, which it has given up itself, and nobody looks at the time-out (librdkafka issues 5511 and
  5456). AddOffsetsToTxn is answered by then; neither FindCoordinator nor TxnOffsetCommit is sent, and no answer is missing. Kill the coordinator between two
  transactions and wait until the producer has refreshed its metadata: it hangs each time, with Odradek and with Apache Kafka.
- **aiokafka overlooks an error of the whole group in OffsetFetch** and begins at the first record again, when a coordinator moves or loads at that moment. Here each
  partition carries the error as well (decision 0066), so it asks again; Apache Kafka answers with the group's error alone.
- **kafka-python may forget that it has joined.** If a `poll` ends by its time-out while JoinGroup or SyncGroup are under way, what they bring is taken by nobody
  (`join_group_async`). The next `poll` joins anew, which is one rebalance more if the member leads; or, if it had joined for partitions that it did not know when it
  assigned, it finds that nothing is to be done, since the lost join has brought both snapshots of the metadata together (`ConsumerCoordinator.need_rejoin`): then it
  holds nothing, the heartbeat stays off, and it is put out of its group when its session ends. It takes short time-outs of `poll` on a busy machine; who asks
  `partitions_for_topic` before the first `poll` is spared the latter. Seen with Odradek and with Apache Kafka.
- **@platformatic/kafka ends the process when its coordinator dies** (1.35): an uncaught TypeError in its connection pool, since the coordinator that it has cached is not
  in the metadata any more; its members do not come back. The same with Apache Kafka.
- **kafka-go waits up to six seconds** after the loss of a leader: its Writer refreshes the metadata by its own clock, and not when a write has failed.
- What else the chaos runs have met: `tests/chaos/README.md`.

## Tried by hand

Not in every run of the tests, but once against three brokers of Odradek, and where something looked wrong against three of Apache Kafka too. Under those marked * the
brokers were killed one after the other (kill -9), and started again.

- kafkajs 2.2.4 *: producer, transactions with offsets, groups, its admin client; every record exactly once.
- sarama 1.61.1 *: five codecs, six protocol versions, idempotent and transactional producers, groups, ClusterAdmin; exactly once.
- franz-go 1.22.2 with kadm 1.19 *: GroupTransactSession in groups of both protocols whose members were killed too, about 30 calls of the admin client; exactly once.
- kafka-go 0.4.51 *: Writer, Reader, groups, Client; nothing lost.
- @platformatic/kafka 1.35: producer, transactions, groups of both protocols, admin; its members do not survive their coordinator (see above).
- kafka-clients 1.1.1 *, 2.1.1 *, 2.8.2, 3.3.2, 3.9.1: producers, transactions with offsets, groups (cooperative, static), all of their AdminClient; what Kafka 4.3 does
  not serve to 1.1 any more is refused in the same words.
- Kafka Connect 4.3.1, distributed, with `exactly.once.source.support=enabled`, its worker killed twice; MirrorMaker 2 between Odradek and Apache Kafka, exactly once in
  both directions, killed once; Kafka Streams 3.9.1, exactly_once_v2, killed once: as with Apache Kafka.
"""
_results: dict[tuple[str, str], bool] = {}


def record(client: str, feature: str, *, passed: bool) -> None:
    """Note one result; a feature works only if every test of it passed."""
    assert client in CLIENTS, client
    _results[client, feature] = _results.get((client, feature), True) and passed


def results() -> list[tuple[str, str, bool]]:
    """Everything noted so far, in a form that can be handed to another process."""
    return [(client, feature, passed) for (client, feature), passed in _results.items()]


def render() -> str:
    clients = [client for client in CLIENTS if any(name == client for name, _ in _results)]
    titles = [f"{client} {version(package)}" if (package := CLIENTS[client]) else client for client in clients]
    lines = [
        "# Clients",
        "",
        "Generated from the results of `tests/interop`: real clients against a real broker process. A dash: not asked of that client.",
        "",
        "| feature | " + " | ".join(titles) + " |",
        "|---|" + "---|" * len(titles),
    ]
    for feature in sorted({feature for _, feature in _results}):
        cells = [cell(client, feature) for client in clients]
        lines.append(f"| {feature} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n" + OF_THEIR_OWN


def settle(*, write: bool) -> str:
    """Write the table, or compare it with docs/clients.md when everything that stands there was asked again.

    Returns what is wrong, or an empty string.
    """
    if not _results:
        return ""
    if write:
        PATH.write_text(render(), encoding="utf-8")
        return ""
    before = PATH.read_text(encoding="utf-8") if PATH.exists() else ""
    if before and before != render() and _asked(before) <= _results.keys():
        return f"{PATH.name} is not what these results give; renew it: pytest tests/interop --write-client-table"
    return ""


def _asked(text: str) -> set[tuple[str, str]]:
    """The cells of a written table that hold a result."""
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
