"""The records of a topic, and one record."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.routing import Route

from odradek.client.errors import InvalidArgument
from odradek.console.model.content import Format, decode
from odradek.console.model.log_record import HEADERS_DECODED_MAX, HEADERS_MAX
from odradek.console.model.parts import Part, read_part
from odradek.console.model.record_cursor import parse_cursor
from odradek.console.model.records import RecordQuery, parse_key, parse_time, read_record, read_records
from odradek.console.web.guard import viewer_of
from odradek.console.web.queries import choice_of, optional_number_of
from odradek.console.web.render import render
from odradek.protocol.batch import ControlType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from odradek.console.model.content import Content
    from odradek.console.model.log_record import LogRecord
    from odradek.console.model.memory_limit import MemoryLimit, PageMemory
    from odradek.console.model.records import RecordsPage
    from odradek.console.model.registry import SchemaRegistry

FIELDS: Final = ("partition", "from", "before", "time", "key", "as", "older", "newer")
"""Values in the address of a page of records, besides `markers`."""
MARKERS: Final = {ControlType.COMMIT: "commit marker", ControlType.ABORT: "abort marker"}
HEADERS_PER_ROW: Final = 3
"""Maximum headers of a record in a table. A record may have a million."""
NAME_MAX: Final = 400
"""Maximum characters of the name of a header."""
READ_DEADLINE_S: Final = 12.0
"""Seconds for a page of records. A search reads up to 16 MiB."""


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """A record with its content as text, and its first headers.

    `marker` names a control record, and is empty for others. `more` says how many further headers there are.
    """

    record: LogRecord
    key: Content
    value: Content
    headers: list[tuple[str, Content]]
    more: str
    marker: str


async def records(request: Request) -> Response:
    """Show a page of records. The memory of the records is released after the page is rendered."""
    memory: MemoryLimit = request.app.state.memory
    with memory.page() as page_memory:
        return await _records(request, page_memory)


async def _records(request: Request, memory: PageMemory) -> Response:
    name = request.path_params["topic"]
    given = request.query_params
    form = {each: given.get(each, "").strip() for each in FIELDS}
    markers = given.get("markers") == "1"
    problem = ""
    page: Part[RecordsPage] = Part()
    shown: list[ShownRecord] = []
    wanted = choice_of(Format, form["as"], Format.AUTO)
    try:
        query = _query(form, markers=markers)
    except InvalidArgument as error:
        problem = str(error)
    else:
        page = await read_part(read_records(viewer_of(request).cluster, name, query, memory), READ_DEADLINE_S)
        if page.value is not None:
            registry = request.app.state.registry
            shown = await asyncio.gather(*(_shown(row, wanted, registry) for row in page.value.rows))
    return render(
        request,
        "records.html",
        name=name,
        form=form,
        markers=markers,
        formats=[each.value for each in Format],
        problem=problem,
        page=page,
        records=shown,
    )


def _query(form: Mapping[str, str], *, markers: bool) -> RecordQuery:
    """Return the query of an address, by the first position that it has.

    Raise InvalidArgument if a value is malformed.
    """
    partition, key = optional_number_of(form["partition"]), parse_key(form["key"])
    if partition is None:
        older, newer = parse_cursor(form["older"]), parse_cursor(form["newer"])
        if older is not None:
            return RecordQuery(key=key, markers=markers, older=older)
        if newer is not None:
            return RecordQuery(key=key, markers=markers, newer=newer)
    start, before = optional_number_of(form["from"]), optional_number_of(form["before"])
    time_ms = parse_time(form["time"]) if start is None and before is None else None
    return RecordQuery(partition, before, start, time_ms, key, markers)


async def record(request: Request) -> Response:
    """Show one record."""
    name = request.path_params["topic"]
    index, offset = (optional_number_of(request.path_params[part]) for part in ("partition", "offset"))
    if index is None or offset is None:
        raise HTTPException(404)
    wanted = choice_of(Format, request.query_params.get("as"), Format.AUTO)
    memory: MemoryLimit = request.app.state.memory
    with memory.page() as page_memory:
        async with asyncio.timeout(READ_DEADLINE_S):
            found = await read_record(viewer_of(request).cluster, name, index, offset, page_memory)
        shown = await _shown(found, wanted, request.app.state.registry, pretty=True)
        formats = [each.value for each in Format]
        return render(request, "record.html", name=name, shown=shown, wanted=wanted.value, formats=formats)


async def _shown(
    row: LogRecord, wanted: Format, registry: SchemaRegistry | None, *, pretty: bool = False
) -> ShownRecord:
    if row.control is not None:
        wanted = Format.HEX
    key = await decode(row.key, wanted, registry, pretty=pretty)
    value = await decode(row.value, wanted, registry, pretty=pretty)
    shown = row.headers[: HEADERS_MAX if pretty else HEADERS_PER_ROW]
    headers = [(name[:NAME_MAX], await decode(each, Format.AUTO, None)) for name, each in shown]
    marker = "" if row.control is None else MARKERS.get(row.control, "control record")
    hidden = len(row.headers) - len(headers)
    more = f"{hidden} more" if len(row.headers) < HEADERS_DECODED_MAX else f"{hidden} or more others"
    return ShownRecord(row, key, value, headers, more if hidden else "", marker)


ROUTES: Final = (
    Route("/topics/{topic}/records", records),
    Route("/topics/{topic}/records/{partition}/{offset}", record),
)
