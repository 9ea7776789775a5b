"""Create the logs of new partitions that one request names, in slices.

A broker creates the logs of thousands of new partitions in slices, for seconds (decision 0107). A request for one of
these partitions creates its log immediately. A request for hundreds of them would hold the event loop until all these
logs exist.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import UUID

from odradek.broker.partition.registry import Partitions
from odradek.broker.requests.api import Ordered
from odradek.broker.requests.session import Session
from odradek.protocol.errors import Refusal

LOGS_PER_TURN: Final = 8
"""Maximum logs that one request creates per turn of the event loop. A log takes about 0.2 ms, on a slow disk more than
1 ms."""
Key = tuple[str | UUID, int]
"""Topic, by name or by id, and partition index."""


def with_open_logs(
    partitions: Partitions, session: Session, named: Callable[[], Iterable[Key]], handle: Callable[[], Any]
) -> Any:
    """Return `handle()`, after the logs of the partitions `named()` exist.

    If more than LOGS_PER_TURN of these logs are missing, stage one of the request waits for them.
    """
    if partitions.is_changing:
        missing = [key for key in dict.fromkeys(named()) if partitions.awaits_log(*key)]
        if len(missing) > LOGS_PER_TURN:
            return Ordered(_when_open(partitions, session, missing, handle))
    return handle()


async def _when_open(partitions: Partitions, session: Session, missing: list[Key], handle: Callable[[], Any]) -> Any:
    for number, (topic, index) in enumerate(missing, 1):
        try:
            if isinstance(topic, UUID):
                partitions.find_by_id(topic, index)
            else:
                partitions.find(topic, index)
        except Refusal:
            pass  # `handle` receives the error of this partition, too
        if number % LOGS_PER_TURN == 0:
            await session.next_turn()
    return handle()
