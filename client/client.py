"""A blocking client for one question at a time: versions are agreed once a connection, errors become one line."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.protocol.client import ClientConnection
from odradek.protocol.errors import ErrorCode, Malformed, Unencodable
from odradek.protocol.messages import request_class
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odradek.protocol.schema import Message

CLIENT_ID = "odradek-admin"
TIMEOUT_S = 30.0
FIRST_ANSWER_TIMEOUT_S = 5.0
"""For the first words with an address that was named: a process that hangs must not hide its neighbours."""
RECEIVE_BYTES = 65_536
RESPONSE_BYTES_MAX = 2**28
VERSION_MAX = 2**15 - 1
API_VERSIONS_VERSION = 3  # old enough for every broker of the last years; a refusal is answered in v0

RETRY_INTERVAL_S = 0.1
"""Between two questions whose answer passes by itself: nothing in the protocol tells a client that it has."""
GROUP_KEY, TRANSACTION_KEY = 0, 1
"""What a coordinator is asked for by."""
PASSING = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)

T = TypeVar("T")


class Failed(Exception):
    """The request was refused, or nobody answered; the message is the whole story in one line."""


class Unaskable(Failed):
    """The question cannot be, whatever the cluster is like: exit code 2."""


class NotServed(Failed):
    """The broker does not know this API, or none of the versions that are known here."""


class Connection:
    """One connection to one broker."""

    def __init__(self, host: str, port: int, timeout_s: float = FIRST_ANSWER_TIMEOUT_S) -> None:
        self.endpoint = f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as failed:
            reason = failed.strerror or str(failed)
            raise Failed(f"no broker answers at {self.endpoint} ({reason})") from failed
        self._core = ClientConnection(response_bytes_max=RESPONSE_BYTES_MAX)
        self._versions: dict[int, tuple[int, int]] = {}
        try:
            answer = self._exchange(ApiVersionsRequest("odradek", "1"), API_VERSIONS_VERSION)
        except Failed:
            self.close()
            raise
        assert isinstance(answer, ApiVersionsResponse)
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def wait(self, timeout_s: float) -> None:
        """From now on an answer may take so long."""
        self._socket.settimeout(timeout_s)

    def call(self, request: Message, version_max: int = VERSION_MAX) -> Any:
        """Send a request in the newest version that both sides know, up to `version_max`, and return its response.

        Raises:
            Failed: the broker does not serve it, or the connection broke.
        """
        cls = request_class(request.API_KEY)
        lowest, highest = self._versions.get(request.API_KEY, (0, -1))
        version = min(highest, cls.MAX_VERSION, version_max)
        if version < max(lowest, cls.MIN_VERSION):
            raise NotServed(f"the broker at {self.endpoint} does not serve {cls.NAME}")
        return self._exchange(request, version)

    def _exchange(self, request: Message, version: int) -> Message:
        try:
            _, frame = self._core.send(request, version, CLIENT_ID)
        except Unencodable as error:
            raise Unaskable(f"that cannot be asked: {error}") from error
        try:
            self._socket.sendall(frame)
            while (answer := self._core.next_response()) is None:
                received = self._socket.recv(RECEIVE_BYTES)
                if not received:
                    raise Failed(f"the broker at {self.endpoint} closed the connection")
                self._core.receive_data(received)
        except OSError as failed:
            raise Failed(f"the broker at {self.endpoint} did not answer: {failed}") from failed
        except Malformed as error:  # a web server, or a listener with TLS
            raise Failed(f"what listens at {self.endpoint} does not speak Kafka's protocol in plain text") from error
        return answer[1]

    def close(self) -> None:
        self._socket.close()


class Cluster:
    """Connections to the brokers of a cluster, by node id, opened when needed.

    A tolerant one goes without what does not answer soon: `ask` returns None then, and `unanswered` says whom it concerns.
    """

    def __init__(self, bootstrap: str, *, tolerant: bool = False) -> None:
        self._timeout_s = FIRST_ANSWER_TIMEOUT_S if tolerant else TIMEOUT_S
        self._tolerant = tolerant
        self._connections: dict[int, Connection] = {}
        self.unanswered: dict[int, str] = {}
        self._first = self._bootstrap(bootstrap)
        self._first.wait(self._timeout_s)

    def _bootstrap(self, bootstrap: str) -> Connection:
        """The first of the addresses that answers, and what it says of the cluster."""
        failures = []
        for host, port in addresses(bootstrap):
            try:
                connection = Connection(host, port)
            except Failed as failed:
                failures.append(str(failed))
                continue
            try:
                self.metadata: MetadataResponse = connection.call(metadata_request([]))
            except Failed as failed:
                connection.close()
                failures.append(str(failed))
            else:
                return connection
        raise Failed(f"{'; '.join(failures)}; is it running? see: odradek up --help")

    def refresh(self, topics: Sequence[str] | None) -> MetadataResponse:
        """Ask for these topics; None asks for all. Never creates one."""
        answer = self._first.call(metadata_request(topics))
        assert isinstance(answer, MetadataResponse)
        self.metadata = answer
        return answer

    def node(self, node_id: int) -> Connection:
        if node_id not in self._connections:
            broker = next((broker for broker in self.metadata.brokers if broker.node_id == node_id), None)
            if broker is None:
                raise Failed(f"broker {node_id} is not in the cluster's metadata")
            self._connections[node_id] = Connection(broker.host, broker.port)
            self._connections[node_id].wait(self._timeout_s)
        return self._connections[node_id]

    def ask(self, node_id: int, request: Message) -> Any:
        """The answer of one broker; None when there is none and this may be.

        Raises:
            Failed: there is no answer, and this is not a tolerant one.
        """
        if node_id in self.unanswered:
            return None
        try:
            return self.node(node_id).call(request)
        except Failed as failed:
            if not self._tolerant:
                raise
            self.unanswered[node_id] = str(failed)
            return None

    def excuses(self, node_id: int, error_code: int) -> bool:
        """A tolerant one goes without a broker that can only refuse for now."""
        if not self._tolerant or error_code == ErrorCode.NONE:
            return False
        self.unanswered[node_id] = error_name(error_code)
        return True

    def any(self) -> Connection:
        return self._first

    def coordinator(self, key: str, key_type: int) -> int:
        """The node id of who coordinates a group (key type 0) or a transactional id (1). Raises Failed."""
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])

        def find() -> Any:
            return self.any().call(request).coordinators[0]

        found = patiently(find, lambda answer: answer.error_code)
        check(found.error_code, f"coordinator of {key}", found.error_message)
        return int(found.node_id)

    def ask_coordinator(
        self, key: str, key_type: int, request: Message, code: Callable[[Any], int], version_max: int = VERSION_MAX
    ) -> Any:
        """The answer of who coordinates `key`, found anew whenever it is another. `code` is the error of an answer."""

        def ask() -> Any:
            return self.node(self.coordinator(key, key_type)).call(request, version_max)

        return patiently(ask, code)

    def controller(self) -> Connection:
        return self.node(self.metadata.controller_id)

    def close(self) -> None:
        for connection in (self._first, *self._connections.values()):
            connection.close()


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    """host:port,... in pairs. Raises Unaskable."""
    found = []
    for endpoint in bootstrap.split(","):
        host, _, port = endpoint.strip().rpartition(":")
        if not host or not port.isdecimal():
            raise Unaskable(f"bootstrap is {bootstrap!r}: expected host:port")
        found.append((host.strip("[]"), int(port)))
    return found


def metadata_request(topics: Sequence[str] | None) -> MetadataRequest:
    wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=wanted, allow_auto_topic_creation=False)


def patiently(ask: Callable[[], T], code: Callable[[T], int]) -> T:
    """Ask until the answer is none that passes by itself (a coordinator that loads, a leader that is elected) or time is up."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        answer = ask()
        if code(answer) not in PASSING or time.monotonic() > deadline:
            return answer
        time.sleep(RETRY_INTERVAL_S)


def check(error_code: int, what: str, message: str | None = None) -> None:
    """Raise Failed unless the code is NONE."""
    if error_code != ErrorCode.NONE:
        raise Failed(f"{what}: {error_name(error_code)}" + (f": {message}" if message else ""))


def error_name(error_code: int) -> str:
    try:
        return ErrorCode(error_code).name
    except ValueError:
        return f"error {error_code}"
