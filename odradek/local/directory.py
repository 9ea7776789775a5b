"""The directory of a local cluster: configuration, data and log of each broker, and the state of the cluster.

- DIR/cluster.json: plan of the cluster, brokers that were started, and their supervisor.
- DIR/cluster.lock: held while a command changes cluster.json.
- DIR/start.lock: held while a command starts brokers.
- DIR/cluster.secret: secret by which the brokers authenticate to each other, readable by its owner only.
- DIR/certificates: certificates of a cluster with security (`odradek.local.authority`).
- DIR/cluster.users, DIR/cluster.scram: passwords of its users, and the file for its first start.
- DIR/cluster.token-key: key of its delegation tokens.
- DIR/client-alice.properties: client properties of a user. DIR/client.properties: those of a cluster without users.
- DIR/broker-1.properties: configuration of broker 1, written at every start.
- DIR/broker-1.log: log of broker 1.
- DIR/broker-1.profile.svg: flame graph of broker 1, after `odradek up --profile`.
- DIR/broker-1/: data directory of broker 1.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import signal
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.broker_interface import META_PROPERTIES
from odradek.local.plan import SECRET_FILE_NAME, Plan
from odradek.local.processes import USAGE, BrokerFailed, ProcessId
from odradek.local.security import ADMIN, Security, SecurityFiles, read_token_key
from odradek.private_files import errors_naming, make_private_directory, open_private, restrict, write_private

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9092
RELOAD_SIGNAL = signal.SIGUSR1
"""Signal to an `odradek up` in the foreground: another command has started or stopped brokers of its directory."""
OWN_NAME = re.compile(
    r"cluster\.(json|tmp|lock|(secret|users|scram|token-key)(\.tmp)?)|start\.lock|broker-[0-9]+(\..*)?|certificates"
    r"|client(-[\w-]+)?\.properties(\.tmp)?"
)
"""Names of the entries of a cluster in its directory."""
SECRET_BYTES = 32
"""Random bytes of a cluster secret."""
SECRET_MODE = 0o600
CLUSTER_ID = re.compile(r"^cluster\.id=(\S+)$", re.MULTILINE)


class StateFileDamaged(ValueError):
    """The file cluster.json cannot be decoded. The message contains its path and what to do."""


class DirectoryUnusable(OSError):
    """The path of `--dir` cannot be used as a directory. The message contains the reason and what to do."""

    exit_code = USAGE


@dataclass(frozen=True)
class Supervisor:
    """An `odradek up` in the foreground. The brokers that it started terminate when it terminates.

    Attributes:
        pid: Its process id.
        started_ticks: Its start time, in clock ticks since boot.
        lifeline: Its descriptor of the reading end of a `Lifeline`, which the brokers have as standard input.
    """

    pid: int
    started_ticks: int
    lifeline: int

    @property
    def identity(self) -> ProcessId:
        return ProcessId(self.pid, self.started_ticks)

    @property
    def pipe(self) -> Path:
        """Path of the lifeline. A process that opens it for reading sees its end when the supervisor terminates."""
        return Path(f"/proc/{self.pid}/fd/{self.lifeline}")

    def notify(self) -> None:
        """Notify the supervisor that brokers were started or stopped."""
        self.identity.signal(RELOAD_SIGNAL)


@dataclass(frozen=True)
class ClusterState:
    """Content of cluster.json.

    Attributes:
        plan: Identity, addresses and settings of the cluster.
        running: The brokers that were started and not stopped. Any of them may have failed since.
        stopping: The brokers that a command began to stop. The command may have ended before the broker.
        formed: The brokers that were ready at least once. Their data may contain committed records, so that they must
            not start with an empty disk unless the operator requests it (`refuse_lost_disks`).
        supervisor: The `odradek up` that started the brokers; None after `odradek up --detach`.
    """

    plan: Plan
    running: dict[int, ProcessId] = field(default_factory=dict)
    formed: list[int] = field(default_factory=list)
    supervisor: Supervisor | None = None
    stopping: dict[int, ProcessId] = field(default_factory=dict)

    def alive(self) -> dict[int, ProcessId]:
        """Return the brokers of `running` whose processes exist."""
        return {node_id: identity for node_id, identity in self.running.items() if identity.alive()}

    def alive_stopping(self) -> dict[int, ProcessId]:
        """Return the brokers of `stopping` whose processes exist."""
        return {node_id: identity for node_id, identity in self.stopping.items() if identity.alive()}

    def running_supervisor(self) -> Supervisor | None:
        """Return the supervisor if its process exists, otherwise None."""
        return self.supervisor if self.supervisor is not None and self.supervisor.identity.alive() else None

    def with_running(self, identities: Mapping[int, ProcessId]) -> ClusterState:
        """Return the state after these brokers were started."""
        return replace(self, running=dict(sorted({**self.running, **identities}.items())))

    def with_formed(self, node_ids: Iterable[int]) -> ClusterState:
        """Return the state after these brokers became ready."""
        return replace(self, formed=sorted({*self.formed, *node_ids}))

    def without_running(self, node_ids: Collection[int]) -> ClusterState:
        """Return the state after a command began to stop these brokers."""
        remaining = {node_id: identity for node_id, identity in self.running.items() if node_id not in node_ids}
        stopping = {node_id: identity for node_id, identity in self.alive().items() if node_id in node_ids}
        return replace(self, running=remaining, stopping={**self.alive_stopping(), **stopping})


class ClusterDirectory:
    """Paths and state file of one local cluster."""

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

    @property
    def security_files(self) -> SecurityFiles:
        """Paths of certificates, passwords and client properties."""
        return SecurityFiles(self.path)

    def own_client_config(self, plan: Plan) -> Path | None:
        """Return the file with the client properties of the administrator. None: the cluster has no security."""
        if plan.security is None:
            return None
        return self.security_files.client(ADMIN if plan.security.kind.has_users else None)

    def read_state(self) -> ClusterState | None:
        """Return the state of the last start, or None if no cluster was started in this directory.

        Raises:
            StateFileDamaged: The state file cannot be decoded.
            DirectoryUnusable: The path cannot be a directory, or this user has no permission to read it.
        """
        try:
            return self._decode(json.loads(self.state_file.read_text()))
        except FileNotFoundError:
            return None
        except (NotADirectoryError, PermissionError) as error:
            raise self._unusable(error) from error
        except (ValueError, KeyError, TypeError) as error:
            raise StateFileDamaged(
                f"{self.state_file} is damaged ({error}); remove it if no broker of this directory is running"
            ) from error

    def write_state(self, state: ClusterState) -> None:
        """Replace the state file atomically."""
        make_private_directory(self.path)
        temporary = self.state_file.with_suffix(".tmp")
        write_private(temporary, json.dumps(asdict(state), indent=1) + "\n")
        temporary.replace(self.state_file)

    def change_state(self, change: Callable[[ClusterState], ClusterState]) -> ClusterState:
        """Replace the state by `change(state)` under a lock, and return the new state.

        Raise FileNotFoundError if there is no state file.
        """
        with self._locked():
            state = self.read_state()
            if state is None:
                raise FileNotFoundError(f"{self.state_file} does not exist any more; start the cluster again")
            changed = change(state)
            self.write_state(changed)
            return changed

    @contextlib.contextmanager
    def exclusive_start(self) -> Iterator[None]:
        """Hold the start lock of the directory, so that only one command starts brokers at a time.

        Create the directory if it does not exist. If the start fails, remove the new directory, unless the broker's
        error message refers to a file in it.

        Raises:
            DirectoryUnusable: The directory cannot be created or written.
            BrokerFailed: Another command holds the lock.
        """
        missing = [path for path in (self.path, *self.path.parents) if not path.exists()]
        try:
            make_private_directory(self.path)
            lock = open_private(self.path / "start.lock", "w")
        except OSError as error:
            raise self._unusable(error) from error
        with lock:
            self._restrict_access()
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BrokerFailed(
                    f"another command is starting the cluster of {self.path}; repeat this command when it has ended"
                ) from error
            # Another start may have used the directory between its creation and the lock.
            is_new = bool(missing) and not self.state_file.exists()
            try:
                yield
            except (BrokerFailed, OSError) as error:
                if is_new and (isinstance(error, OSError) or str(self.path) not in str(error)):
                    shutil.rmtree(self.path, ignore_errors=True)
                    for parent in missing[1:]:
                        with contextlib.suppress(OSError):  # another process has created a file in it
                            parent.rmdir()
                raise

    def _restrict_access(self) -> None:
        """Remove the permissions of other users from the files of the cluster.

        The directory itself stays unchanged if it has other files: `--dir` can name a directory with another purpose.
        """
        entries = list(self.path.iterdir())
        own = [path for path in entries if OWN_NAME.fullmatch(path.name)]
        for path in own if len(own) < len(entries) else [self.path]:
            restrict(str(path))

    def _unusable(self, error: OSError) -> DirectoryUnusable:
        file = next((path for path in (self.path, *self.path.parents) if path.is_file()), None)
        reason = error.strerror if file is None else f"{file} is a file"
        return DirectoryUnusable(f"{self.path} cannot be the directory of a cluster: {reason}; name another with --dir")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with open_private(self.path / "cluster.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def require_secret(self, *, may_create: bool) -> None:
        """Make the file with the cluster secret if it does not exist, readable by its owner only.

        Raise BrokerFailed if it does not exist and `may_create` is False: running brokers have another secret.
        """
        path = self.path / SECRET_FILE_NAME
        if path.exists():
            path.chmod(SECRET_MODE)
            return
        if not may_create:
            raise BrokerFailed(f"{path} is missing; restore it, or stop all brokers: the next start makes a new secret")
        temporary = path.with_name(f"{SECRET_FILE_NAME}.tmp")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, SECRET_MODE)
        with errors_naming(path), os.fdopen(descriptor, "wb") as file:
            file.write(base64.b64encode(secrets.token_bytes(SECRET_BYTES)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)

    def has_data(self, node_id: int) -> bool:
        """Return True if the data directory of a broker contains meta.properties."""
        return (self.data(node_id) / META_PROPERTIES).exists()

    def brokers_with_data(self) -> list[int]:
        """Return the node ids whose data directories contain meta.properties, in ascending order."""
        names = (meta.parent.name.removeprefix("broker-") for meta in self.path.glob(f"broker-*/{META_PROPERTIES}"))
        return sorted(int(number) for number in names if number.isdecimal())

    def cluster_id_of_data(self) -> str | None:
        """Return the cluster id in the first meta.properties that has one, or None."""
        for node_id in self.brokers_with_data():
            match = CLUSTER_ID.search((self.data(node_id) / META_PROPERTIES).read_text())
            if match is not None:
                return match[1]
        return None

    def write_config(self, plan: Plan, node_id: int) -> Path:
        """Write the properties file of a broker, and return its path."""
        make_private_directory(self.path)
        path = self.config(node_id)
        write_private(path, plan.properties(node_id, self.data(node_id), read_token_key(self.security_files)))
        return path

    def _decode(self, raw: dict[str, Any]) -> ClusterState:
        if "brokers" in raw:
            return self._decode_single(raw)
        supervisor = raw["supervisor"]
        plan_row = raw["plan"]
        ports = {int(node_id): int(port) for node_id, port in plan_row["ports"].items()}
        metrics = {int(node_id): int(port) for node_id, port in plan_row.get("metrics", {}).items()}
        inter_broker = {int(node_id): int(port) for node_id, port in plan_row.get("inter_broker", {}).items()}
        security = None if plan_row.get("security") is None else Security(**plan_row["security"])
        cluster_id, host, settings = str(plan_row["cluster_id"]), str(plan_row["host"]), list(plan_row["settings"])
        of_brokers = {int(node_id): list(pairs) for node_id, pairs in plan_row.get("broker_settings", {}).items()}
        has_secret = bool(plan_row.get("has_secret"))
        plan = Plan(cluster_id, host, ports, settings, metrics, inter_broker, has_secret, security, of_brokers)
        running = {int(node_id): ProcessId(**identity) for node_id, identity in raw["running"].items()}
        return ClusterState(
            plan,
            running,
            [int(node_id) for node_id in raw["formed"]],
            None if supervisor is None else Supervisor(**supervisor),
            {int(node_id): ProcessId(**identity) for node_id, identity in raw.get("stopping", {}).items()},
        )

    def _decode_single(self, raw: dict[str, Any]) -> ClusterState:
        """Decode the earlier format for one broker. It has no cluster id, which is read from the data directory."""
        [broker] = raw["brokers"]
        host, _, port = broker["endpoint"].rpartition(":")
        plan = Plan(self.cluster_id_of_data() or "", host, {broker["node_id"]: int(port)}, list(raw["settings"]))
        running = {broker["node_id"]: ProcessId(broker["pid"], broker["started_ticks"])}
        return ClusterState(plan, running, self.brokers_with_data())
