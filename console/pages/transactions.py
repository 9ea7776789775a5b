"""The pages of transactions: the list, one transactional id, the decoded log, and the abort."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.routing import Route

from odradek.client import abort_hanging_transaction, fence_producer
from odradek.client.errors import InvalidArgument
from odradek.console.model.parts import read_part
from odradek.console.model.transactions import (
    CHOICES,
    OPEN,
    TransactionSelection,
    read_blocked,
    read_transaction,
    read_transactions,
)
from odradek.console.model.transition_log import STEPS_MAX, read_log, timeline
from odradek.console.web.guard import viewer_of
from odradek.console.web.live import live
from odradek.console.web.queries import number_of, optional_number_of
from odradek.console.web.render import render
from odradek.console.web.timeline_picture import picture_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

TIMELINE_RUNS_MAX: Final = 30
"""Maximum transactions of an id in the picture and in the table."""


async def overview(request: Request) -> Response:
    """Show the partitions that transactions hold back, and the transactional ids."""
    viewer = viewer_of(request)
    fields = request.query_params
    state = fields.get("state", OPEN)
    selection = TransactionSelection(
        state if state in CHOICES else OPEN, fields.get("q", ""), number_of(fields.get("page"), 1)
    )
    blocked, listed = await asyncio.gather(
        read_part(viewer.cache.get("blocked", lambda: read_blocked(viewer.cluster))),
        read_part(viewer.cache.get(selection, lambda: read_transactions(viewer.cluster, selection))),
    )
    return render(
        request,
        "transactions.html",
        blocked=blocked,
        listed=listed,
        selection=selection,
        choices=CHOICES,
        now_ms=now_ms(),
    )


async def one(request: Request) -> Response:
    """Show a transactional id: its state now, and the transactions that its log has."""
    viewer = viewer_of(request)
    transactional_id = request.query_params.get("id", "")
    described, log = await asyncio.gather(
        read_part(read_transaction(viewer.cluster, transactional_id)),
        read_part(
            viewer.cache.get(
                ("log", transactional_id),
                lambda: read_log(viewer.cluster, transactional_id, exact=True, rows_max=STEPS_MAX),
            )
        ),
    )
    now = now_ms()
    runs = timeline(log.value.transitions[::-1])[:TIMELINE_RUNS_MAX] if log.value is not None else []
    return render(
        request,
        "transaction.html",
        transactional_id=transactional_id,
        described=described,
        log=log,
        runs=runs,
        picture=picture_of(runs, now),
        now_ms=now,
    )


async def decoded(request: Request) -> Response:
    """Show the newest records of `__transaction_state`."""
    viewer = viewer_of(request)
    text = request.query_params.get("q", "")
    log = await read_part(viewer.cache.get(("log table", text), lambda: read_log(viewer.cluster, text)))
    return render(request, "transaction_log.html", log=log, text=text)


@dataclass(frozen=True, slots=True)
class AbortTarget:
    """The transaction that an address names: by transactional id, or a hanging one by partition and producer id.

    `transactional_id` is empty for a hanging transaction.
    """

    transactional_id: str
    topic: str
    partition: int
    producer_id: int


async def confirm(request: Request) -> Response:
    """Show which transaction is aborted, and by what, before anything is changed."""
    return render(request, "transaction_abort.html", target=_target(request.query_params))


async def abort(request: Request) -> Response:
    """Abort a transaction: fence its producer, or write a marker for a hanging one."""
    viewer = viewer_of(request)
    target = _target(request.query_params)
    if target.transactional_id:
        before = await fence_producer(viewer.cluster, target.transactional_id)
        result = f"The producer {before.producer_id} with epoch {before.producer_epoch} is fenced."
        if before.state == "Ongoing":
            result += " Its transaction is aborted."
    else:
        found = await abort_hanging_transaction(viewer.cluster, target.topic, target.partition, target.producer_id)
        result = f"The transaction that began at offset {found.first_offset} is aborted in this partition."
    viewer.cache.clear()
    return render(request, "transaction_aborted.html", target=target, result=result)


def _target(fields: Mapping[str, str]) -> AbortTarget:
    """Return the transaction of an address. Raise InvalidArgument if it is incomplete."""
    transactional_id = fields.get("id", "")
    if transactional_id:
        return AbortTarget(transactional_id, "", -1, -1)
    topic, partition = fields.get("topic", ""), optional_number_of(fields.get("partition"))
    producer_id = optional_number_of(fields.get("producer_id"))
    if not topic or partition is None or producer_id is None:
        raise InvalidArgument("the address names no transaction", "load the page of transactions again")
    return AbortTarget("", topic, partition, producer_id)


def now_ms() -> int:
    """Return the time in ms since 1970."""
    return time.time_ns() // 1_000_000


ROUTES: Final = (
    Route("/transactions", live(overview)),
    Route("/transactions/id", live(one)),
    Route("/transactions/log", live(decoded)),
)
ACTIONS: Final = (
    Route("/transactions/abort", confirm),
    Route("/transactions/abort", abort, methods=["POST"]),
)
