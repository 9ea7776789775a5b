"""A blocking client for one question at a time: versions are agreed once a connection, errors become one line."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, TypeVar

from protocol.client import ClientConnection
from protocol.errors import ErrorCode
from protocol.messages import request_class
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.schema import Message

CLIENT_ID = "odradek-admin"
TIMEOUT_S = 30.0
RECEIVE_BYTES = 65_536
RESPONSE_BYTES_MAX = 2**28
API_VERSIONS_VERSION = 3  # old enough for every broker of the last years; a refusal is answered in v0

M = TypeVar("M", bound="Message")


class Failed(Exception):
    """The request was refused, or nobody answered; the message is the whole story in one line."""


class Connection:
    """One connection to one broker."""

    def __init__(self, host: str, port: int) -> None:
        self.endpoint = f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), TIMEOUT_S)
        except OSError as failed:
            reason = failed.strerror or str(failed)
            raise Failed(
                f"no broker answers at {self.endpoint} ({reason}); is it running? see: odradek up --help"
            ) from failed
        self._core = ClientConnection(response_bytes_max=RESPONSE_BYTES_MAX)
        self._versions: dict[int, tuple[int, int]] = {}
        answer = self._exchange(ApiVersionsRequest("odradek", "1"), API_VERSIONS_VERSION)
        assert isinstance(answer, ApiVersionsResponse)
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def call(self, request: Message) -> Any:
        """Send a request in the newest version that both sides know, and return its response.

        Raises:
            Failed: the broker does not serve it, or the connection broke.
        """
        cls = request_class(request.API_KEY)
        lowest, highest = self._versions.get(request.API_KEY, (0, -1))
        version = min(highest, cls.MAX_VERSION)
        if version < max(lowest, cls.MIN_VERSION):
            raise Failed(f"the broker at {self.endpoint} does not serve {cls.NAME}")
        return self._exchange(request, version)

    def _exchange(self, request: Message, version: int) -> Message:
        _, frame = self._core.send(request, version, CLIENT_ID)
        try:
            self._socket.sendall(frame)
            while (answer := self._core.next_response()) is None:
                received = self._socket.recv(RECEIVE_BYTES)
                if not received:
                    raise Failed(f"the broker at {self.endpoint} closed the connection")
                self._core.receive_data(received)
        except OSError as failed:
            raise Failed(f"the broker at {self.endpoint} did not answer: {failed}") from failed
        return answer[1]

    def close(self) -> None:
        self._socket.close()


class Cluster:
    """Connections to the brokers of a cluster, by node id, opened when needed."""

    def __init__(self, bootstrap: str) -> None:
        self._connections: dict[int, Connection] = {}
        self._first = self._bootstrap(bootstrap)
        self.metadata: MetadataResponse = self.refresh([])

    @staticmethod
    def _bootstrap(bootstrap: str) -> Connection:
        failure = Failed(f"bootstrap is {bootstrap!r}: expected host:port")
        for endpoint in bootstrap.split(","):
            host, _, port = endpoint.strip().rpartition(":")
            if not host or not port.isdigit():
                raise failure
            try:
                return Connection(host, int(port))
            except Failed as failed:
                failure = failed
        raise failure

    def refresh(self, topics: Sequence[str] | None) -> MetadataResponse:
        """Ask for these topics; None asks for all. Never creates one."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        answer = self._first.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        assert isinstance(answer, MetadataResponse)
        self.metadata = answer
        return answer

    def node(self, node_id: int) -> Connection:
        if node_id not in self._connections:
            broker = next((broker for broker in self.metadata.brokers if broker.node_id == node_id), None)
            if broker is None:
                raise Failed(f"broker {node_id} is not in the cluster's metadata")
            self._connections[node_id] = Connection(broker.host, broker.port)
        return self._connections[node_id]

    def any(self) -> Connection:
        return self._first

    def controller(self) -> Connection:
        return self.node(self.metadata.controller_id)

    def close(self) -> None:
        for connection in (self._first, *self._connections.values()):
            connection.close()


def check(error_code: int, what: str, message: str | None = None) -> None:
    """Raise Failed unless the code is NONE."""
    if error_code != ErrorCode.NONE:
        raise Failed(f"{what}: {error_name(error_code)}" + (f": {message}" if message else ""))


def error_name(error_code: int) -> str:
    try:
        return ErrorCode(error_code).name
    except ValueError:
        return f"error {error_code}"
