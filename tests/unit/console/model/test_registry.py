"""Schemas from a registry: references, limits, redirects, and a registry that does not end its response."""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from odradek.client.errors import InvalidArgument
from odradek.console.model import registry as registry_module
from odradek.console.model.avro_decoder import AvroUndecodable
from odradek.console.model.content import Format, decode
from odradek.console.model.registry import REFERENCE_DEPTH_MAX, REFERENCES_MAX, SchemaRegistry
from tests.support.command_line import TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

PAYMENT = {
    "type": "record",
    "name": "Payment",
    "fields": [{"name": "user", "type": "string"}, {"name": "amount", "type": "long"}, {"name": "id", "type": "bytes"}],
}
ID = "/schemas/ids/7"


@pytest.fixture(autouse=True)
def _deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test depend on the speed of the machine."""
    monkeypatch.setattr(registry_module, "DEADLINE_S", TIMEOUT_S)


class FakeRegistry:
    """Fake of a registry: responses by path. `requests` has the paths, in order."""

    def __init__(self, responses: dict[str, Any]) -> None:
        self.responses = responses
        self.requests: list[str] = []
        self.serving: set[asyncio.Task[None] | None] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.serving.add(asyncio.current_task())
        try:
            await self._respond(reader, writer)
        except asyncio.IncompleteReadError:
            pass  # the deadline of the client passed before it sent its request
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()  # an unclosed transport is reported in any later test

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).decode().split()[1]
        self.requests.append(path)
        found = self.responses.get(path)
        if callable(found):
            with contextlib.suppress(ConnectionError):
                await found(writer)
        else:
            status = "404 Not Found" if found is None else "200 OK"
            body = json.dumps(found).encode()
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


@asynccontextmanager
async def serving(responses: dict[str, Any]) -> AsyncIterator[tuple[FakeRegistry, SchemaRegistry]]:
    """Run a registry, and yield a client of it."""
    fake = FakeRegistry(responses)
    async with await asyncio.start_server(fake.serve, "127.0.0.1", 0) as server:
        yield fake, SchemaRegistry(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/api/")
        await asyncio.gather(*filter(None, fake.serving))


def schema(definition: Any, *references: tuple[str, int]) -> dict[str, Any]:
    """Return the response of a registry."""
    found = [{"name": "unused", "subject": subject, "version": version} for subject, version in references]
    return {"schema": json.dumps(definition), "references": found}


def registered(definitions: Sequence[Any]) -> dict[str, Any]:
    """Return a chain of schemas. Each but the last one refers to the next one."""
    last = len(definitions) - 1
    rows = [schema(each, *([(f"s{at + 1}", 1)] if at < last else [])) for at, each in enumerate(definitions)]
    return {f"/api/subjects/s{at}/versions/1": row for at, row in enumerate(rows)} | {f"/api{ID}": rows[0]}


def wrapper(name: str, inner: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "f", "type": inner}]}


def wire(value: bytes, schema_id: int = 7) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + value


async def test_avro_is_decoded_by_the_schema_of_the_registry() -> None:
    async with serving({f"/api{ID}": schema(PAYMENT)}) as (fake, registry):
        found = await decode(wire(b"\x06<b>\x06\x04\x01\x02"), Format.AUTO, registry)
        damaged = await decode(wire(b"\xff"), Format.AUTO, registry)
    assert (found.format, found.text) == ("avro", '{"user": "<b>", "amount": 3, "id": "01 02"}')
    assert (damaged.format, damaged.note.startswith("not of its schema")) == ("hex", True)
    assert fake.requests == [f"/api{ID}"]


@pytest.mark.parametrize(
    ("response", "note"),
    [
        (None, "responded with 404"),
        ({"schema": "...", "schemaType": "PROTOBUF"}, "is not of Avro"),
        ({"schema": "["}, "is not JSON"),
        ({"schema": "[" * 100_000}, "is not JSON"),
        ({"schema": '"X"'}, "the schema is invalid: UnknownType"),
        (schema("int", ("s", -1)), "no subject or no version"),
        (schema("int", ("..", 1)), "an invalid subject"),
        ({"schema": '"int"', "references": [7]}, "no subject or no version"),
        ({"schema": '"int"', "references": 7}, "malformed"),
        ([], "is not of Avro"),
    ],
)
async def test_value_without_a_usable_schema_is_shown_as_bytes(response: Any, note: str) -> None:
    async with serving({f"/api{ID}": response}) as (_, registry):
        found = await decode(wire(b"\x02a"), Format.AUTO, registry)
    assert found.format == "hex"
    assert note in found.note


async def test_references_are_read_once_and_subjects_are_quoted() -> None:
    subject = "a/../b?c#d"
    money = {"type": "fixed", "name": "pay.Money", "size": 1}
    one = wrapper("pay.One", "pay.Money")
    responses = {
        f"/api{ID}": schema(wrapper("R", ["pay.One", "pay.Money"]), ("one", 2), (subject, 1)),
        "/api/subjects/one/versions/2": schema(one, (subject, 1)),
        "/api/subjects/a%2F..%2Fb%3Fc%23d/versions/1": schema(money),
    }
    async with serving(responses) as (fake, registry):
        found = await decode(wire(b"\x00\x05"), Format.AUTO, registry)
    assert found.text == '{"f": {"f": "05"}}'
    assert fake.requests == list(responses)


async def test_references_have_limits() -> None:
    deep = [wrapper(f"R{at}", "int") for at in range(REFERENCE_DEPTH_MAX + 2)]
    async with serving(registered(deep)) as (_, registry):
        assert "in a chain of more than" in (await decode(wire(b"\x02"), Format.AUTO, registry)).note
    wide = registered([wrapper("R", "int")])
    wide[f"/api{ID}"] = schema("int", *(("s0", version) for version in range(1, REFERENCES_MAX + 2)))
    wide |= {f"/api/subjects/s0/versions/{version}": schema("int") for version in range(1, REFERENCES_MAX + 2)}
    async with serving(wide) as (fake, registry):
        assert "refers to more than" in (await decode(wire(b"\x02"), Format.AUTO, registry)).note
    assert len(fake.requests) == REFERENCES_MAX + 1


async def test_schema_that_refers_to_itself_is_refused() -> None:
    responses = registered(["int", "int"])
    responses["/api/subjects/s1/versions/1"] = schema("int", ("s0", 1))
    async with serving(responses) as (fake, registry):
        assert "refers to itself" in (await decode(wire(b"\x02"), Format.AUTO, registry)).note
    assert len(fake.requests) == 3


async def test_bytes_of_a_schema_with_its_references_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "RESPONSE_BYTES_MAX", 1_000)
    responses = registered([{"type": "int", "doc": "x" * 600}] * 2)
    async with serving(responses) as (_, registry):
        assert "is longer than" in (await decode(wire(b"\x02"), Format.AUTO, registry)).note


async def endless(writer: asyncio.StreamWriter) -> None:
    """Send one byte of a header after the other, until the client closes the connection."""
    writer.write(b"HTTP/1.1 200 OK\r\nX: ")
    while not writer.transport.is_closing():
        writer.write(b"x")
        await asyncio.sleep(0.001)


async def unlimited(writer: asyncio.StreamWriter) -> None:
    """Send a body without end."""
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while not writer.transport.is_closing():
        writer.write(b"x" * 100_000)
        await writer.drain()


async def compressed(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n")


def redirect(target: str) -> Callable[[asyncio.StreamWriter], Any]:
    async def respond(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode())

    return respond


@pytest.mark.parametrize(
    ("respond", "note"),
    [(endless, "did not respond"), (unlimited, "is longer than"), (compressed, "did not respond")],
)
async def test_response_that_does_not_end_is_refused(respond: Any, note: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if respond is endless:
        monkeypatch.setattr(registry_module, "DEADLINE_S", 0.2)
    async with serving({f"/api{ID}": respond}) as (_, registry):
        assert note in (await decode(wire(b"\x02"), Format.AUTO, registry)).note


async def test_time_of_a_schema_includes_that_behind_other_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page has up to 100 schema ids. A registry that hangs must not delay it by the sum of their deadlines."""
    monkeypatch.setattr(registry_module, "DEADLINE_S", 0.1)
    monkeypatch.setattr(registry_module, "READS_MAX", 1)

    async with serving({f"/api{ID}": endless}) as (fake, registry), registry._running, asyncio.timeout(TIMEOUT_S):
        found = await asyncio.gather(*(decode(wire(b"", schema_id), Format.AUTO, registry) for schema_id in (7, 8)))
    assert ["did not respond within" in each.note for each in found] == [True, True]
    assert fake.requests == []


async def test_redirect_to_another_host_is_not_followed() -> None:
    async with serving({"/internal": schema("int")}) as (other, inner):
        target = f"http://{inner._server.netloc}/internal"
        async with serving({f"/api{ID}": redirect(target)}) as (_, registry):
            with pytest.raises(AvroUndecodable, match="responded with 302"):
                await registry.schema(7)
    assert other.requests == []


def test_address_of_a_registry_is_http() -> None:
    with pytest.raises(InvalidArgument):
        SchemaRegistry("file:///etc/passwd")
