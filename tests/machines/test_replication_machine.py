"""Replication between three brokers with real logs, checked against a list of committed batches.

The machine is the controller.

The invariants hold for each order of isolations, elections and refused requests. A record below a leader's high
watermark is in the log of each later leader at the same offset. A leader's high watermark does not decrease. After all
isolations end, the logs become equal.
"""

import asyncio
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from odradek.broker.partition.background_jobs import check_replica_lag
from odradek.protocol.batch import iter_batches
from odradek.protocol.errors import ErrorCode
from odradek.storage.config import LogConfig
from tests.support.effort import run_machine
from tests.support.replication_rig import TOPIC_ID, Brokers

NODES = (1, 2, 3)
LAG_MS = 30_001
ROUNDS = st.one_of(st.integers(0, 10), st.integers(20, 60))
"""Rounds of the event loop: few, so that work stays unfinished, or enough to finish it."""


class ReplicationMachine(RuleBasedStateMachine):
    """Partition 0 of one topic; the machine is its controller. `occurrences` counts rare events of all runs."""

    occurrences: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.brokers: Brokers
        self.written = 0
        self.committed: list[bytes] = []
        """Batches below the high watermark of a leader, in log order."""
        self.watermarks: dict[int, int] = {}
        self.first_epoch: int | None = None

    def run(self, awaitable: Any) -> Any:
        return self.loop.run_until_complete(awaitable)

    @initialize()
    def start(self) -> None:
        async def make() -> None:
            # With a real pause, fetchers would sleep until the end of a run.
            self.brokers = Brokers(
                Path(self.folder.name), config=LogConfig(min_insync_replicas=2), settings=["replica.fetch.backoff.ms=0"]
            )
            self.brokers.topic()

        self.run(make())

    # ---- state of the controller ------------------------------------------------------------------------------------

    @property
    def state(self) -> Any:
        """Return the partition in the newest metadata image."""
        newest = max((self.brokers[node].metadata.image for node in NODES), key=lambda image: image.offset)
        return newest.topics_by_id[TOPIC_ID].partitions[0]

    def fenced(self, node: int) -> bool:
        newest = max((self.brokers[broker_id].metadata.image for broker_id in NODES), key=lambda image: image.offset)
        return bool(newest.brokers[node].fenced)

    # ---- rules ------------------------------------------------------------------------------------------------------

    @rule(rounds=ROUNDS)
    def time_passes(self, rounds: int) -> None:
        self.run(self.brokers.rounds(rounds))
        self.check_leaders()

    @rule(count=st.integers(1, 3), acks=st.sampled_from([1, -1]), rounds=ROUNDS)
    def append(self, count: int, acks: int, rounds: int) -> None:
        """Append at each broker that has a leader term, deposed leaders included."""

        async def write() -> None:
            for node in NODES:
                broker = self.brokers[node]
                leader_term = broker.partition().leader_term
                if leader_term is None or (acks == -1 and not broker.partition().isr_suffices):
                    continue
                for _ in range(count):
                    self.written += 1
                    broker.append(b"%d by %d" % (self.written, node), acks=acks)
            await self.brokers.rounds(rounds)

        self.run(write())
        self.check_leaders()

    @rule(node=st.sampled_from(NODES), lagging=st.booleans())
    def isolate(self, node: int, lagging: bool) -> None:
        """Isolate a broker. If `lagging`, it receives no metadata either and may still act as leader."""
        self.brokers.isolated[node] = None
        others = {*NODES} - {node}
        if lagging and others - {
            *self.brokers.lagging
        }:  # one broker must receive metadata: the newest image is the controller's state
            self.brokers.lagging[node] = None

    @rule(node=st.sampled_from(NODES))
    @precondition(lambda self: bool(self.brokers.isolated))
    def heal(self, node: int) -> None:
        async def reconnect() -> None:
            self.brokers.isolated.pop(node, None)
            self.brokers.receive_metadata(node)
            if self.fenced(node):
                self.brokers.unfence(node)
                if self.state.leader == -1 and node in self.state.isr:
                    self.brokers.change(leader=node)

        self.run(reconnect())
        self.check_leaders()

    @rule(node=st.sampled_from(NODES))
    def fence(self, node: int) -> None:
        """Fence the broker, whether it runs or not."""

        async def change() -> None:
            if self.fenced(node):
                return
            state = self.state
            remaining = [broker_id for broker_id in state.isr if broker_id != node]
            changes: dict[str, Any] = {"isr": remaining} if remaining else {}
            if state.leader == node:
                unfenced = [broker_id for broker_id in remaining if not self.fenced(broker_id)]
                changes["leader"] = unfenced[0] if unfenced else -1
            if changes:
                self.brokers.fence(node, **changes)

        self.run(change())
        self.check_leaders()

    @rule(choice=st.integers(0, 2))
    def move_leadership(self, choice: int) -> None:
        async def change() -> None:
            unfenced = [node for node in self.state.isr if not self.fenced(node)]
            if unfenced:
                self.brokers.change(leader=unfenced[choice % len(unfenced)])

        self.run(change())
        self.check_leaders()

    @rule(
        error=st.sampled_from(
            [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.NOT_CONTROLLER, ErrorCode.INVALID_UPDATE_VERSION]
        )
    )
    def refuse_the_next_change_of_the_isr(self, error: ErrorCode) -> None:
        self.brokers.controller.errors.append(error)

    @rule()
    def check_replica_lag(self) -> None:
        async def check() -> None:
            for node in NODES:
                broker = self.brokers[node]
                broker.clock.now_ms += LAG_MS
                await check_replica_lag(broker.partitions, broker.clock)

        self.run(check())
        self.check_leaders()

    # ---- invariants -------------------------------------------------------------------------------------------------

    def check_leaders(self) -> None:
        """Compare the committed batches of each leader with those of earlier leaders, and record new ones."""
        for node in NODES:
            partition = self.brokers[node].partition()
            if not partition.leads:
                continue
            newest = partition.leader_epoch == self.state.leader_epoch
            batches = [
                bytes(batch)
                for header, batch in iter_batches(self.brokers[node].content())
                if header.last_offset < partition.log.high_watermark
            ]
            expected = self.committed[: len(batches)]
            assert batches[: len(expected)] == expected, f"node {node} committed different batches"
            if newest:
                log_batches = [bytes(batch) for _, batch in iter_batches(self.brokers[node].content())]
                assert log_batches[: len(self.committed)] == self.committed, f"leader {node} lacks committed batches"
            if len(batches) > len(self.committed):
                self.first_epoch = partition.leader_epoch if self.first_epoch is None else self.first_epoch
                self.occurrences[
                    f"committed by a {'later' if partition.leader_epoch > self.first_epoch else 'first'} leader"
                ] += 1
            self.committed += batches[len(self.committed) :]

    @invariant()
    def watermarks_never_go_back(self) -> None:
        if not hasattr(self, "brokers"):
            return
        for node in NODES:
            partition = self.brokers[node].partition()
            log = partition.log
            assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
            if partition.leads:
                assert log.high_watermark >= self.watermarks.get(node, 0)
                self.watermarks[node] = log.high_watermark
            else:
                self.watermarks.pop(node, None)

    def teardown(self) -> None:
        try:
            if hasattr(self, "brokers"):
                self.run(self.recover())
                self.check_leaders()
        finally:
            self.run(self.brokers.close())
            self.loop.close()
            self.folder.cleanup()

    async def recover(self) -> None:
        brokers = self.brokers
        brokers.controller.errors.clear()
        for node in NODES:
            brokers.isolated.pop(node, None)
            brokers.receive_metadata(node)
        for node in NODES:
            if self.fenced(node):
                brokers.unfence(node)
        if self.state.leader == -1:
            brokers.change(leader=self.state.isr[0])

        def is_replicated() -> bool:
            return len(self.state.isr) == len(NODES) and len({brokers[node].content() for node in NODES}) == 1

        await brokers.until(is_replicated)
        leader = brokers[self.state.leader]
        leader.append(b"final record")
        await brokers.until(lambda: leader.committed() == leader.end())


def test_replication_keeps_committed_records() -> None:
    run_machine(ReplicationMachine, examples=150, steps=40)
    occurrences = ReplicationMachine.occurrences
    assert all(
        occurrences[broker_id] for broker_id in ("committed by a first leader", "committed by a later leader")
    ), occurrences
