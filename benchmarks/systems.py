"""The two brokers under measurement, started the same way: one process, one node, defaults, data in a temporary folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

from odradek import LocalCluster
from tests.support.kafka_broker import KafkaBroker, Usage, process_usage

if TYPE_CHECKING:
    from types import TracebackType


class System(Protocol):
    """One started broker."""

    name: str

    @property
    def bootstrap(self) -> str: ...

    def prepare(self) -> None:
        """What is done once, before the clock runs (Kafka's storage format)."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def usage(self) -> Usage: ...


class Kafka:
    """Apache Kafka from the jars: KRaft, combined roles, -Xmx1G."""

    name = "Apache Kafka"

    def __init__(self) -> None:
        self._broker = KafkaBroker()

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def prepare(self) -> None:
        self._broker.format()

    def start(self) -> None:
        self._broker.start()

    def stop(self) -> None:
        self._broker.__exit__(None, None, None)

    def usage(self) -> Usage:
        return self._broker.usage()


class Odradek:
    """Odradek, as ``odradek up`` starts it."""

    name = "Odradek"

    def __init__(self) -> None:
        self._cluster = LocalCluster()

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def prepare(self) -> None:
        """Nothing: a new directory formats itself."""

    def start(self) -> None:
        self._cluster.start()

    def stop(self) -> None:
        self._cluster.close()

    def usage(self) -> Usage:
        return process_usage(self._cluster.pid(1))


class Running:
    """Context manager that always stops what was started."""

    def __init__(self, system: System) -> None:
        self.system = system

    def __enter__(self) -> Self:
        self.system.prepare()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.system.stop()
