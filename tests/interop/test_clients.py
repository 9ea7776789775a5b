"""Each feature with each client library. With `--broker=kafka`, the tests run against Apache Kafka."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.interop.drivers.base import TIMEOUT_S, Driver, Fenced, Message, ProducerDriver, ProducerOptions

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.interop

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = [0, 1]
NOW_MS = 1_760_000_000_000
COMMITTED = "read_committed"
UNCOMMITTED = "read_uncommitted"


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value for message in messages]


def write(driver: Driver, bootstrap: str, topic: str, contents: list[bytes], options: ProducerOptions) -> None:
    producer = driver.producer(bootstrap, options)
    for number, content in enumerate(contents):
        producer.send(topic, content, partition=number % 2)
    producer.flush()
    producer.close()


@pytest.mark.core
@pytest.mark.feature("produce and consume, assigned partitions")
def test_records_are_consumed_in_order(driver: Driver, bootstrap: str, topic: str) -> None:
    contents = [b"%06d" % number for number in range(2_000)]
    write(driver, bootstrap, topic, contents, ProducerOptions())
    for partition in PARTITIONS:
        messages = driver.consume(bootstrap, topic, [partition], UNCOMMITTED)
        assert values(messages) == contents[partition::2]
        assert [message.offset for message in messages] == list(range(1_000))


@pytest.mark.feature("codecs: gzip, snappy, lz4, zstd")
@pytest.mark.parametrize("codec", CODECS)
def test_compressed_records_are_read_by_all_clients(
    driver: Driver, drivers: Callable[[str], Driver], bootstrap: str, topic: str, codec: str
) -> None:
    contents = [b"%06d" % number * 40 for number in range(300)]
    write(driver, bootstrap, topic, contents, ProducerOptions(codec=codec))
    for reader in (driver, drivers("confluent-kafka"), drivers("Java 4.4")):
        messages = reader.consume(bootstrap, topic, PARTITIONS, UNCOMMITTED)
        assert sorted(values(messages), key=str) == sorted(contents, key=str)


@pytest.mark.feature("headers, null keys and null values")
def test_headers_keys_and_null_values_are_preserved(driver: Driver, bootstrap: str, topic: str) -> None:
    headers = (("trace", b"\x00\xff"), ("trace", b""), ("é", "ü".encode()))
    producer = driver.producer(bootstrap, ProducerOptions())
    producer.send(topic, b"with", key=b"k", headers=headers)
    producer.send(topic, b"without")
    producer.send(topic, None, key=b"tombstone")
    producer.flush()
    producer.close()
    messages = driver.consume(bootstrap, topic, [0], UNCOMMITTED)
    assert [(message.key, message.value, message.headers) for message in messages] == [
        (b"k", b"with", headers),
        (None, b"without", ()),
        (b"tombstone", None, ()),
    ]


@pytest.mark.feature("producer timestamps")
def test_timestamps_are_preserved(driver: Driver, bootstrap: str, topic: str) -> None:
    stamps = [NOW_MS, NOW_MS - 5_000, NOW_MS + 7]
    producer = driver.producer(bootstrap, ProducerOptions())
    for stamp in stamps:
        producer.send(topic, b"x", timestamp=stamp)
    producer.flush()
    producer.close()
    assert [message.timestamp for message in driver.consume(bootstrap, topic, [0], UNCOMMITTED)] == stamps


@pytest.mark.feature("idempotent producer")
def test_idempotent_producer_writes_each_record_once(driver: Driver, bootstrap: str, topic: str) -> None:
    contents = [b"%06d" % number for number in range(3_000)]
    write(driver, bootstrap, topic, contents, ProducerOptions(idempotent=True))
    assert values(driver.consume(bootstrap, topic, [0], COMMITTED)) == contents[0::2]


@pytest.mark.core
@pytest.mark.feature("transactions: commit and abort, read_committed and read_uncommitted")
def test_read_committed_returns_only_committed_transactions(driver: Driver, bootstrap: str, topic: str) -> None:
    producer = driver.producer(bootstrap, ProducerOptions(transactional_id=f"id-{topic}"))
    producer.init()
    for number in range(12):
        producer.begin()
        for partition in PARTITIONS:
            for index in range(3):
                producer.send(topic, b"%d-%d-%d" % (number, partition, index), partition=partition)
        producer.flush()
        (producer.abort if number % 3 == 1 else producer.commit)()
    producer.close()
    for partition in PARTITIONS:
        everything = [b"%d-%d-%d" % (n, partition, i) for n in range(12) for i in range(3)]
        committed = [b"%d-%d-%d" % (n, partition, i) for n in range(12) if n % 3 != 1 for i in range(3)]
        assert values(driver.consume(bootstrap, topic, [partition], UNCOMMITTED)) == everything
        assert values(driver.consume(bootstrap, topic, [partition], COMMITTED)) == committed


@pytest.mark.feature("transactions: read_committed stops before an open transaction")
def test_open_transaction_holds_back_read_committed_consumers(driver: Driver, bootstrap: str, topic: str) -> None:
    write(driver, bootstrap, topic, [b"before"], ProducerOptions())
    producer = driver.producer(bootstrap, ProducerOptions(transactional_id=f"id-{topic}"))
    producer.init()
    producer.begin()
    producer.send(topic, b"open")
    producer.flush()
    write(driver, bootstrap, topic, [b"after"], ProducerOptions())
    assert values(driver.consume(bootstrap, topic, [0], COMMITTED)) == [b"before"]
    assert values(driver.consume(bootstrap, topic, [0], UNCOMMITTED)) == [b"before", b"open", b"after"]
    producer.commit()
    producer.close()
    deadline = time.monotonic() + TIMEOUT_S
    while (messages := values(driver.consume(bootstrap, topic, [0], COMMITTED))) == [b"before"]:
        assert (
            time.monotonic() < deadline
        )  # the EndTxn response precedes the markers; readers see the records after the markers
    assert messages == [b"before", b"open", b"after"]


@pytest.mark.feature("transactions: a second producer with the same id fences the first")
def test_newer_producer_fences_the_older_one(driver: Driver, bootstrap: str, topic: str) -> None:
    options = ProducerOptions(transactional_id=f"id-{topic}")
    zombie = driver.producer(bootstrap, options)
    zombie.init()
    zombie.begin()
    zombie.send(topic, b"zombie")
    zombie.flush()
    successor = driver.producer(bootstrap, options)
    successor.init()
    with pytest.raises(Fenced):
        zombie_goes_on(zombie, topic)
    # kafka-python then requests a new epoch (InitProducerId with its old one) in the background. As in Apache Kafka,
    # that aborts a transaction that the successor has begun meanwhile.
    zombie.close()
    successor.begin()
    successor.send(topic, b"successor")
    successor.commit()
    successor.close()
    assert committed_soon(driver, bootstrap, topic, 1) == [b"successor"]


def zombie_goes_on(zombie: ProducerDriver, topic: str) -> None:
    zombie.send(topic, b"zombie again")
    zombie.flush()
    zombie.commit()


def committed_soon(driver: Driver, bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """Return what a read_committed consumer reads when `count` messages are visible. Markers follow EndTxn."""
    deadline = time.monotonic() + TIMEOUT_S
    while len(messages := values(driver.consume(bootstrap, topic, [0], COMMITTED))) < count:
        assert time.monotonic() < deadline, messages
    return messages


@pytest.mark.feature("transactions: time-out")
def test_transaction_is_aborted_after_its_time_out(driver: Driver, bootstrap: str, topic: str) -> None:
    producer = driver.producer(bootstrap, ProducerOptions(transactional_id=f"id-{topic}", transaction_timeout_ms=1_500))
    producer.init()
    producer.begin()
    producer.send(topic, b"too slow")
    producer.flush()
    write(driver, bootstrap, topic, [b"after"], ProducerOptions())
    assert committed_soon(driver, bootstrap, topic, 1) == [
        b"after"
    ]  # is visible only after the open transaction was aborted
    with pytest.raises(Exception):  # noqa: B017  each client has another exception; no client may succeed
        producer.commit()
    producer.close()
    assert values(driver.consume(bootstrap, topic, [0], COMMITTED)) == [b"after"]
