"""One broker with SASL_SSL and one with plaintext: both systems do the same work over both listeners."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from benchmarks.measure import Round, Size, Work, drive
from benchmarks.systems import Kafka, Odradek, Running, System
from benchmarks.workloads import consume, create_topic, produce, transactions
from tests.support.kafka_broker import KafkaBroker, Usage, process_usage
from tests.support.sasl_ssl import LISTENER, SaslSsl
from tests.support.single_broker import SingleBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

USER = "bench"
PRODUCERS = (1, 8)


class SecuredSystem(System, Protocol):
    """A broker with a listener for plaintext, which is `bootstrap`, and one for SASL_SSL."""

    @property
    def secured_bootstrap(self) -> str: ...

    @property
    def security(self) -> Security: ...


class Security:
    """Settings of brokers and clients, in a temporary folder."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="odradek-secured-bench-")
        self.folder = Path(self._folder.name)
        settings = SaslSsl(self.folder, [USER])
        self.of_broker, self.librdkafka = settings.of_broker, settings.librdkafka(USER)
        self.java = self.folder / "client.properties"
        self.java.write_text("".join(f"{name}={value}\n" for name, value in settings.java(USER).items()))

    def close(self) -> None:
        self._folder.cleanup()


class SecuredKafka:
    """One broker of Apache Kafka with a further listener for SASL_SSL."""

    name = Kafka.name

    def __init__(self) -> None:
        self.security = Security()
        self._broker = KafkaBroker(listeners={LISTENER: "SASL_SSL"}, overrides=self.security.of_broker)

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    @property
    def secured_bootstrap(self) -> str:
        return f"127.0.0.1:{self._broker.ports[LISTENER]}"

    def prepare(self) -> None:
        self._broker.format()

    def start(self) -> None:
        self._broker.start()

    def stop(self) -> None:
        self._broker.__exit__(None, None, None)
        self.security.close()

    def usage(self) -> Usage:
        return self._broker.usage()


class SecuredOdradek:
    """One broker of Odradek with a further listener for SASL_SSL."""

    name = Odradek.name

    def __init__(self) -> None:
        self.security = Security()
        self._broker = SingleBroker(self.security.folder / "cluster", {LISTENER: "SASL_SSL"}, self.security.of_broker)

    @property
    def bootstrap(self) -> str:
        return self._broker.plain

    @property
    def secured_bootstrap(self) -> str:
        return self._broker.addresses[LISTENER]

    def prepare(self) -> None:
        """Do nothing: a broker formats a new directory when it starts."""

    def start(self) -> None:
        self._broker.__enter__()

    def stop(self) -> None:
        self._broker.close()
        self.security.close()

    def usage(self) -> Usage:
        return process_usage(self._broker.pid)


def run_secured_round(create: Callable[[], SecuredSystem], size: Size, progress: Callable[[str], None]) -> Round:
    """Do all work with plaintext on one broker, then with SASL_SSL on another one. Both have just started.

    On one broker, the second listener would have an advantage: the JVM of Apache Kafka compiles its code during the
    first half minute, so Kafka would seem to be faster with SASL_SSL than with plaintext.
    """
    result = Round()
    for workloads in (plain_workloads, secured_workloads):
        system = create()
        with Running(system):
            progress("start")
            system.start()
            for topic in ("bytes", "transactions"):
                create_topic(system.bootstrap, topic)
            drive(system, result, workloads(system, size), size.warm_up_runs, progress)
    for plain, secured, share in SHARES:
        result.figures[share] = result.figures[secured] / result.figures[plain]
    return result


SHARES = (
    ("produce_mb_s", "produce_secured_mb_s", "produce_share"),
    ("consume_mb_s", "consume_secured_mb_s", "consume_share"),
    *((f"transactions_{n}", f"transactions_{n}_secured", f"transactions_{n}_share") for n in PRODUCERS),
)
"""Figures with plaintext and with SASL_SSL, and the name of their ratio."""


def plain_workloads(system: SecuredSystem, size: Size) -> Work:
    bootstrap = system.bootstrap
    work: Work = {
        "produce_mb_s": lambda: {"produce_mb_s": produce(bootstrap, "bytes", size.records)},
        "consume_mb_s": lambda: {"consume_mb_s": consume(bootstrap, "bytes", size.records)},
    }
    for producers in PRODUCERS:
        row = f"transactions_{producers}"
        work[row] = partial(committed, row, bootstrap, producers, size)
    return work


def secured_workloads(system: SecuredSystem, size: Size) -> Work:
    bootstrap, java, librdkafka = system.secured_bootstrap, system.security.java, system.security.librdkafka
    work: Work = {
        "produce_secured_mb_s": lambda: {
            "produce_secured_mb_s": produce(bootstrap, "bytes", size.records, client_file=java)
        },
        "consume_secured_mb_s": lambda: {
            "consume_secured_mb_s": consume(bootstrap, "bytes", size.records, settings=librdkafka)
        },
    }
    for producers in PRODUCERS:
        row = f"transactions_{producers}_secured"
        work[row] = partial(committed, row, bootstrap, producers, size, librdkafka)
    return work


def committed(
    row: str, bootstrap: str, producers: int, size: Size, settings: Mapping[str, str] | None = None
) -> dict[str, float]:
    found = transactions(bootstrap, "transactions", producers, size.transaction_seconds, settings=settings)
    return {row: found.per_second}
