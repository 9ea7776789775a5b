"""Driver of a Java client of Apache Kafka, in a JVM behind a line protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.interop.drivers.base import TIMEOUT_S, GroupOptions, Message, ProducerOptions
from tests.interop.drivers.line_process import LineProcess, as_message, text
from tests.support.jars import REFERENCE

SOURCE = Path(__file__).resolve().parents[1] / "java" / "Client.java"


LOGGING = SOURCE.with_name("log4j2.properties")


def java_command(jars: Path) -> tuple[str, ...]:
    """Return the command line without the program. Its options shorten the start of the JVM."""
    return (
        *("java", "-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *(f"-Dlog4j2.configurationFile={LOGGING}", "-cp", f"{jars}/*"),
    )


class JavaProducer:
    def __init__(self, jvm: LineProcess, name: str, bootstrap: str, options: ProducerOptions) -> None:
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

    def send_offsets(self, consumer: Any) -> None:
        self._jvm.call("offsets", self._name, consumer.name)

    def close(self) -> None:
        self._jvm.call("close", self._name)


class JavaMember:
    def __init__(self, jvm: LineProcess, name: str, bootstrap: str, topic: str, options: GroupOptions) -> None:
        self._jvm = jvm
        self._topic = topic
        self.name = name
        config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": options.group,
            "group.protocol": options.protocol,
            "enable.auto.commit": "false",
            "isolation.level": options.isolation,
            "auto.offset.reset": "earliest",
        }
        if options.protocol == "classic":
            config |= {"session.timeout.ms": options.session_ms, "heartbeat.interval.ms": 500}
        if options.instance is not None:
            config["group.instance.id"] = options.instance
        subscription = "pattern" if options.pattern else "topic"
        jvm.call("member", name, subscription, topic, *(f"{key}={value}" for key, value in config.items()))

    def poll(self, seconds: float) -> list[Message]:
        return [as_message(row) for row in self._jvm.call("poll", self.name, str(int(seconds * 1_000)))]

    def assigned(self) -> list[int]:
        return sorted(int(row[0]) for row in self._jvm.call("assigned", self.name))

    def commit(self) -> None:
        self._jvm.call("commit-member", self.name)

    def committed(self, partitions: list[int]) -> list[int | None]:
        numbers = ",".join(str(partition) for partition in partitions)
        rows = self._jvm.call("committed", self.name, self._topic, numbers)
        return [None if row[0] == "-" else int(row[0]) for row in rows]

    def close(self) -> None:
        self._jvm.call("close-member", self.name)


class JavaDriver:
    """The client in one folder of jars. `name` is its column in docs/clients.md."""

    def __init__(self, name: str = "Java 4.4", jars: Path = REFERENCE) -> None:
        self.name = name
        self._jvm = LineProcess(*java_command(jars), str(SOURCE))
        self._count = 0

    def producer(self, bootstrap: str, options: ProducerOptions) -> JavaProducer:
        self._count += 1
        return JavaProducer(self._jvm, f"producer-{self._count}", bootstrap, options)

    def member(self, bootstrap: str, topic: str, options: GroupOptions) -> JavaMember:
        self._count += 1
        return JavaMember(self._jvm, f"member-{self._count}", bootstrap, topic, options)

    def consume(self, bootstrap: str, topic: str, partitions: list[int], isolation: str) -> list[Message]:
        config = [f"bootstrap.servers={bootstrap}", f"isolation.level={isolation}", "auto.offset.reset=none"]
        numbers = ",".join(str(partition) for partition in partitions)
        rows = self._jvm.call("consume", "-", topic, numbers, str(int(TIMEOUT_S * 1000)), *config)
        return [as_message(row) for row in rows]

    def kill(self) -> None:
        """Send SIGKILL to the process. The client sends no LeaveGroup or EndTxn."""
        self._jvm.kill()

    def close(self) -> None:
        self._jvm.close()
