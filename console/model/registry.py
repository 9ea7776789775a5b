"""Schemas by id from a schema registry, over HTTP."""

from __future__ import annotations

import asyncio
import json
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from odradek.console.model.avro import AvroUndecodable, parsed_schema
from odradek.console.model.http_address import parse_http_address

if TYPE_CHECKING:
    from fastavro.types import Schema

TIMEOUT_S: Final = 3.0
RESPONSE_BYTES_MAX: Final = 2**20
"""Maximum size of a response with a schema, in bytes."""
SCHEMAS_MAX: Final = 500
"""Maximum schemas in memory. The one that was read first is evicted."""
FAILURE_S: Final = 30.0
"""Seconds after a failure before the same schema is requested again."""
ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"


class SchemaRegistry:
    """A schema registry with the interface of Confluent's.

    Args:
        url: Address, `http://` or `https://`.

    Raises:
        InvalidArgument: The address is malformed.
    """

    def __init__(self, url: str) -> None:
        parse_http_address(url, "--schema-registry")
        self._url = url.rstrip("/")
        self._found: dict[int, tuple[asyncio.Task[Schema], float]] = {}

    async def schema(self, schema_id: int) -> Schema:
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

    async def _read(self, schema_id: int) -> Schema:
        response = await asyncio.to_thread(_get, f"{self._url}/schemas/ids/{schema_id}")
        if not isinstance(response, dict) or response.get("schemaType", "AVRO") != "AVRO":
            raise AvroUndecodable(f"schema {schema_id} is not of Avro")
        if response.get("references"):
            raise AvroUndecodable(f"schema {schema_id} refers to other schemas, which is not supported")
        try:
            definition = json.loads(str(response.get("schema")))
        except (ValueError, RecursionError):
            raise AvroUndecodable(f"schema {schema_id} is not JSON") from None
        return parsed_schema(definition)


def _get(url: str) -> Any:
    request = Request(url, headers={"Accept": ACCEPT})  # noqa: S310  the scheme was checked
    try:
        with urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
            body = response.read(RESPONSE_BYTES_MAX + 1)
    except HTTPError as error:
        error.close()
        raise AvroUndecodable(f"the schema registry responded with {error.code}") from None
    except (OSError, HTTPException) as error:
        raise AvroUndecodable(f"the schema registry did not respond: {error}") from None
    if len(body) > RESPONSE_BYTES_MAX:
        raise AvroUndecodable(f"the schema is longer than {RESPONSE_BYTES_MAX} bytes")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise AvroUndecodable("the schema registry did not respond with JSON") from None
