"""The directory of a local cluster: configuration, data and log of each broker, and who is running.

DIR/cluster.json            what was started, and how
DIR/broker-1.properties     written at every start
DIR/broker-1.log            what the broker says
DIR/broker-1/               its data
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from odradek.processes import ProcessId

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9092


@dataclass(frozen=True)
class BrokerEntry:
    node_id: int
    endpoint: str
    pid: int
    started_ticks: int

    @property
    def identity(self) -> ProcessId:
        return ProcessId(self.pid, self.started_ticks)


@dataclass(frozen=True)
class ClusterState:
    """What ``cluster.json`` holds."""

    brokers: list[BrokerEntry] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.endpoint for broker in self.brokers)

    def running(self) -> list[BrokerEntry]:
        return [broker for broker in self.brokers if broker.identity.alive()]


class ClusterDirectory:
    """Paths and the state file of one local cluster."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().resolve()

    def config(self, node_id: int) -> Path:
        return self.path / f"broker-{node_id}.properties"

    def log(self, node_id: int) -> Path:
        return self.path / f"broker-{node_id}.log"

    def data(self, node_id: int) -> Path:
        return self.path / f"broker-{node_id}"

    @property
    def state_file(self) -> Path:
        return self.path / "cluster.json"

    def read_state(self) -> ClusterState | None:
        """The state of the last start; None when nothing was ever started here.

        Raises:
            ValueError: the file is there but not readable as a state; its name is in the message.
        """
        try:
            raw = json.loads(self.state_file.read_text())
            return ClusterState([BrokerEntry(**broker) for broker in raw["brokers"]], list(raw["settings"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as broken:
            raise ValueError(
                f"{self.state_file} is damaged ({broken}); remove it if no broker of it is running"
            ) from broken

    def write_state(self, state: ClusterState) -> None:
        temporary = self.state_file.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(state), indent=1) + "\n")
        temporary.replace(self.state_file)

    def write_config(self, node_id: int, host: str, port: int) -> Path:
        """Write the properties file that makes broker ``node_id`` a member of this cluster."""
        self.path.mkdir(parents=True, exist_ok=True)
        lines = [
            "# written at every start of this local cluster; changes belong on the command line: --set name=value",
            f"node.id={node_id}",
            f"listeners=PLAINTEXT://{host}:{port}",
            f"log.dirs={self.data(node_id)}",
        ]
        path = self.config(node_id)
        path.write_text(os.linesep.join(lines) + os.linesep)
        return path
