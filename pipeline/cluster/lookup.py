"""Who leads, who coordinates: two questions that any client asks, put to the first broker that answers."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from odradek.protocol.client import ClientConnection
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

if TYPE_CHECKING:
    from odradek.protocol.schema import Message

METADATA_VERSION = 12
FIND_COORDINATOR_VERSION = 4
TRANSACTION = 1
ANSWER_SECONDS_MAX = 2.0
ANSWER_BYTES_MAX = 1_048_576
RECEIVE_BYTES = 65_536


def leader(bootstrap: str, topic: str, partition: int) -> int:
    """Node id of the leader of a partition. Raises ConnectionError when nobody knows one."""
    request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    answer = ask(bootstrap, request, METADATA_VERSION)
    assert isinstance(answer, MetadataResponse)
    found = [one.leader_id for one in answer.topics[0].partitions if one.partition_index == partition]
    return known(found, f"leader of {topic}-{partition}")


def coordinator(bootstrap: str, transactional_id: str) -> int:
    """Node id of the coordinator of a transactional id. Raises ConnectionError when nobody knows one."""
    request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id])
    answer = ask(bootstrap, request, FIND_COORDINATOR_VERSION)
    assert isinstance(answer, FindCoordinatorResponse)
    return known([one.node_id for one in answer.coordinators], f"coordinator of {transactional_id}")


def known(node_ids: list[int], what: str) -> int:
    if not node_ids or node_ids[0] < 0:
        raise ConnectionError(f"nobody knows the {what}")
    return node_ids[0]


def ask(bootstrap: str, request: Message, version: int) -> Message:
    """The first answer to be had from the addresses. Raises ConnectionError."""
    for address in bootstrap.split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), ANSWER_SECONDS_MAX) as connection:
                return exchange(connection, request, version)
        except OSError:
            continue  # it may be the one that is down
    raise ConnectionError(f"no broker of {bootstrap} answers")


def exchange(connection: socket.socket, request: Message, version: int) -> Message:
    core = ClientConnection(response_bytes_max=ANSWER_BYTES_MAX)
    _, frame = core.send(request, version, "demo")
    connection.sendall(frame)
    while (answer := core.next_response()) is None:
        received = connection.recv(RECEIVE_BYTES)
        if not received:
            raise ConnectionError("the broker closed the connection")
        core.receive_data(received)
    return answer[1]
