"""Metadata images, deltas and records: replay of the metadata log, subscriptions, and refused records."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.cluster.controller.commands import (
    AllocateProducerIds,
    AlterClientQuotas,
    AlterScramCredentials,
    Command,
    CreateAcls,
    CreatePartitions,
    CreateToken,
    CreateTopics,
    DeleteTopics,
    ExpireToken,
    FenceBroker,
    RegisterBroker,
    RemoveAcls,
    RemoveExpiredTokens,
    RenewToken,
    UnfenceBroker,
    UpdateFeatures,
)
from odradek.cluster.controller.messages.settings import (
    FeatureUpdate,
    NewAcl,
    NewScramCredential,
    QuotaChange,
    ScramChange,
)
from odradek.cluster.controller.messages.tokens import NewToken, TokenRules
from odradek.cluster.controller.messages.topics import NewPartitions, NewTopic, TopicName
from odradek.cluster.controller.settings.features import check_supported
from odradek.cluster.metadata import records as r
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.errors import InconsistentMetadata, UnsupportedMetadata
from odradek.cluster.metadata.image import EMPTY_IMAGE, MetadataImage
from odradek.cluster.raft.batches import LogBatch
from odradek.protocol.errors import Malformed, Refusal
from tests.support.raft_memory import ControllerRig, registration


@dataclass(frozen=True)
class RemoveFirstAcls:
    """Stands for RemoveAcls of the first ACLs of the image, whose ids are random."""

    count: int


@dataclass(frozen=True)
class ChangeFirstToken:
    """Stands for RenewToken or ExpireToken of the first token of the image, whose id is random."""

    command: type[RenewToken | ExpireToken]
    period_ms: int


Step: TypeAlias = Command | RemoveFirstAcls | ChangeFirstToken
TOKENS = TokenRules(b"key", max_lifetime_ms=100, validity_ms=50)
NAMES = st.sampled_from(["a", "b", "c.d", "c_d", ""])
COMMANDS: st.SearchStrategy[Step] = st.one_of(
    st.builds(
        lambda names, count, only: CreateTopics(tuple(NewTopic(n, count) for n in names), validate_only=only),
        st.lists(NAMES, min_size=1, max_size=3),
        st.integers(-2, 4),
        st.booleans(),
    ),
    st.builds(lambda name, count: CreatePartitions((NewPartitions(name, count),)), NAMES, st.integers(0, 6)),
    st.builds(lambda names: DeleteTopics(tuple(TopicName(n) for n in names)), st.lists(NAMES, max_size=3)),
    st.builds(FenceBroker, st.integers(1, 3)),
    st.builds(UnfenceBroker, st.integers(1, 3)),
    st.builds(lambda b, i: RegisterBroker(registration(b, incarnation=i), 0), st.integers(1, 3), st.integers(7, 8)),
    st.builds(AllocateProducerIds, st.integers(1, 3), st.integers(0, 30)),
    st.builds(
        lambda name, value: AlterClientQuotas((QuotaChange((("user", name),), (("producer_byte_rate", value),)),)),
        st.sampled_from(["u", None]),
        st.sampled_from([None, 1.0, 2.0]),
    ),
    st.builds(
        lambda names, pattern, permission: CreateAcls(
            tuple(NewAcl(2, name, pattern, "User:u", "*", 3, permission) for name in names)
        ),
        st.lists(NAMES, max_size=3),
        st.sampled_from([3, 4]),
        st.sampled_from([2, 3]),
    ),
    st.builds(RemoveFirstAcls, st.integers(1, 3)),
    st.builds(
        lambda names, mechanism, new: AlterScramCredentials(tuple(ScramChange(name, mechanism, new) for name in names)),
        st.lists(NAMES, max_size=3),
        st.sampled_from([1, 2]),
        st.sampled_from([None, NewScramCredential(4_096, b"salt", b"salted password")]),
    ),
    st.builds(lambda lifetime_ms: CreateToken(NewToken("User:u", "User:u", (), lifetime_ms)), st.integers(-1, 60)),
    st.builds(ChangeFirstToken, st.sampled_from([RenewToken, ExpireToken]), st.integers(-1, 60)),
    st.builds(RemoveExpiredTokens),
    st.builds(
        lambda level: UpdateFeatures((FeatureUpdate("transaction.version", level, allow_downgrade=True),)),
        st.integers(-1, 3),
    ),
)


def run(commands: list[Step], seed: int) -> ControllerRig:
    rig = ControllerRig(seed, tokens=TOKENS).with_brokers(1, 2)
    for command in commands:
        rig.now_ms += 10
        try:
            if isinstance(command, RemoveFirstAcls):
                rig.do(RemoveAcls(tuple(islice(rig.core.state.image.acls, command.count))))
            elif isinstance(command, ChangeFirstToken):
                for token_id in islice(rig.core.state.image.tokens, 1):
                    rig.do(command.command("User:u", TOKENS.hmac(token_id), command.period_ms))
            else:
                rig.do(command)
        except Refusal:
            continue
    return rig


def replayed(rig: ControllerRig, *, batch_size: int) -> MetadataImage:
    image = EMPTY_IMAGE
    for start in range(0, len(rig.log), batch_size):
        delta = MetadataDelta(image)
        for offset in range(start, min(start + batch_size, len(rig.log))):
            delta.replay(offset, 1, r.decode_record(rig.log[offset].value))
        image = delta.build()
    return image


@settings(max_examples=60, deadline=None)
@given(st.lists(COMMANDS, max_size=12), st.integers(0, 3))
def test_state_of_the_controller_is_the_replay_of_the_log(commands: list[Step], seed: int) -> None:
    rig = run(commands, seed)
    live = rig.core.state.image
    # One batch, as after a restart: smaller batches would split the metadata transaction of the bootstrap.
    assert replayed(rig, batch_size=max(len(rig.log), 1)) == live
    assert {t.topic_id: t for t in live.topics.values()} == live.topics_by_id
    for topic in live.topics.values():
        assert list(topic.partitions) == list(range(len(topic.partitions)))
        for partition in topic.partitions.values():
            assert partition.isr or partition.elr or partition.last_known_elr
            assert partition.leader == -1 or (
                partition.leader in partition.isr and not live.brokers[partition.leader].fenced
            )


@settings(max_examples=30, deadline=None)
@given(st.lists(COMMANDS, max_size=12), st.integers(0, 3))
def test_same_commands_and_seed_give_the_same_bytes(commands: list[Step], seed: int) -> None:
    assert run(commands, seed).log == run(commands, seed).log


def test_prepared_batches_are_published_as_a_whole() -> None:
    rig = ControllerRig().with_brokers(1)
    rig.do(CreateTopics((NewTopic("a", 6, 1),)))
    rows = [(record.key, record.value) for batch in rig.batches for record in batch]
    parts = [LogBatch(offset, offset, 1, (row,)) for offset, row in enumerate(rows)]
    cache = MetadataCache()
    published: list[MetadataImage] = []
    cache.subscribe(lambda _, image: published.append(image))
    for part in parts:
        cache.prepare((part,))
        assert cache.image == EMPTY_IMAGE
    assert not published
    cache.on_committed(parts)
    assert published == [cache.image] == [rig.core.state.image]


@settings(max_examples=40, deadline=None)
@given(st.lists(COMMANDS, max_size=12))
def test_subscribers_receive_exactly_the_changes(commands: list[Step]) -> None:
    rig = run(commands, 1)
    cache = MetadataCache()
    steps: list[tuple[MetadataDelta, MetadataImage]] = []
    cache.subscribe(lambda delta, image: steps.append((delta, image)))
    offset = 0
    for batch in rig.batches:
        rows = tuple((record.key, record.value) for record in batch)
        cache.on_committed([LogBatch(offset, offset + len(rows) - 1, 1, rows)])
        offset += len(rows)
    assert cache.image == rig.core.state.image
    for delta, image in steps:
        before = {(t.topic_id, p): x for t in delta.base.topics.values() for p, x in t.partitions.items()}
        after = {(t.topic_id, p): x for t in image.topics.values() for p, x in t.partitions.items()}
        assert list(delta.changed_partitions()) == [key for key in after if before.get(key) != after[key]]
        deleted = [t.topic_id for t in delta.deleted_topics()]
        assert sorted(deleted) == sorted(t for t in delta.base.topics_by_id if t not in image.topics_by_id)
        assert list(delta.created_topics()) == [t for t in image.topics_by_id if t not in delta.base.topics_by_id]
        tokens = {
            key for key in (*delta.base.tokens, *image.tokens) if delta.base.tokens.get(key) != image.tokens.get(key)
        }
        assert tokens <= set(delta.changed_tokens()) <= {*delta.base.tokens, *image.tokens}


def test_deleted_topics_come_in_the_order_of_the_request() -> None:
    rig = ControllerRig().with_brokers(1)
    rig.do(CreateTopics((NewTopic("a", 1, 1), NewTopic("b", 1, 1))))
    delta = MetadataDelta(replayed(rig, batch_size=len(rig.log)))
    before = len(rig.log)
    rig.do(DeleteTopics((TopicName("b"), TopicName("a"))))
    for offset, record in enumerate(rig.log[before:], before):
        delta.replay(offset, 1, r.decode_record(record.value))
    assert [topic.name for topic in delta.deleted_topics()] == ["b", "a"]


def test_metadata_transaction_is_published_as_a_whole_or_not() -> None:
    cache = MetadataCache()
    published: list[int] = []
    cache.subscribe(lambda _, image: published.append(image.offset))
    rows: list[r.MetadataRecord] = [
        r.BeginTransactionRecord(name="x"),
        r.TopicRecord(name="a", topic_id=UUID(int=500)),
        r.AbortTransactionRecord(reason="y"),
        r.BeginTransactionRecord(name="x"),
        r.TopicRecord(name="b", topic_id=UUID(int=501)),
        r.EndTransactionRecord(),
    ]
    for offset, record in enumerate(rows):
        cache.on_committed([LogBatch(offset, offset, 1, ((None, r.encode_record(record)),))])
    assert list(cache.image.topics) == ["b"]
    assert published == [2, 5]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"\x01\x1e\x00", "metadata record type 30 is not supported by this version"),
        (b"\x01\x03\x03", r"version 3 of metadata record PartitionRecord is not supported \(0 to 2\)"),
        (b"\x02\x03\x00", r"metadata frame version 2 is not supported \(only 1\)"),
    ],
)
def test_unknown_type_or_version_is_refused_by_name(value: bytes, message: str) -> None:
    with pytest.raises(UnsupportedMetadata, match=message):
        r.decode_record(value)


@pytest.mark.parametrize(
    "value", [None, b"", b"\x01", b"\x01\x02\x00\xff", b"\x01\x80\x80\x80\x80\x80\x80", b"\x01\x14\x00\x00\x00"]
)
def test_damaged_record_is_malformed(value: bytes | None) -> None:
    with pytest.raises(Malformed):
        r.decode_record(value)


@pytest.mark.parametrize(
    "record",
    [
        r.PartitionRecord(partition_id=0, topic_id=UUID(int=9)),
        r.PartitionChangeRecord(partition_id=0, topic_id=UUID(int=9)),
        r.RemoveTopicRecord(topic_id=UUID(int=9)),
        r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, fenced=1),
        r.ProducerIdsRecord(broker_id=1, next_producer_id=0),
        r.EndTransactionRecord(),
        r.ClearElrRecord(topic_name="none"),
        r.UnregisterControllerRecord(controller_id=5),
    ],
    ids=lambda record: record.NAME,
)
def test_inconsistent_record_stops_the_replay_with_its_offset(record: r.MetadataRecord) -> None:
    delta = MetadataDelta(EMPTY_IMAGE)
    with pytest.raises(InconsistentMetadata, match="metadata log, offset 17: "):
        delta.replay(17, 1, record)


def test_log_of_another_metadata_version_is_refused_at_load() -> None:
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(0, 1, r.FeatureLevelRecord(name="metadata.version", feature_level=34))
    with pytest.raises(UnsupportedMetadata, match=r"metadata\.version is finalized at level 34"):
        check_supported(delta.build())


def test_unregistered_controller_is_removed_from_the_image() -> None:
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(0, 1, r.RegisterControllerRecord(controller_id=5))
    delta.replay(1, 1, r.RegisterControllerRecord(controller_id=6))
    delta.replay(2, 1, r.decode_record(r.encode_record(r.UnregisterControllerRecord(controller_id=5))))
    assert list(delta.build().controllers) == [6]


def test_old_record_versions_are_read() -> None:
    delta = MetadataDelta(EMPTY_IMAGE)
    topic = UUID(int=500)
    delta.replay(0, 1, r.TopicRecord(name="t", topic_id=topic))
    old = r.PartitionRecord(partition_id=0, topic_id=topic, replicas=[1, 2], isr=[1, 2], leader=1, leader_epoch=0)
    delta.replay(1, 1, r.decode_record(r.encode_record(old, 0)))
    change = r.PartitionChangeRecord(partition_id=0, topic_id=topic, replicas=[2, 3], leader=2, isr=[2])
    delta.replay(2, 1, r.decode_record(r.encode_record(change, 0)))
    partition = delta.build().topics["t"].partitions[0]
    assert (partition.replicas, partition.leader, partition.leader_epoch) == ((2, 3), 2, 1)
    assert partition.directories == (UUID(int=0), UUID(int=0))
