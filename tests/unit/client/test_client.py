"""What the command line is given: questions that cannot be asked are refused in one line, bytes that are no text are bytes."""

import socket
from threading import Thread
from typing import cast

import pytest

from odradek.client.client import Cluster, Connection, Failed, Unaskable, addresses
from odradek.client.consume import first_of
from odradek.client.content import taken
from odradek.client.group_reset import moment_ms
from odradek.client.groups import listing
from odradek.client.produce import from_text, header
from odradek.protocol.client import ClientConnection
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest

WEB_ANSWER = b"HTTP/1.1 400 Bad Request\r\n\r\n"


class Unconnected(Connection):
    """A connection to a broker that serves CreateTopics, up to what is sent."""

    def __init__(self) -> None:
        self.endpoint = "localhost:9092"
        self._core = ClientConnection(response_bytes_max=1_000)
        self._versions = {CreateTopicsRequest.API_KEY: (2, 7)}


def test_a_number_that_no_request_can_hold() -> None:
    topic = CreatableTopic(name="t", num_partitions=2**40, replication_factor=1)
    with pytest.raises(Failed, match="cannot be asked: CreateTopicsRequest"):
        Unconnected().call(CreateTopicsRequest(topics=[topic]))


@pytest.mark.parametrize("duration", ["P999999999999D", "P900000D", "PT99999999999999H"])
def test_a_duration_that_began_before_all_time(duration: str) -> None:
    with pytest.raises(Failed, match="there was no time so long ago"):
        moment_ms("by-duration", duration)


def test_bytes_that_are_no_text_go_through_arguments_and_lines() -> None:
    given = b"\xff\xfe".decode(errors="surrogateescape")
    assert header(f"name={given}") == ("name", b"\xff\xfe")
    line = from_text(f"{given}:{given}", ":", 1)
    assert (line.key, line.value) == (b"\xff\xfe", b"\xff\xfe")
    with pytest.raises(Failed, match="line 3: "):
        taken("\ud800", "line 3")


def test_what_is_no_broker_is_said_in_a_line() -> None:
    """A web server, or a listener with TLS."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1_000)
                connection.sendall(WEB_ANSWER)

        other = Thread(target=answer)
        other.start()
        with pytest.raises(Failed, match=rf"127\.0\.0\.1:{port} does not speak Kafka's protocol"):
            Connection("127.0.0.1", port)
        other.join()


@pytest.mark.parametrize("bootstrap", ["localhost", "localhost:\N{SUPERSCRIPT TWO}"])
def test_an_address_that_is_none_cannot_be_asked(bootstrap: str) -> None:
    with pytest.raises(Unaskable, match="expected host:port"):
        addresses(bootstrap)


@pytest.mark.parametrize("start", ["soon", "\N{SUPERSCRIPT TWO}"])
def test_a_place_to_read_from_that_is_none_cannot_be_asked(start: str) -> None:
    with pytest.raises(Unaskable, match="expected earliest, latest or an offset"):
        first_of(start, 0, 9)


@pytest.mark.parametrize(("states", "types"), [(["Stable", "Sleepy"], []), ([], ["sleepy"])])
def test_groups_of_a_kind_that_there_is_not(states: list[str], types: list[str]) -> None:
    with pytest.raises(Unaskable, match=r"no such (state|type): [Ss]leepy; there are "):
        listing(cast("Cluster", None), states, types)
