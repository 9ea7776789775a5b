"""Schemas by id from a schema registry, over HTTP, with the schemas to which they refer."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from odradek.console.model.avro import parse_definitions
from odradek.console.model.avro_decoder import AvroUndecodable
from odradek.console.model.http_address import parse_http_address
from odradek.console.model.http_get import HttpFailed, http_get

if TYPE_CHECKING:
    from odradek.console.model.avro import AvroSchema

DEADLINE_S: Final = 5.0
"""Seconds for a schema with all its references, and with the time for which it waits behind other schemas."""
RESPONSE_BYTES_MAX: Final = 2**20
"""Maximum size of a schema with its references, in bytes."""
REFERENCES_MAX: Final = 100
"""Maximum schemas to which one schema refers, directly or through other schemas."""
REFERENCE_DEPTH_MAX: Final = 16
"""Maximum schemas in a chain of references."""
SCHEMAS_MAX: Final = 500
"""Maximum schemas in memory. The one that was read first is evicted."""
READS_MAX: Final = 8
"""Maximum schemas that are read at the same time. A page of records has up to 100 schema ids."""
FAILURE_S: Final = 30.0
"""Seconds after a failure before the same schema is requested again."""
ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
VERSION_MAX: Final = 2**31 - 1


class SchemaRegistry:
    """A schema registry with the interface of Confluent's.

    Args:
        url: Address, `http://` or `https://`. The console contacts no other host for schemas, also after a redirect.

    Raises:
        InvalidArgument: The address is malformed.
    """

    def __init__(self, url: str) -> None:
        self._server = parse_http_address(url, "--schema-registry")
        self._found: dict[int, tuple[asyncio.Task[AvroSchema], float]] = {}
        self._running = asyncio.Semaphore(READS_MAX)

    async def schema(self, schema_id: int) -> AvroSchema:
        """Return a schema. Raise AvroUndecodable if the registry does not return it, or if it is not of Avro."""
        now = asyncio.get_running_loop().time()
        task, requested = self._found.get(schema_id, (None, 0.0))
        failed = task is not None and task.done() and (task.cancelled() or task.exception() is not None)
        if task is None or (failed and now - requested > FAILURE_S):
            self._found.pop(schema_id, None)
            while len(self._found) >= SCHEMAS_MAX:
                del self._found[next(iter(self._found))]
            task = asyncio.create_task(self._read(schema_id))
            self._found[schema_id] = task, now
        return await asyncio.shield(task)

    async def _read(self, schema_id: int) -> AvroSchema:
        reading = _Reading(self)
        try:
            async with asyncio.timeout(DEADLINE_S), self._running:
                await reading.add(f"/schemas/ids/{schema_id}", f"schema {schema_id}", ())
        except TimeoutError:
            raise AvroUndecodable(f"the schema registry did not respond within {DEADLINE_S:g} s") from None
        return parse_definitions(reading.definitions)

    async def get(self, path: str, bytes_max: int) -> tuple[Any, int]:
        """Return a response as JSON, and its size in bytes. Raise AvroUndecodable if there is none."""
        target = f"{self._server.path.rstrip('/')}{path}"
        try:
            found = await http_get(self._server, target, deadline_s=DEADLINE_S, bytes_max=bytes_max, accept=ACCEPT)
        except HttpFailed as error:
            raise AvroUndecodable(f"the schema registry did not respond: {error}") from None
        if found.status != 200:
            raise AvroUndecodable(f"the schema registry responded with {found.status}")
        try:
            return json.loads(found.body), len(found.body)
        except (ValueError, RecursionError):
            raise AvroUndecodable("the schema registry did not respond with JSON") from None


class _Reading:
    """The definitions of a schema: those to which it refers are first."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self.definitions: list[Any] = []
        self._registry = registry
        self._bytes_left = RESPONSE_BYTES_MAX
        self._read: set[str] = set()

    async def add(self, path: str, name: str, referrers: tuple[str, ...]) -> None:
        """Read a schema with all schemas to which it refers. `referrers` are the paths that led to it.

        Raise AvroUndecodable if one of them is missing or not of Avro, or if they exceed a limit.
        """
        if path in referrers:
            raise AvroUndecodable(f"{name} refers to itself")
        if len(referrers) > REFERENCE_DEPTH_MAX:
            raise AvroUndecodable(f"{name} is in a chain of more than {REFERENCE_DEPTH_MAX} references")
        if path in self._read:
            return
        if len(self._read) > REFERENCES_MAX:
            raise AvroUndecodable(f"the schema refers to more than {REFERENCES_MAX} schemas")
        self._read.add(path)
        response, size = await self._registry.get(path, self._bytes_left)
        self._bytes_left -= size
        if not isinstance(response, dict) or response.get("schemaType", "AVRO") != "AVRO":
            raise AvroUndecodable(f"{name} is not of Avro")
        references = response.get("references") or []
        if not isinstance(references, list):
            raise AvroUndecodable(f"the references of {name} are malformed")
        for each in references:
            subject, version = _reference(each)
            target = f"/subjects/{quote(subject, safe='')}/versions/{version}"
            await self.add(target, f"version {version} of {subject}", (*referrers, path))
        try:
            self.definitions.append(json.loads(str(response.get("schema"))))
        except (ValueError, RecursionError):
            raise AvroUndecodable(f"{name} is not JSON") from None


def _reference(given: Any) -> tuple[str, int]:
    """Return subject and version of a reference. Raise AvroUndecodable if it is malformed."""
    subject, version = (given.get("subject"), given.get("version")) if isinstance(given, dict) else (None, None)
    if not isinstance(subject, str) or type(version) is not int or not 0 < version <= VERSION_MAX:
        raise AvroUndecodable("a reference of the schema has no subject or no version")
    if subject in {".", ".."} or not subject.isprintable():
        raise AvroUndecodable("a reference of the schema has an invalid subject")
    return subject, version
