"""One broker with TLS and with plaintext: both systems produce and consume the same records over both listeners."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from benchmarks.measure import Round, Size, Work, drive
from benchmarks.systems import Kafka, Odradek, Running, System
from benchmarks.workloads import consume, create_topic, produce
from tests.support.certificates import issue
from tests.support.kafka_broker import KafkaBroker, Usage, process_usage
from tests.support.tls_broker import TlsBroker

if TYPE_CHECKING:
    from collections.abc import Callable


class TlsSystem(System, Protocol):
    """A broker with a listener for plaintext, which is `bootstrap`, and one for TLS."""

    @property
    def tls_bootstrap(self) -> str: ...

    @property
    def certificates(self) -> Certificates: ...


class Certificates:
    """Certificates of a broker in a temporary folder, and the settings that brokers and clients need for them."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="odradek-tls-bench-")
        self.folder = Path(self._folder.name)
        authority = issue("authority", ca=True)
        node = issue("node", authority, hosts=["127.0.0.1"])
        (self.folder / "node.pem").write_text(node.key_pem() + node.chain_pem)
        (self.folder / "authority.pem").write_text(authority.pem)
        trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.folder / "authority.pem")}
        self.of_broker = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / "node.pem"),
            **trusted,
        }
        self.librdkafka = {"security.protocol": "SSL", "ssl.ca.location": str(self.folder / "authority.pem")}
        self.java = self.folder / "client.properties"
        rows = {"security.protocol": "SSL", **trusted}
        self.java.write_text("".join(f"{name}={value}\n" for name, value in rows.items()))

    def close(self) -> None:
        self._folder.cleanup()


class KafkaTls:
    """One broker of Apache Kafka with a further listener for TLS."""

    name = Kafka.name

    def __init__(self) -> None:
        self.certificates = Certificates()
        self._broker = KafkaBroker(listeners={"SSL": "SSL"}, overrides=self.certificates.of_broker)

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    @property
    def tls_bootstrap(self) -> str:
        return f"127.0.0.1:{self._broker.ports['SSL']}"

    def prepare(self) -> None:
        self._broker.format()

    def start(self) -> None:
        self._broker.start()

    def stop(self) -> None:
        self._broker.__exit__(None, None, None)
        self.certificates.close()

    def usage(self) -> Usage:
        return self._broker.usage()


class OdradekTls:
    """One broker of Odradek with a further listener for TLS."""

    name = Odradek.name

    def __init__(self) -> None:
        self.certificates = Certificates()
        self._broker = TlsBroker(self.certificates.folder / "cluster", self.certificates.of_broker)

    @property
    def bootstrap(self) -> str:
        return self._broker.plain

    @property
    def tls_bootstrap(self) -> str:
        return self._broker.tls

    def prepare(self) -> None:
        """Do nothing: a broker formats a new directory when it starts."""

    def start(self) -> None:
        self._broker.__enter__()

    def stop(self) -> None:
        self._broker.close()
        self.certificates.close()

    def usage(self) -> Usage:
        return process_usage(self._broker.pid)


def run_tls_round(system: TlsSystem, size: Size, progress: Callable[[str], None]) -> Round:
    """Start the broker, produce and consume with plaintext and with TLS, and stop it."""
    result = Round()
    with Running(system):
        progress("start")
        began = time.perf_counter()
        system.start()
        result.figures["start_s"] = time.perf_counter() - began
        for topic in ("bytes", "tls-bytes"):
            create_topic(system.bootstrap, topic)
        drive(system, result, workloads(system, size), progress)
    for what in ("produce", "consume"):
        result.figures[f"{what}_tls_share"] = result.figures[f"{what}_tls_mb_s"] / result.figures[f"{what}_mb_s"]
    return result


def workloads(system: TlsSystem, size: Size) -> Work:
    plain, tls, found = system.bootstrap, system.tls_bootstrap, system.certificates
    return {
        "produce_mb_s": lambda: {"produce_mb_s": produce(plain, "bytes", size.records)},
        "consume_mb_s": lambda: {"consume_mb_s": consume(plain, "bytes", size.records)},
        "produce_tls_mb_s": lambda: {
            "produce_tls_mb_s": produce(tls, "tls-bytes", size.records, client_file=found.java)
        },
        "consume_tls_mb_s": lambda: {
            "consume_tls_mb_s": consume(tls, "tls-bytes", size.records, settings=found.librdkafka)
        },
    }
