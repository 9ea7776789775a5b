"""The Java client of Kafka 4.3 (transactions of the newer protocol), in a JVM that is driven by lines of text."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from typing import Any

from tests.interop.drivers.base import TIMEOUT_S, Fenced, Message, ProducerOptions
from tests.support.kafka_broker import JARS

SOURCE = Path(__file__).resolve().parents[1] / "java" / "Client.java"
FENCED = ("ProducerFencedException", "InvalidProducerEpochException", "InvalidPidMappingException")


class JavaFailed(Exception):
    """An exception of the Java client: its class and messages."""


class Jvm:
    def __init__(self) -> None:
        logging = SOURCE.with_name("log4j2.properties")
        self._process = subprocess.Popen(
            [
                "java",
                "-Xmx256M",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                f"-Dlog4j2.configurationFile={logging}",
                "-cp",
                f"{JARS}/*",
                str(SOURCE),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._answer()

    def call(self, *fields: str) -> list[list[str]]:
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(fields) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> list[list[str]]:
        assert self._process.stdout is not None
        records: list[list[str]] = []
        for line in self._process.stdout:
            fields = line.rstrip("\n").split("\t")
            if fields[0] == "ok":
                return records
            if fields[0] == "error":
                raise (Fenced if any(name in fields[2] for name in FENCED) else JavaFailed)(fields[2])
            records.append(fields[1:])
        raise JavaFailed("the JVM ended")

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(TIMEOUT_S)
        self._process.stdout.close()


class JavaProducer:
    def __init__(self, jvm: Jvm, name: str, bootstrap: str, options: ProducerOptions) -> None:
        self._jvm = jvm
        self._name = name
        config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "compression.type": options.codec,
            "enable.idempotence": str(options.idempotent or options.transactional_id is not None).lower(),
            "acks": "all",
            "delivery.timeout.ms": int(TIMEOUT_S * 1000),
            "request.timeout.ms": 10_000,
        }
        if options.transactional_id is not None:
            config["transactional.id"] = options.transactional_id
            config["transaction.timeout.ms"] = options.transaction_timeout_ms
        jvm.call("producer", name, *(f"{key}={value}" for key, value in config.items()))

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        timestamp: int | None = None,
    ) -> None:
        flat = [field for name, content in headers for field in (name, text(content))]
        when = "-" if timestamp is None else str(timestamp)
        self._jvm.call("send", self._name, topic, str(partition), when, text(key), text(value), *flat)

    def flush(self) -> None:
        self._jvm.call("flush", self._name)

    def init(self) -> None:
        self._jvm.call("init", self._name)

    def begin(self) -> None:
        self._jvm.call("begin", self._name)

    def commit(self) -> None:
        self._jvm.call("commit", self._name)

    def abort(self) -> None:
        self._jvm.call("abort", self._name)

    def close(self) -> None:
        self._jvm.call("close", self._name)


class JavaDriver:
    name = "Java 4.3"

    def __init__(self) -> None:
        self._jvm = Jvm()
        self._count = 0

    def producer(self, bootstrap: str, options: ProducerOptions) -> JavaProducer:
        self._count += 1
        return JavaProducer(self._jvm, f"producer-{self._count}", bootstrap, options)

    def consume(self, bootstrap: str, topic: str, partitions: list[int], isolation: str) -> list[Message]:
        config = [f"bootstrap.servers={bootstrap}", f"isolation.level={isolation}", "auto.offset.reset=none"]
        numbers = ",".join(str(partition) for partition in partitions)
        rows = self._jvm.call("consume", "-", topic, numbers, str(int(TIMEOUT_S * 1000)), *config)
        return [as_message(row) for row in rows]

    def close(self) -> None:
        self._jvm.close()


def text(content: bytes | None) -> str:
    return "-" if content is None else base64.b64encode(content).decode()


def content(encoded: str) -> bytes | None:
    return None if encoded == "-" else base64.b64decode(encoded)


def as_message(row: list[str]) -> Message:
    headers = tuple((row[at], content(row[at + 1])) for at in range(5, len(row), 2))
    return Message(int(row[0]), int(row[1]), int(row[2]), content(row[3]), content(row[4]), headers)
