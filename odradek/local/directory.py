"""The directory of a local cluster: configuration, data and log of each broker, and who is running.

DIR/cluster.json            what the cluster is, what was started, and by whom
DIR/broker-1.properties     written at every start
DIR/broker-1.log            what the broker says
DIR/broker-1.profile.svg    flame graph of the broker, after `up --profile`
DIR/broker-1/               its data
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
import shutil
import signal
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.local.plan import Plan
from odradek.local.processes import USAGE, BrokerFailed, ProcessId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9092
LOOK_AGAIN = signal.SIGUSR1
"""Sent to an ``up`` in the foreground when another command has started or stopped brokers of its directory."""
META_PROPERTIES = "meta.properties"
CLUSTER_ID = re.compile(r"^cluster\.id=(\S+)$", re.MULTILINE)


class Damaged(ValueError):
    """The state file is there but cannot be understood; its name and the remedy are in the message."""


class Unusable(OSError):
    """What was named as the directory of a cluster cannot be one; what it is and the remedy are in the message."""

    exit_code = USAGE


@dataclass(frozen=True)
class Supervisor:
    """A process that some brokers end with; they watch the reading end of a pipe that only it can write to."""

    pid: int
    started_ticks: int
    lifeline: int

    @property
    def identity(self) -> ProcessId:
        return ProcessId(self.pid, self.started_ticks)

    @property
    def pipe(self) -> Path:
        """Opened for reading, it ends when the supervisor does."""
        return Path(f"/proc/{self.pid}/fd/{self.lifeline}")

    def look_again(self) -> None:
        """Tell it that brokers were started or stopped."""
        self.identity.signal(LOOK_AGAIN)


@dataclass(frozen=True)
class ClusterState:
    """What ``cluster.json`` holds.

    ``running`` names the brokers that are meant to run; any of them may have died. ``formed`` are those that have been ready
    at some time: what they wrote may be needed, so that from then on none of them may come back with an empty disk.
    """

    plan: Plan
    running: dict[int, ProcessId] = field(default_factory=dict)
    formed: list[int] = field(default_factory=list)
    supervisor: Supervisor | None = None

    def alive(self) -> dict[int, ProcessId]:
        return {node_id: identity for node_id, identity in self.running.items() if identity.alive()}

    def living_supervisor(self) -> Supervisor | None:
        return self.supervisor if self.supervisor is not None and self.supervisor.identity.alive() else None

    def started(self, identities: Mapping[int, ProcessId]) -> ClusterState:
        return replace(self, running=dict(sorted({**self.running, **identities}.items())))

    def ready(self, node_ids: Iterable[int]) -> ClusterState:
        return replace(self, formed=sorted({*self.formed, *node_ids}))

    def without(self, node_ids: Collection[int]) -> ClusterState:
        left = {node_id: identity for node_id, identity in self.running.items() if node_id not in node_ids}
        return replace(self, running=left)


class ClusterDirectory:
    """Paths and the state file of one local cluster."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().resolve()

    def config(self, node_id: int) -> Path:
        return self.path / f"broker-{node_id}.properties"

    def log(self, node_id: int) -> Path:
        return self.path / f"broker-{node_id}.log"

    def profile(self, node_id: int) -> Path:
        return self.path / f"broker-{node_id}.profile.svg"

    def data(self, node_id: int) -> Path:
        return self.path / f"broker-{node_id}"

    @property
    def state_file(self) -> Path:
        return self.path / "cluster.json"

    def read_state(self) -> ClusterState | None:
        """The state of the last start; None when nothing was ever started here.

        Raises:
            Damaged: the file is there but not readable as a state.
            Unusable: no directory can be there, or this user may not look into it.
        """
        try:
            return self._decode(json.loads(self.state_file.read_text()))
        except FileNotFoundError:
            return None
        except (NotADirectoryError, PermissionError) as refused:
            raise self._unusable(refused) from refused
        except (ValueError, KeyError, TypeError) as broken:
            raise Damaged(
                f"{self.state_file} is damaged ({broken}); remove it if no broker of it is running"
            ) from broken

    def write_state(self, state: ClusterState) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = self.state_file.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(state), indent=1) + "\n")
        temporary.replace(self.state_file)

    def change_state(self, change: Callable[[ClusterState], ClusterState]) -> ClusterState:
        """Read, change, write, while no other command does. Raises FileNotFoundError when there is no state."""
        with self._locked():
            state = self.read_state()
            if state is None:
                raise FileNotFoundError(f"{self.state_file} is gone")
            changed = change(state)
            self.write_state(changed)
            return changed

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """While one command starts the cluster no other does. A directory that is made for it goes again with a start that fails,
        unless the reason sends its reader there.

        Raises:
            Unusable: nothing can be written there.
            BrokerFailed: another start is going on.
        """
        missing = [path for path in (self.path, *self.path.parents) if not path.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / "start.lock").open("w")
        except OSError as refused:
            raise self._unusable(refused) from refused
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as held:
                raise BrokerFailed(f"another command is starting the cluster of {self.path}; wait for it") from held
            is_new = bool(missing) and not self.state_file.exists()  # another may have come and gone meanwhile
            try:
                yield
            except (BrokerFailed, OSError) as failed:
                if is_new and str(self.path) not in str(failed):
                    shutil.rmtree(self.path, ignore_errors=True)
                    for parent in missing[1:]:
                        with contextlib.suppress(OSError):  # somebody else has put something there
                            parent.rmdir()
                raise

    def _unusable(self, refused: OSError) -> Unusable:
        file = next((path for path in (self.path, *self.path.parents) if path.is_file()), None)
        reason = refused.strerror if file is None else f"{file} is a file"
        return Unusable(f"{self.path} cannot be the directory of a cluster: {reason}; name another with --dir")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.path / "cluster.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def has_data(self, node_id: int) -> bool:
        return (self.data(node_id) / META_PROPERTIES).exists()

    def brokers_with_data(self) -> list[int]:
        """Node ids whose data directories belong to a broker."""
        found = (meta.parent.name.removeprefix("broker-") for meta in self.path.glob(f"broker-*/{META_PROPERTIES}"))
        return sorted(int(number) for number in found if number.isdecimal())

    def cluster_id_of_data(self) -> str | None:
        """The id that the data found here belongs to."""
        for node_id in self.brokers_with_data():
            found = CLUSTER_ID.search((self.data(node_id) / META_PROPERTIES).read_text())
            if found is not None:
                return found[1]
        return None

    def write_config(self, plan: Plan, node_id: int) -> Path:
        """Write the properties file that makes broker ``node_id`` a member of this cluster."""
        self.path.mkdir(parents=True, exist_ok=True)
        path = self.config(node_id)
        path.write_text(plan.properties(node_id, self.data(node_id)))
        return path

    def _decode(self, raw: dict[str, Any]) -> ClusterState:
        if "brokers" in raw:
            return self._decode_single(raw)
        supervisor = raw["supervisor"]
        described = raw["plan"]
        ports = {int(node_id): int(port) for node_id, port in described["ports"].items()}
        metrics = {int(node_id): int(port) for node_id, port in described.get("metrics", {}).items()}
        plan = Plan(str(described["cluster_id"]), str(described["host"]), ports, list(described["settings"]), metrics)
        running = {int(node_id): ProcessId(**identity) for node_id, identity in raw["running"].items()}
        by = None if supervisor is None else Supervisor(**supervisor)
        return ClusterState(plan, running, [int(node_id) for node_id in raw["formed"]], by)

    def _decode_single(self, raw: dict[str, Any]) -> ClusterState:
        """The state as it was written when a cluster was one broker; its id stands with its data alone."""
        [broker] = raw["brokers"]
        host, _, port = broker["endpoint"].rpartition(":")
        plan = Plan(self.cluster_id_of_data() or "", host, {broker["node_id"]: int(port)}, list(raw["settings"]))
        running = {broker["node_id"]: ProcessId(broker["pid"], broker["started_ticks"])}
        return ClusterState(plan, running, self.brokers_with_data())
