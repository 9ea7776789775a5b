"""Periodic samples of a cluster as one principal sees it: history of charts, and changes of groups."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final

from odradek.client.admin.group_members import members_of_groups
from odradek.client.admin.groups import committed_of_groups, listed_groups, with_lag
from odradek.client.admin.offsets import ends_of_partitions
from odradek.client.admin.transactions import OPEN_STATES, described_transactions, listed_transactions
from odradek.client.network.fan_out import FanOut
from odradek.console.model.charts import ProtocolSample, protocol_values
from odradek.console.model.group_history import GroupHistory, sample_of
from odradek.console.model.parts import read_part
from odradek.console.model.series import INTERVAL_S, History, Rates
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.client import Cluster, GroupLag, GroupListing, TransactionDescription
    from odradek.client.admin.groups import Ends

PARTITIONS_MAX: Final = 20_000
"""Maximum partitions per sample: those of the first topics by name. A leader lists 10,000 offsets in about 50 ms."""
GROUPS_PER_SAMPLE: Final = 500
"""Maximum groups whose lag and members one sample reads. With more groups, the samples take them in turn."""
TRANSACTIONS_MAX: Final = 2_000
"""Maximum open transactions per sample that are described for their age."""


class Observer:
    """Samples of a cluster, from `start` until `close`.

    Args:
        cluster: Connections for the samples alone, so that no page waits behind a sample. The observer closes them.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.history = History()
        self.groups = GroupHistory()
        self.error = ""
        """Reason why the last sample is incomplete, or an empty string."""
        self.since_ms: int | None = None
        """Time of the first sample in ms since 1970."""
        self._cluster = cluster
        self._rates = Rates()
        self._position = 0
        self._unreachable: dict[int, str] = {}
        self._lags: dict[str, GroupLag] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the samples, if they are not running."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """End the samples, and close the connections."""
        if self._task is not None:
            self._task.cancel()
        self._cluster.close()

    async def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                await self.sample()
                await asyncio.sleep(INTERVAL_S)

    async def sample(self) -> None:
        """Read one sample. A part that is not read within the deadline has a gap."""
        self._unreachable = {}
        ends = await read_part(self._ends())
        transactions = await read_part(self._transactions())
        groups = await read_part(self._groups(ends.value or {}))
        at_s = time.time()
        if self.since_ms is None:
            self.since_ms = int(at_s * 1000)
        sample = ProtocolSample(ends.value, transactions.value, groups.value)
        self.history.add(at_s, protocol_values(sample, at_s, self._rates, self.history))
        reasons = (f"broker {node_id}: {reason}" for node_id, reason in sorted(self._unreachable.items()))
        self.error = ends.error or transactions.error or groups.error or "; ".join(reasons)

    def _fan_out(self) -> FanOut:
        """Return the requests of one part. Brokers that do not respond are collected for `error`."""
        fan_out = FanOut(self._cluster, tolerant=True)
        fan_out.unreachable = self._unreachable
        return fan_out

    async def _ends(self) -> dict[tuple[str, int], Ends]:
        topics, count = [], 0
        for topic in (await self._cluster.fetch_metadata(None)).topics.values():
            count += len(topic.partitions)
            if count > PARTITIONS_MAX:
                break
            if topic.error_code == ErrorCode.NONE:
                topics.append(topic)
        return await ends_of_partitions(self._fan_out(), topics)

    async def _transactions(self) -> list[TransactionDescription]:
        fan_out = self._fan_out()
        listed = await listed_transactions(fan_out, OPEN_STATES)
        return await described_transactions(fan_out, listed[:TRANSACTIONS_MAX])

    async def _groups(self, ends: dict[tuple[str, int], Ends]) -> list[GroupLag]:
        """Sample the next groups, and return the last known lag of all."""
        fan_out = self._fan_out()
        every = await listed_groups(fan_out)
        rows = self._next(every)
        committed = await committed_of_groups(fan_out, [row for row in rows if row.type.lower() != "share"])
        names = {row.group for row in every}
        self._lags = {name: lag for name, lag in self._lags.items() if name in names}
        self._lags |= {lag.group: lag for lag in with_lag(rows, committed, ends)}
        now_ms = int(time.time() * 1000)
        for name, found in (await members_of_groups(fan_out, rows)).items():
            self.groups.observe(name, sample_of(found), now_ms)
        return list(self._lags.values())

    def _next(self, every: list[GroupListing]) -> list[GroupListing]:
        """Return the groups of this sample."""
        if len(every) <= GROUPS_PER_SAMPLE:
            return every
        first = self._position % len(every)
        self._position = first + GROUPS_PER_SAMPLE
        return (every[first:] + every[:first])[:GROUPS_PER_SAMPLE]
