"""Processes of group members: copiers (read, write, commit the offset in the transaction) and readers (read, commit).

A copier writes one record for each record that no copier wrote. Its value names the origin, so the final reads show the
result of each. A copier follows KIP-447 as Kafka's client does: it reads stable offsets only, ends its transaction
before it gives up partitions, and commits offsets with its member id and epoch. It also fails as applications do: it
sleeps within a transaction, terminates, leaves, and continues after it was fenced until a response says so.
"""

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

from odradek.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.sim.history import ADD, FAIL, OK, READ_COMMITTED, TXN_COMMIT, Operation, Partition
from tests.sim.workloads.client import (
    FENCED_MEMBER,
    INVALID_PRODUCER_EPOCH,
    NONE,
    PRODUCER_FENCED,
    REBALANCE_IN_PROGRESS,
    RETRIABLE,
    Client,
)
from tests.sim.workloads.encode import TRANSACTIONAL, encode_batch
from tests.sim.workloads.membership import Membership
from tests.sim.workloads.offsets import commit_offsets, fetch_offsets
from tests.sim.workloads.producers import ATTEMPTS_MAX, SEQUENCES, Dialect, Pending
from tests.sim.workloads.readers import Reader
from tests.sim.workloads.shapes import shape_of
from tests.sim.workloads.transactions import Behavior, TransactionalProducer
from tests.sim.world import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tests.sim.world import World

OUTPUT: Final = re.compile(rb"^\d{8}<([^:>]+):(\d+):(\d+)>")
"""Value of a copy: `number<group:partition:offset of the copied record>`."""
FETCH_BYTES: Final = (300, 1500, 6000)
HEARTBEATS_PER_SESSION: Final = 5
FETCH_WAITS_MS: Final = (0, 50, 200)
PROBE_PROBABILITY: Final = 0.2
SKIPPED_MAX: Final = 12
"""Offsets that a copier skips before it commits the position.

Without that commit, a new process would read all of them again.
"""
CALM_TIMEOUT_MS: Final = 30_000
TXN_OFFSET_COMMIT_VERSION: Final = {1: 4, 2: 6}
"""TxnOffsetCommit version of each transaction protocol."""
FENCED_PRODUCER: Final = frozenset({INVALID_PRODUCER_EPOCH, PRODUCER_FENCED})
LEFT, FAILED, FENCED, ENDED = "left", "failed", "fenced", "ended"


def origin_of(value: bytes) -> tuple[str, int, int] | None:
    """Return (group, partition, offset) of the copied record, or None if no copier wrote the value."""
    match = OUTPUT.match(value)
    return None if match is None else (match[1].decode(), int(match[2]), int(match[3]))


class Turns:
    """Common part of copiers and readers: membership, positions, and the end of the process."""

    member: Membership
    client: Client
    reader: Reader

    def __init__(self, client: Client) -> None:
        self.client = client
        self.world = client.world
        assert client.world.options.groups is not None
        self.options = client.world.options.groups
        self.positions: dict[Partition, int] = {}
        self.producer_fenced = False
        """True if the member must end because another process has its transactional id."""
        self._next_heartbeat = 0.0
        self.reader = Reader(client.world, f"{client.name}-in", READ_COMMITTED)

    async def run_turns(self, turn: "Callable[[], Awaitable[None]]") -> str:
        """Run turns until the process ends. A failing process sends no leave request."""
        watch, rng, options = self.world.monitor.groups, self.client.rng, self.options
        ended = ENDED
        while not watch.over and not self.member.fenced:
            if self.producer_fenced:
                ended = FENCED
                break
            draw = rng.random()
            if not watch.calm and draw < options.fail + options.leave:
                ended = FAILED if draw < options.fail else LEFT
                break
            await turn()
            await asyncio.sleep(rng.random() * options.think_seconds)
        if ended != FAILED:
            await self.member.leave()
        self.close()
        return ended

    async def maintain_membership(self) -> bool:
        """Join or send a due heartbeat. Return True if the process has partitions and positions to read."""
        member = self.member
        before = member.assigned
        if not member.joined:
            self.positions.clear()
            if not await member.join():
                return False
        elif self.world.now() >= self._next_heartbeat:
            self._next_heartbeat = self.world.now() + self.options.session_timeout_ms / HEARTBEATS_PER_SESSION / 1000
            await member.heartbeat()
        if member.assigned != before:
            self.positions = {place: position for place, position in self.positions.items() if place in member.assigned}
        return member.joined and bool(member.assigned) and await self._find_positions()

    async def _find_positions(self) -> bool:
        lacking = [place for place in self.member.assigned if place not in self.positions]
        if not lacking:
            return True
        # Only the coordinator that accepted the member just now knows the group's offsets for certain.
        operation = await fetch_offsets(self.client, self.member.group, lacking, stable=True, member=self.member)
        if operation.outcome != OK:
            if operation.error in FENCED_MEMBER:
                await self.member.heartbeat()
            return False
        offsets = dict(operation.offsets)
        self.positions.update({place: offsets.get(place, 0) for place in lacking})
        return True

    async def read(self, partition: Partition) -> list[tuple[int, bytes]] | None:
        """Return the next records of the partition, or None if the fetch failed."""
        self.reader.positions[partition] = self.positions[partition]
        operation = await self.reader.fetch(
            partition, max_wait_ms=self.client.rng.choice(FETCH_WAITS_MS), max_bytes=self.client.rng.choice(FETCH_BYTES)
        )
        return operation.records if operation.outcome == OK else None

    def close(self) -> None:
        self.reader.close()
        self.client.close()


class Copier(TransactionalProducer):
    """One process of a group of copiers."""

    def __init__(self, world: "World", name: str, dialect: Dialect, transactional_id: str) -> None:
        super().__init__(world, name, dialect, transactional_id, Behavior())
        assert world.options.groups is not None
        self.options = world.options.groups
        self.turns = Turns(self)
        self.replaceable = asyncio.Event()
        """Set while the process sleeps: another process may replace it."""
        self._ready = False
        self._unsure = False
        self._calm = False
        self._skipped: dict[Partition, int] = {}

    def become(self, member: Membership) -> None:
        self.member = self.turns.member = member

    async def run_member(self) -> str:
        """Run turns until the process fails, leaves or is stopped. Return how it ended."""
        return await self.turns.run_turns(self._turn)

    async def _turn(self) -> None:
        calm = self.world.monitor.groups.calm
        if calm and not self._calm:
            self._calm, self._ready, self.timeout_ms = True, False, CALM_TIMEOUT_MS
        if not self._ready:
            self._ready = await self.initialize()
        former = (self.member.member_id, self.member.epoch, dict(self.turns.positions))
        if self._ready and await self.turns.maintain_membership():
            await self._copy()
        elif not calm and not self.member.joined and former[2] and self.rng.random() < self.options.zombie:
            await self._continue_fenced(*former)

    async def _continue_fenced(self, member_id: str, epoch: int, positions: dict[Partition, int]) -> None:
        """Copy once more with the former member id and epoch, as a fenced member that continues."""
        if not self._ready:
            return
        self.world.count("zombie continues")
        now = (self.member.member_id, self.member.epoch)
        self.member.member_id, self.member.epoch = member_id, epoch
        self.turns.positions = positions
        await self._copy()
        self.member.member_id, self.member.epoch = now
        self.turns.positions.clear()

    def settle(self, operation: Operation, error: int, **details: Any) -> Operation:
        """Record the result of `operation`. Once faults have stopped, end the copier when its producer is fenced.

        Kafka's clients treat ProducerFencedException as fatal. A copier that calls InitProducerId instead lets two
        processes with one transactional id fence each other without end:
        1. A is fenced by the InitProducerId of B, and calls InitProducerId.
        2. B is fenced by the InitProducerId of A, and calls InitProducerId.
        Most transactions of both abort, and the group does not reach the end of its input. Under faults this is wanted.
        """
        if self._calm and error in FENCED_PRODUCER:
            self.turns.producer_fenced = True
        return super().settle(operation, error, **details)

    # ---- one transaction --------------------------------------------------------------------------------------------

    async def _copy(self) -> None:
        places = [place for place in self.turns.positions if self.rng.random() < 0.7]
        inputs: list[tuple[Partition, int]] = []
        ends: dict[Partition, int] = {}
        for place in places:
            records = await self.turns.read(place)
            if records is None:
                return
            originals = [(place, offset) for offset, value in records if origin_of(value) is None]
            if originals:
                inputs += originals
                ends[place] = self.turns.reader.positions[place]
            else:
                # Markers and aborted records count, too: a reader receives no records for them.
                passed_over = self.turns.reader.positions[place] - self.turns.positions[place]
                self._skipped[place] = self._skipped.get(place, 0) + passed_over
                self.turns.positions[place] = self.turns.reader.positions[place]
        skipped_ends = {
            place: position
            for place, position in self.turns.positions.items()
            if self._skipped.get(place, 0) > SKIPPED_MAX
        }
        if inputs or skipped_ends:
            await self._transact(inputs, {**skipped_ends, **ends})

    async def _transact(self, inputs: list[tuple[Partition, int]], ends: "Mapping[Partition, int]") -> None:
        self.transaction = self.world.next_transaction()
        self.world.monitor.groups.transactions += 1
        self.added.clear()
        self._skipped.clear()
        self._unsure = False
        steps = [self._write_outputs, self._commit_offsets] if inputs else [self._commit_offsets]
        if self.rng.random() < 0.3:
            steps.reverse()
        succeeded = True
        for step in steps:
            succeeded = succeeded and await step(inputs, ends)
            await self._dawdle()
            if succeeded and self.rng.random() < PROBE_PROBABILITY:
                # After this write the previous transaction is complete, so OffsetFetch must return its offsets.
                await fetch_offsets(self, self.member.group, self.world.partitions, stable=False)
        calm = self.world.monitor.groups.calm
        commit = succeeded and (calm or self.rng.random() >= self.options.abort)
        # A classic transaction without partitions does not exist. After an early error, the copier calls
        # InitProducerId.
        touched = self.dialect.generation == 2 or bool(self.added)
        ended = await self.end(commit=commit) if touched else succeeded
        if ended and commit:
            self.turns.positions.update(ends)
        else:
            self.turns.positions.clear()
        self._ready = ended
        if ended and self._unsure and self.dialect.generation == 1:
            # A request in transit must not reach the next transaction of the same producer epoch.
            self._ready = await self.initialize(recover=True)

    async def _dawdle(self) -> None:
        if not self.world.monitor.groups.calm and self.rng.random() < self.options.pause:
            self.world.count("pause in the middle of a transaction of a group")
            self.replaceable.set()
            await asyncio.sleep(self.options.session_timeout_ms / 1000 * (0.3 + 2 * self.rng.random()))

    async def _write_outputs(self, inputs: list[tuple[Partition, int]], ends: "Mapping[Partition, int]") -> bool:
        targets = self.rng.sample(self.world.partitions, min(2, len(self.world.partitions)))
        batches = []
        for number, target in enumerate(targets):
            target_inputs = inputs[number :: len(targets)]
            if target_inputs:
                batches.append(self._outputs(target, target_inputs))
        if self.dialect.generation == 1 and not await self.add([batch.partition for batch in batches]):
            self._unsure = True
            return False
        succeeded = await self.write(batches)
        self._unsure = self._unsure or any(batch.uncertain or not batch.acknowledged for batch in batches)
        return succeeded

    def _outputs(self, target: Partition, inputs: list[tuple[Partition, int]]) -> Pending:
        sequence = self.sequences.get(target, 0)
        self.sequences[target] = (sequence + len(inputs)) % SEQUENCES
        numbers = self.world.next_values(len(inputs), padding=0)
        values = tuple(
            number + f"<{self.member.group}:{index}:{offset}>".encode()
            for number, ((_, index), offset) in zip(numbers, inputs, strict=True)
        )
        data = encode_batch(
            [(None, value) for value in values],
            **shape_of(self.world, self.shapes),
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        return Pending(target, sequence, values, data)

    # ---- offsets in the transaction ---------------------------------------------------------------------------------

    async def _commit_offsets(self, inputs: list[tuple[Partition, int]], ends: "Mapping[Partition, int]") -> bool:
        if self.dialect.generation == 1 and not await self._repeat(self._add_offsets):
            return False
        return await self._repeat(lambda: self._commit_once(ends))

    async def _repeat(self, once: "Callable[[], Awaitable[Operation]]") -> bool:
        """Repeat a request until it succeeds or fails definitely. Return True if it succeeded."""
        for _ in range(ATTEMPTS_MAX):
            operation = await once()
            if operation.outcome == OK:
                return True
            self._unsure = self._unsure or operation.outcome != FAIL
            if operation.error not in RETRIABLE:
                break
            await self.backoff()
        return False

    async def _add_offsets(self) -> Operation:
        assert self.transactional_id is not None
        place = (CONSUMER_OFFSETS, self.world.monitor.groups.partition_of(self.member.group))
        operation = self._invoke_in_transaction(ADD, partitions=(place,))
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=self.member.group,
        )
        try:
            response = await self.call(request, 3, await self.coordinator_of(self.transactional_id))
        except OSError as error:
            return self.settle_lost(operation, error)
        if response.error_code == NONE:
            self.added[place] = None
        return self.settle(operation, response.error_code)

    async def _commit_once(self, ends: "Mapping[Partition, int]") -> Operation:
        assert self.transactional_id is not None
        member = self.member
        operation = self._invoke_in_transaction(TXN_COMMIT)
        operation.group, operation.member, operation.member_epoch = member.group, member.member_id, member.epoch
        operation.instance, operation.offsets = member.instance_id or "", tuple(ends.items())
        by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, index), offset in ends.items():
            by_topic.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=member.group,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            generation_id_or_member_epoch=member.epoch,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, topic_id=self.world.monitor.groups.topic_id, partitions=rows)
                for name, rows in by_topic.items()
            ],
        )
        try:
            node = operation.node = await self.group_coordinator_of(member.group)
            response = await self.call(request, TXN_OFFSET_COMMIT_VERSION[self.dialect.generation], node)
        except OSError as error:
            return self.settle_lost(operation, error)
        codes = [partition.error_code for topic in response.topics for partition in topic.partitions]
        code = next((code for code in codes if code != NONE), NONE)
        if code in FENCED_MEMBER:
            self.world.count("fenced in the middle of a transaction")
        return self.settle(operation, code)


class GroupReader(Client):
    """One process of a group that reads and commits offsets."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        assert world.options.groups is not None
        self.options = world.options.groups
        self.turns = Turns(self)
        self.replaceable = asyncio.Event()

    def become(self, member: Membership) -> None:
        self.member = self.turns.member = member

    async def run_member(self) -> str:
        """Run turns until the process fails, leaves or is stopped. Return how it ended."""
        return await self.turns.run_turns(self._turn)

    async def _turn(self) -> None:
        if await self.turns.maintain_membership():
            await self._read_on()

    async def _read_on(self) -> None:
        place = self.rng.choice(list(self.turns.positions))
        if await self.turns.read(place) is None:
            return
        end = self.turns.reader.positions[place]
        if end == self.turns.positions[place]:
            return
        if not self.world.monitor.groups.calm and self.rng.random() < self.options.pause:
            self.replaceable.set()
            await asyncio.sleep(self.options.session_timeout_ms / 1000 * (0.3 + 2 * self.rng.random()))
        done = await commit_offsets(self, self.member, {place: end})
        if done.outcome == OK:
            self.turns.positions[place] = end
        elif done.error != REBALANCE_IN_PROGRESS:
            self.turns.positions.clear()
