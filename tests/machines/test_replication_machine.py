"""Three brokers' replication against a plain list: real logs, leaders and followers, a model of the controller, any order of events.

What must hold, whatever is cut off, elected or refused: a record below a leader's high watermark is in the log of every later
leader at the same offset; a leader's high watermark never goes back; and when all is healed the logs are equal.
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
"""Of the loop: some for a piece of what has to happen, others for all of it."""


class ReplicationMachine(RuleBasedStateMachine):
    """Partition 0 of one topic; the machine is its controller. `reached`: how often something rare came about, in all runs."""

    reached: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.brokers: Brokers
        self.written = 0
        self.committed: list[bytes] = []
        """What some leader has called committed, batch by batch."""
        self.watermarks: dict[int, int] = {}
        self.first_epoch: int | None = None

    def run(self, awaitable: Any) -> Any:
        return self.loop.run_until_complete(awaitable)

    @initialize()
    def begin(self) -> None:
        async def make() -> None:
            # Fetchers that paused for real would sleep through the rest of a run.
            self.brokers = Brokers(
                Path(self.folder.name), config=LogConfig(min_insync_replicas=2), settings=["replica.fetch.backoff.ms=0"]
            )
            self.brokers.topic()

        self.run(make())

    # ---- what the controller knows

    @property
    def state(self) -> Any:
        """The partition as the newest metadata has it."""
        newest = max((self.brokers[node].metadata.image for node in NODES), key=lambda image: image.offset)
        return newest.topics_by_id[TOPIC_ID].partitions[0]

    def fenced(self, node: int) -> bool:
        newest = max((self.brokers[each].metadata.image for each in NODES), key=lambda image: image.offset)
        return bool(newest.brokers[node].fenced)

    # ---- rules

    @rule(rounds=ROUNDS)
    def time_passes(self, rounds: int) -> None:
        self.run(self.brokers.rounds(rounds))
        self.note()

    @rule(count=st.integers(1, 3), acks=st.sampled_from([1, -1]), rounds=ROUNDS)
    def append(self, count: int, acks: int, rounds: int) -> None:
        """At every broker that takes itself for the leader, one that was deposed included."""

        async def write() -> None:
            for node in NODES:
                broker = self.brokers[node]
                leading = broker.partition().leader_term
                if leading is None or (acks == -1 and not broker.partition().isr_suffices):
                    continue
                for _ in range(count):
                    self.written += 1
                    broker.append(b"%d by %d" % (self.written, node), acks=acks)
            await self.brokers.rounds(rounds)

        self.run(write())
        self.note()

    @rule(node=st.sampled_from(NODES), deaf=st.booleans())
    def isolate(self, node: int, deaf: bool) -> None:
        """The others do not hear it; if deaf, it does not hear the controller either and may go on leading."""
        self.brokers.cut[node] = None
        others = {*NODES} - {node}
        if deaf and others - {
            *self.brokers.deaf
        }:  # somebody hears: what the newest of them knows is what the controller knows
            self.brokers.deaf[node] = None

    @rule(node=st.sampled_from(NODES))
    @precondition(lambda self: bool(self.brokers.cut))
    def heal(self, node: int) -> None:
        async def mend() -> None:
            self.brokers.cut.pop(node, None)
            self.brokers.hear(node)
            if self.fenced(node):
                self.brokers.unfence(node)
                if self.state.leader == -1 and node in self.state.isr:
                    self.brokers.change(leader=node)

        self.run(mend())
        self.note()

    @rule(node=st.sampled_from(NODES))
    def fence(self, node: int) -> None:
        """The controller holds it dead, rightly or not."""

        async def change() -> None:
            if self.fenced(node):
                return
            state = self.state
            left = [each for each in state.isr if each != node]
            changes: dict[str, Any] = {"isr": left} if left else {}
            if state.leader == node:
                alive = [each for each in left if not self.fenced(each)]
                changes["leader"] = alive[0] if alive else -1
            if changes:
                self.brokers.fence(node, **changes)

        self.run(change())
        self.note()

    @rule(choice=st.integers(0, 2))
    def move_leadership(self, choice: int) -> None:
        async def change() -> None:
            alive = [node for node in self.state.isr if not self.fenced(node)]
            if alive:
                self.brokers.change(leader=alive[choice % len(alive)])

        self.run(change())
        self.note()

    @rule(
        error=st.sampled_from(
            [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.NOT_CONTROLLER, ErrorCode.INVALID_UPDATE_VERSION]
        )
    )
    def refuse_the_next_change_of_the_isr(self, error: ErrorCode) -> None:
        self.brokers.controller.errors.append(error)

    @rule()
    def check_replica_lag(self) -> None:
        async def look() -> None:
            for node in NODES:
                broker = self.brokers[node]
                broker.clock.now_ms += LAG_MS
                await check_replica_lag(broker.partitions, broker.clock)

        self.run(look())
        self.note()

    # ---- what holds

    def note(self) -> None:
        """Compare every leader's committed part with what was committed before, and add what is new."""
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
            known = self.committed[: len(batches)]
            assert batches[: len(known)] == known, f"{node} commits something else than was committed"
            if newest:
                everything = [bytes(batch) for _, batch in iter_batches(self.brokers[node].content())]
                assert everything[: len(self.committed)] == self.committed, f"{node} leads without what was committed"
            if len(batches) > len(self.committed):
                self.first_epoch = partition.leader_epoch if self.first_epoch is None else self.first_epoch
                self.reached[
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
                self.note()
        finally:
            self.run(self.brokers.close())
            self.loop.close()
            self.folder.cleanup()

    async def recover(self) -> None:
        brokers = self.brokers
        brokers.controller.errors.clear()
        for node in NODES:
            brokers.cut.pop(node, None)
            brokers.hear(node)
        for node in NODES:
            if self.fenced(node):
                brokers.unfence(node)
        if self.state.leader == -1:
            brokers.change(leader=self.state.isr[0])

        def whole() -> bool:
            return len(self.state.isr) == len(NODES) and len({brokers[node].content() for node in NODES}) == 1

        await brokers.until(whole)
        leader = brokers[self.state.leader]
        leader.append(b"the last one")
        await brokers.until(lambda: leader.committed() == leader.end())


def test_replication_keeps_what_it_has_committed() -> None:
    run_machine(ReplicationMachine, examples=150, steps=40)
    reached = ReplicationMachine.reached
    assert all(reached[each] for each in ("committed by a first leader", "committed by a later leader")), reached
