"""Open transactions of the coordinators at the end of a run.

The offsets of the partitions do not show all of them. A client that aborts a transaction before it receives the
response to AddPartitionsToTxn sends no EndTxn: it ends the transaction locally. The transaction is then open at its
coordinator until its time-out, without a record in any partition.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek import client
from odradek.client.admin.transactions import OPEN_STATES

if TYPE_CHECKING:
    from odradek.pipeline.cluster.access import Access


def open_transactions(access: Access) -> list[str]:
    """Return one line per open transaction, and per broker that does not list its transactions."""
    return asyncio.run(_request(access))


async def _request(access: Access) -> list[str]:
    try:
        async with access.cluster() as cluster:
            return describe(await client.list_transactions(cluster, OPEN_STATES))
    except client.ClientError as failure:
        return [f"a request to the cluster failed: {failure}"]


def describe(result: client.PartialResult[client.TransactionListing]) -> list[str]:
    """Return one line per row and per unreachable broker."""
    return [
        *(f"transaction of {row.transactional_id} is in state {row.state}" for row in result.rows),
        *(f"broker {node_id} did not list its transactions: {why}" for node_id, why in result.unreachable.items()),
    ]
