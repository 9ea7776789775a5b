"""Followers and leaders together: real logs, handlers and wire format, a test in place of the controller."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.fetch.sessions import INITIAL_EPOCH
from odradek.broker.partition.partition import Partition
from odradek.broker.quorum.peers import Channel
from odradek.broker.replication.follower_fetcher import FETCH_VERSION
from odradek.broker.replication.leader_fetch import LINGER_ROUNDS, WATERMARKS_EVERY_MS, Gathering
from odradek.broker.replication.leader_sessions import ReplicaSlot
from odradek.cluster.metadata.records import RemoveTopicRecord
from odradek.protocol.batch import iter_batches, iter_records
from odradek.protocol.errors import ErrorCode
from odradek.storage.config import LogConfig
from odradek.storage.log.reads import ReadResult
from odradek.storage.producers.entry import Origin
from tests.support.data_rig import NOW_MS, batch
from tests.support.replication_rig import TOPIC_ID, Brokers, Wire

E = ErrorCode


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    made = Brokers(tmp_path, config=LogConfig(min_insync_replicas=2))
    yield made
    await made.close()


def values_of(content: bytes) -> list[bytes | None]:
    return [
        record.value
        for _, batch in iter_batches(content)
        for record in iter_records(batch, max_decompressed_bytes=len(content))
    ]


async def test_an_append_is_on_every_replica_and_committed_without_waiting_for_a_timer(brokers: Brokers) -> None:
    brokers.topic()
    brokers[1].append(b"a", b"b")
    await brokers.until(lambda: brokers[1].committed() == 2)
    assert brokers[1].content() == brokers[2].content() == brokers[3].content()
    brokers[1].append(b"c")
    await brokers.until(lambda: brokers[1].committed() == 3)
    assert brokers[2].committed() >= 2, "the watermark travels with the next answer"


async def test_a_slow_replica_holds_back_the_watermark_until_it_has_left_the_isr(brokers: Brokers) -> None:
    brokers.topic()
    brokers[1].append(b"a")
    await brokers.until(lambda: brokers[1].committed() == 1)
    brokers.isolated[3] = None
    brokers[1].append(b"b")
    await brokers.until(lambda: brokers[1].acknowledged_by(2) == 2)
    assert brokers[1].committed() == 1
    brokers.fence(3, isr=[1, 2])
    assert brokers[1].committed() == 2, "at once, with the metadata"


async def test_a_replica_that_has_caught_up_joins_the_isr_again(brokers: Brokers) -> None:
    brokers.topic()
    brokers.isolated[3] = None
    brokers.fence(3, isr=[1, 2])
    for _ in range(5):
        brokers[1].append(b"x" * 100)
    await brokers.until(lambda: brokers[1].committed() == 5)
    await brokers.reconnect(3)
    assert brokers[3].content() == brokers[1].content()


async def test_a_living_broker_that_registers_anew_joins_the_isr_again(brokers: Brokers) -> None:
    """As after `kafka-cluster unregister`: it goes on in its session, in which an idle partition is not named any more."""
    brokers.topic(2)
    brokers[1].append(b"a")
    await brokers.until(lambda: brokers[3].committed() == 1)
    brokers.unregister(3, isr=[1, 2])
    brokers.restart(3)
    brokers[1].append(b"b", index=1)
    leading = brokers[1].partition().leader_term
    assert leading is not None
    await brokers.until_in_rounds(lambda: leading.replicas.isr == (1, 2, 3), 300)


async def test_what_the_old_leader_alone_had_is_cut_away(brokers: Brokers) -> None:
    """By leader epoch, not by watermark: what is committed and not known to be so stays."""
    brokers.topic()
    brokers[1].append(b"a", b"b")
    await brokers.until(lambda: brokers[1].committed() == 2)
    brokers.isolated[1] = None
    brokers[1].append(b"lost", acks=1)
    brokers.fence(1, leader=2, isr=[2, 3])
    brokers[2].append(b"new")
    await brokers.until(lambda: brokers[2].committed() == 3)
    del brokers.isolated[1]
    await brokers.until(lambda: brokers[1].end() == 3 and brokers[1].content() == brokers[2].content())
    assert brokers[1].partition().log.epochs.entries() == [(0, 0), (1, 2)]


async def test_an_epoch_that_wrote_nothing_is_no_endless_divergence(brokers: Brokers) -> None:
    brokers.topic()
    brokers[1].append(b"a")
    await brokers.until(lambda: brokers[1].committed() == 1)
    brokers.change(leader=2)
    brokers.change(leader=3)
    brokers[3].append(b"b")
    await brokers.until(lambda: brokers[3].committed() == 2)
    assert brokers[2].partition().log.epochs.entries() == [(0, 0), (2, 1)]


async def test_many_partitions_share_one_fetch_and_idle_ones_cost_nothing(brokers: Brokers) -> None:
    brokers.topic(40)
    await brokers.until(lambda: all(len(brokers[1].partition("t", i).watermarks.followers) == 2 for i in range(40)))
    brokers[1].append(b"a", index=7)
    await brokers.until(lambda: brokers[1].committed(7) == 1)
    assert [[p.partition for topic in last.topics for p in topic.partitions] for last in brokers[2].fetches[-1:]] == [
        [7]
    ]


async def test_a_new_partition_is_fetched_at_once_although_a_fetch_is_parked(brokers: Brokers) -> None:
    brokers.topic()
    brokers[1].append(b"a")
    await brokers.until(lambda: brokers[1].committed() == 1)
    brokers.add_partitions(1, first=1)
    brokers[1].append(b"b", index=1)
    await brokers.until_in_rounds(lambda: brokers[1].committed(1) == 1, 500)
    assert brokers[1].content(1) == brokers[2].content(1) == brokers[3].content(1) != b""


async def test_a_partition_that_was_given_up_while_it_was_unknown_is_answered_once(brokers: Brokers) -> None:
    """Asked for before the leader knew of it, given up, asked for again: the first asking must not be answered any more."""
    brokers.topic()
    brokers.lagging[1] = None
    brokers.add_partitions(1, first=1)
    for _ in range(3):
        asked = len(brokers[2].fetches)
        gave_up = lambda: any(each.forgotten_topics_data for each in brokers[2].fetches[asked:])  # noqa: E731, B023
        await brokers.until(gave_up)
    waiting = [slot for slots in brokers[1].sessions._awaiting_election.values() for slot in slots]
    assert len(waiting) <= 2, "one for each follower at most"
    brokers.receive_metadata(1)
    brokers[1].append(b"a", index=1)
    await brokers.until(lambda: brokers[1].committed(1) == 1)


async def test_an_answer_to_a_question_of_an_older_epoch_fences_nobody(brokers: Brokers) -> None:
    """The fetch is parked in epoch 0, the leader is elected again in epoch 1: what it answers is old news by then."""
    brokers.topic()
    brokers[1].append(b"a")
    await brokers.until(lambda: brokers[1].committed() == 1)
    brokers.change(leader=1)
    brokers[1].append(b"b")
    await brokers.until(lambda: brokers[1].committed() == 2)
    leading = brokers[1].partition().leader_term
    assert leading is not None
    assert (leading.replicas.isr, brokers.controller.requests) == ((1, 2, 3), [])
    assert brokers[1].content() == brokers[2].content() == brokers[3].content()


async def test_a_fetch_that_arrives_late_on_another_connection_does_not_keep_its_partitions(brokers: Brokers) -> None:
    """It lay in a connection that the follower has given up, and names the partition in a session that nobody goes on with."""
    brokers.topic()
    brokers[1].append(b"a")
    await brokers.until(lambda: brokers[1].committed() == 1)
    late = next(fetch for fetch in brokers[2].fetches if fetch.session_epoch == INITIAL_EPOCH)
    await Wire(brokers, 2).request(1, Channel.REPLICA_FETCH, late, FETCH_VERSION, timeout_ms=1_000)
    brokers[1].append(b"b")
    await brokers.until(lambda: brokers[1].committed() == 2)
    leading = brokers[1].partition().leader_term
    assert leading is not None
    own = [session for session in brokers[1].sessions if session.replica_id == 2]
    assert leading.replicas.followers[2].activity is max(own, key=lambda session: session.epoch)


async def test_a_watermark_that_moves_alone_waits_while_others_have_records(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower is told of it with records of the partition, or some ten times a second: not with each answer."""
    brokers.topic(2)
    leader = brokers[1]
    told: list[tuple[int, bool]] = []
    add = Gathering._add

    def noted(self: Gathering, slot: ReplicaSlot, found: ReadResult | None) -> None:
        told.append((slot.index, found is not None))
        add(self, slot, found)

    leader.append(b"a", index=0)
    await brokers.until(lambda: leader.committed(0) == 1)
    for follower in leader.partition("t", 0).watermarks.followers.values():
        assert isinstance(follower, ReplicaSlot)
        follower.session.watermarks_sent_ms = leader.clock.monotonic_ms()
    monkeypatch.setattr(Gathering, "_add", noted)
    for count in (1, 2, 3):
        leader.append(b"b", index=1)
        await brokers.until(lambda count=count: leader.committed(1) == count)
    assert told == [(1, True)] * 6
    leader.clock.now_ms += WATERMARKS_EVERY_MS
    leader.append(b"b", index=1)
    await brokers.until(lambda: brokers[2].committed(0) == brokers[3].committed(0) == 1)
    assert told[6:] == [(1, True), (0, False)] * 2


async def test_records_that_nobody_waits_for_go_along_with_the_next_ones(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.topic(2)
    leader = brokers[1]
    await brokers.until(lambda: sum(session.parked is not None for session in leader.sessions) == 2)
    monkeypatch.setattr("odradek.broker.replication.leader_fetch.DEFERRED_S", 3_600)
    told: list[list[int]] = []
    finish = Gathering.finish

    def noted(self: Gathering, context: Any) -> Any:
        told.append([slot.index for slot, row in self.rows if row.records])
        return finish(self, context)

    monkeypatch.setattr(Gathering, "finish", noted)
    deferred = batch(b"a")
    leader.partition("t", 0).append(deferred, origin=Origin.COORDINATOR, now_ms=NOW_MS, deferred=True)
    leader.append(b"b", index=1)
    await brokers.until(lambda: leader.committed(0) == leader.committed(1) == 1)
    assert [sorted(each) for each in told if each] == [[0, 1]] * 2


async def test_what_arrives_while_the_loop_goes_around_leaves_in_one_answer(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.topic(2)
    leader = brokers[1]
    await brokers.until(lambda: sum(session.parked is not None for session in leader.sessions) == 2)
    told: list[list[int]] = []
    finish = Gathering.finish

    def noted(self: Gathering, context: Any) -> Any:
        told.append([slot.index for slot, row in self.rows if row.records])
        return finish(self, context)

    monkeypatch.setattr(Gathering, "finish", noted)
    leader.append(b"a", index=0)
    for _ in range(LINGER_ROUNDS - 1):
        await asyncio.sleep(0)
    leader.append(b"b", index=1)
    await brokers.until(lambda: leader.committed(0) == leader.committed(1) == 1)
    assert [each for each in told if each] == [[0, 1]] * 2


async def test_records_that_nobody_waits_for_are_replicated_although_nothing_follows_them(brokers: Brokers) -> None:
    brokers.topic()
    leader = brokers[1]
    await brokers.until(lambda: sum(session.parked is not None for session in leader.sessions) == 2)
    leader.partition().append(batch(b"a"), origin=Origin.COORDINATOR, now_ms=NOW_MS, deferred=True)
    await brokers.until(lambda: leader.committed() == 1)


@pytest.mark.usefixtures("reads_from_file")
async def test_an_append_while_another_partition_is_read_from_the_disk_is_not_forgotten(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer was begun with nothing to fetch from one partition, and waits for the disk because of another one."""
    brokers.topic(2)
    leader = brokers[1]
    for index in (0, 1):
        leader.append(b"a", index=index)
    await brokers.until(lambda: leader.committed(0) == leader.committed(1) == 1)
    reading, go_on = asyncio.Event(), asyncio.Event()
    complete_read = Partition.complete_read

    async def slow(partition: Partition, read: Awaitable[Any]) -> Any:
        reading.set()
        await go_on.wait()
        return await complete_read(partition, read)

    monkeypatch.setattr(Partition, "complete_read", slow)
    for follower in leader.partition("t", 0).watermarks.followers.values():
        assert isinstance(follower, ReplicaSlot)
        follower.session.due[follower] = None
    leader.disk.failing["cold"] = 0
    leader.append(b"b", index=1)
    await reading.wait()
    leader.append(b"c", index=0)
    go_on.set()
    await brokers.until(lambda: leader.committed(0) == leader.committed(1) == 2)
    del leader.disk.failing["cold"]
    assert [values_of(brokers[node].content(index)) for node in (1, 2, 3) for index in (0, 1)] == [
        [b"a", b"c"],
        [b"a", b"b"],
    ] * 3


async def lose_the_head(brokers: Brokers, *, trusted: bool) -> Partition:
    """The replica on broker 2 has lost two of three batches, the beginning, and comes back."""
    brokers.topic()
    for value in (b"a", b"b", b"c"):
        brokers[1].append(value)
    await brokers.until(lambda: brokers[1].committed() == 3 and brokers[2].committed() == 3)
    follower = brokers[2].partition()
    brokers.fence(2, isr=[1, 3])
    brokers[2].replication.stop_following(follower)
    follower.log.truncate_fully_and_start_at(2, now_ms=NOW_MS)
    follower.log.append_as_follower(brokers[1].content()[-(len(brokers[1].content()) // 3) :], now_ms=NOW_MS)
    brokers[2].log_start_checks.begin([follower.log], brokers[2].metadata.image, 2, trusted=trusted)
    return follower


@pytest.mark.parametrize(("trusted", "content"), [(False, 3), (True, 1)])
async def test_a_replica_that_may_have_lost_its_beginning_is_replicated_anew(
    brokers: Brokers, trusted: bool, content: int
) -> None:
    """Its log begins where its leader's does not; only after a start that may have lost something is that suspicious."""
    follower = await lose_the_head(brokers, trusted=trusted)
    doubts = brokers[2].log_start_checks
    assert (bool(doubts), brokers[2].log_start_check_count) == (not trusted, int(trusted))
    brokers.restart(2)
    brokers[2].replication.follow(follower, 1)
    leading = brokers[1].partition().leader_term
    assert leading is not None
    await brokers.until(lambda: leading.replicas.isr == (1, 3, 2))
    assert len(list(iter_batches(brokers[2].content()))) == content
    assert (bool(doubts), brokers[2].log_start_check_count) == (False, 1)


async def test_a_disk_that_refuses_the_note_of_a_mended_replica_is_told_and_the_mending_goes_on(
    brokers: Brokers,
) -> None:
    follower = await lose_the_head(brokers, trusted=False)
    refused = OSError(ENOSPC, "No space left on device")
    brokers[2].log_start_check_error = refused
    brokers.restart(2)
    brokers[2].replication.follow(follower, 1)
    leading = brokers[1].partition().leader_term
    assert leading is not None
    await brokers.until(lambda: leading.replicas.isr == (1, 3, 2))
    assert (brokers[2].log_start_failures, brokers[2].log_start_check_count) == ([refused], 0)


async def test_a_replica_that_may_have_lost_its_beginning_is_not_waited_for_when_it_is_gone(brokers: Brokers) -> None:
    await lose_the_head(brokers, trusted=False)
    brokers.play(RemoveTopicRecord(topic_id=TOPIC_ID))
    assert (bool(brokers[2].log_start_checks), brokers[2].log_start_check_count) == (False, 1)
