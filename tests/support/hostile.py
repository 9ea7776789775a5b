"""Attacks of a hostile client on a broker: one repertoire for the simulator, for `make chaos` and for tests.

The client has no credentials, and does nothing that a client may do: it deletes no topic of others, and uses neither
their transactional ids nor their groups. A broker responds to each of its requests, or closes the connection.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.dispatch.table import API_TABLE
from odradek.coordinator.group import records as group_records
from odradek.coordinator.txn import records as txn_records
from odradek.coordinator.txn.ports import TopicPartition
from odradek.coordinator.txn.state import Transaction
from odradek.protocol.batch import Compression, build_batch
from odradek.protocol.codec import encode, request_header_version
from odradek.protocol.hashing import partition_for
from odradek.protocol.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.protocol.messages import (
    fetch,
    init_producer_id,
    join_group,
    list_offsets,
    metadata,
    offset_commit,
    produce,
)
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.headers import RequestHeader
from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest
from odradek.protocol.records.consumer_group_metadata import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from odradek.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from odradek.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from odradek.protocol.sasl.cluster_secret import MECHANISM
from odradek.protocol.txn_state import TxnState
from tests.support.crafted import KEYLESS, crafted, tiny_records
from tests.support.hostile_attack import (
    CLIENT_ID,
    COMPACTED_TOPIC,
    DAMAGED,
    EXPANDING,
    EXTREME,
    FORGED,
    FORGED_INTERNAL,
    HUGE,
    IDLE,
    IDS,
    INTERNAL_RECORD,
    KINDS,
    LOGIN,
    MEMBERS,
    PARTIAL,
    PRODUCER_IDS,
    RANDOM_BYTES,
    SESSIONS,
    TOPIC,
    UNKNOWN_TOPICS,
    VOTES,
    Attack,
    Sizes,
)
from tests.support.hostile_forged import (
    EPOCHS,
    INT16_MAX,
    INT32_MAX,
    INT64_MAX,
    OFFSETS,
    VOTE_VERSION,
    Victim,
    forge,
    forge_vote,
)
from tests.support.hostile_values import array_paths, encodable, huge
from tests.support.raw_client import SIZE, encode_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from odradek.broker.requests.api import AnyApi
    from odradek.protocol.schema import Message
    from odradek.runtime.shard import ShardRecord

ADMIN_CLIENT_ID: Final = "__admin_client"
"""Client id that opens internal topics for appends, as in Kafka. Any client can have it."""
LIVE_TRANSACTION_MS: Final = 1_000
"""Transaction time-out of the hostile client: its transactions do not outlast a run."""
KEYED_MAX: Final = 20_000
"""Maximum records with keys in a batch that expands. Their encoding takes time in the client."""
WAITING: Final = ("Fetch", "JoinGroup", "SyncGroup", "Produce", "ShareFetch")
"""APIs whose response may be later than any limit of a test, because the request contains the time to wait.

Produce with acks=0 has no response.
"""
ON_OTHERS: Final = (
    "AlterClientQuotas", "AlterConfigs", "AlterPartitionReassignments", "CreateAcls", "CreatePartitions",
    "CreateTopics", "DeleteAcls", "DeleteRecords", "DeleteTopics", "ElectLeaders", "IncrementalAlterConfigs",
    "UnregisterBroker", "UnregisterController", "UpdateFeatures",
)  # fmt: skip
"""APIs with which a client without credentials may change resources of others. Generated values could do so."""


@dataclass
class Repertoire:
    """Endless sequence of attacks. All choices come from `rng`."""

    rng: Random
    victim: Victim
    sizes: Sizes
    kinds: tuple[str, ...] = KINDS
    _created: int = 0
    _makers: dict[str, Callable[[], Attack]] = field(init=False)

    def __post_init__(self) -> None:
        """Prepare the makers of all kinds."""
        self._makers = {
            RANDOM_BYTES: self._random_bytes,
            PARTIAL: self._partial,
            DAMAGED: self._damaged,
            HUGE: self._huge,
            FORGED: self._forged,
            FORGED_INTERNAL: self._forged_internal,
            LOGIN: self._login,
            EXTREME: self._extreme,
            IDS: self._ids,
            INTERNAL_RECORD: self._internal_record,
            PRODUCER_IDS: self._producer_ids,
            MEMBERS: self._members,
            SESSIONS: self._sessions,
            UNKNOWN_TOPICS: self._unknown_topics,
            EXPANDING: self._expanding,
            VOTES: self._votes,
            IDLE: lambda: Attack(IDLE, "no bytes", b"", half_close=self.rng.random() < 0.5),
        }

    def next(self) -> Attack:
        """Return the next attack."""
        return self.make(self.rng.choice(self.kinds))

    def make(self, kind: str) -> Attack:
        """Return an attack of this kind."""
        return self._makers[kind]()

    # ---- bytes ------------------------------------------------------------------------------------------------------

    def _random_bytes(self) -> Attack:
        rng = self.rng
        data = rng.randbytes(rng.randrange(1, self.sizes.random_bytes_max))
        if rng.random() < 0.5:
            # A frame of known length with an API key that no broker serves.
            data = SIZE.pack(len(data) + 2) + b"\x7f\x00" + data
            return Attack(RANDOM_BYTES, "frame", data, requests=1, closed=True)
        size = rng.choice((-1, -(2**31), INT32_MAX))
        return Attack(RANDOM_BYTES, f"frame size {size}", SIZE.pack(size) + data, requests=1, closed=True)

    def _partial(self) -> Attack:
        frame = self._own_request()
        end = self.rng.randrange(1, len(frame))
        return Attack(PARTIAL, f"{end} of {len(frame)} bytes", frame[:end], half_close=self.rng.random() < 0.5)

    def _damaged(self) -> Attack:
        """Return a request whose header is valid, and whose body is truncated, changed or random."""
        api, version = self._any_api(excluded=ON_OTHERS)
        rng = self.rng
        body = encodable(api.request, version, rng)
        choice = rng.randrange(3)
        if choice == 0:
            body = body[: rng.randrange(len(body) + 1)]
        elif choice == 1:
            position = rng.randrange(len(body) + 1)
            body = body[:position] + rng.randbytes(rng.randrange(1, 9)) + body[position + 1 :]
        else:
            body = rng.randbytes(rng.randrange(200))
        return Attack(DAMAGED, api.name, _frame(api, version, body), requests=1, waits=_waits(api))

    def _huge(self) -> Attack:
        while True:
            api, version = self._any_api()
            paths = list(array_paths(api.request, version))
            if paths:
                break
        path = self.rng.choice(paths)
        size = self.rng.randint(*self.sizes.array_bytes)
        array = huge(api.request, version, path, size, elements_max=self.sizes.elements_max, client_id=CLIENT_ID)
        what = f"{api.name}.{array.path}, {array.count} elements"
        return Attack(HUGE, what, array.frame, requests=1, waits=_waits(api))

    def _extreme(self) -> Attack:
        api, version = self._any_api(excluded=ON_OTHERS)
        body = encodable(api.request, version, self.rng)
        return Attack(EXTREME, api.name, _frame(api, version, body), requests=1, waits=_waits(api))

    # ---- requests of brokers ----------------------------------------------------------------------------------------

    def _forged(self) -> Attack:
        message, version = forge(self.victim, self.rng)
        return self._single(FORGED, message, version, refused=True, client_id=self._broker_name())

    def _forged_internal(self) -> Attack:
        """Return a forged request for the listener for brokers, which serves no connection before its login."""
        message, version = forge(self.victim, self.rng)
        data = encode_request(message, version, 1, self._broker_name())
        return Attack(FORGED_INTERNAL, message.NAME, data, requests=1, refused=True, internal=True)

    def _votes(self) -> Attack:
        requests = [(forge_vote(self.victim, self.rng), VOTE_VERSION) for _ in range(self.sizes.flood)]
        return _several(VOTES, "Vote", requests)

    def _login(self) -> Attack:
        rng = self.rng
        nonce = rng.getrandbits(100)
        target = self.victim.nodes[nonce % len(self.victim.nodes)]
        messages: list[bytes] = [
            b"n,,n=cluster,r=%x,t=%d" % (nonce, target),
            b"n,,n=cluster,r=",
            b"c=biws,r=abc,p=AAAA",
            rng.randbytes(rng.randrange(200)),
        ]
        data = encode_request(SaslHandshakeRequest(rng.choice((MECHANISM.name, "PLAIN", ""))), 1, 1, CLIENT_ID)
        for number in range(2, 4):
            data += encode_request(SaslAuthenticateRequest(rng.choice(messages)), 2, number, CLIENT_ID)
        data += encode_request(FindCoordinatorRequest(key_type=1, coordinator_keys=["hostile"]), 4, 4, CLIENT_ID)
        return Attack(LOGIN, MECHANISM.name, data, requests=4, closed=True, internal=True)

    def _broker_name(self) -> str:
        """Return a client id that brokers have."""
        channel = self.rng.choice(("raft", "raft-fetch", "replica-fetch", "isr", "markers", "heartbeat"))
        return f"broker-{self.rng.choice(self.victim.nodes)}-{channel}"

    # ---- ids and floods ---------------------------------------------------------------------------------------------

    def _ids(self) -> Attack:
        rng = self.rng
        producer_id, epoch = rng.choice((0, 1, 5_000, INT64_MAX)), rng.choice((0, 1, INT16_MAX))
        own = f"hostile-{rng.randrange(4)}"
        offset, leader_epoch = rng.choice((*OFFSETS, -1, -(2**63))), rng.choice((-1, *EPOCHS))
        listed = list_offsets.ListOffsetsPartition(0, leader_epoch, offset)
        commit = offset_commit.OffsetCommitRequestPartition(0, rng.choice(OFFSETS), leader_epoch, "x" * 100)
        requests: list[tuple[Message, int]] = [
            (init_producer_id.InitProducerIdRequest(own, LIVE_TRANSACTION_MS, producer_id, epoch), 4),
            (EndTxnRequest(own, producer_id, epoch, committed=rng.random() < 0.5), rng.choice((3, 5))),
            (self._fetch(offset=offset, leader_epoch=leader_epoch), 12),
            (list_offsets.ListOffsetsRequest(-1, 0, [list_offsets.ListOffsetsTopic(TOPIC, [listed])]), 8),
            (
                offset_commit.OffsetCommitRequest(
                    f"{CLIENT_ID}-group",
                    rng.choice((-1, 0, INT32_MAX)),
                    rng.choice(("", "member")),
                    topics=[offset_commit.OffsetCommitRequestTopic(TOPIC, partitions=[commit])],
                ),
                8,
            ),
            (
                _produce(
                    TOPIC,
                    build_batch(
                        [(b"k", b"v", 1, ())],
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        base_sequence=rng.choice((0, 1, INT32_MAX)),
                    ),
                ),
                9,
            ),
        ]
        message, version = rng.choice(requests)
        return self._single(IDS, message, version)

    def _internal_record(self) -> Attack:
        """Return an append to a topic of a coordinator: of unreadable records, or of a value that only it may write."""
        rng = self.rng
        topic = rng.choice((TRANSACTION_STATE, CONSUMER_OFFSETS))
        keys = (b"", b"\x00\x00\xff\xff", b"\x7f\xff" + rng.randbytes(10), rng.randbytes(1), b"\x00\x00\x00\x07hos")
        values = (None, b"", b"\x7f\xff\x00", rng.randbytes(rng.randrange(1, 60)))
        rows: list[tuple[bytes | None, bytes | None]] = [
            (rng.choice(keys), rng.choice(values)) for _ in range(rng.randint(1, 3))
        ]
        partition = rng.randrange(self._partitions_of(topic))
        if rng.random() < 0.5:
            owner = f"{CLIENT_ID}-{rng.randrange(4)}"
            planted = self._planted_transaction(owner) if topic == TRANSACTION_STATE else self._planted_group(owner)
            rows = [(planted.key, planted.value)]
            partition = partition_for(owner, self._partitions_of(topic))
        batch = build_batch([(key, value, 1_700_000_000_000, ()) for key, value in rows])
        message = _produce(topic, batch, partition=partition)
        client_id = ADMIN_CLIENT_ID if rng.random() < 0.8 else CLIENT_ID
        return self._single(INTERNAL_RECORD, message, 9, refused=True, client_id=client_id)

    def _planted_transaction(self, transactional_id: str) -> ShardRecord:
        """Return a prepared transaction of any producer. A coordinator that loads it sends the markers."""
        rng = self.rng
        transaction = Transaction(
            transactional_id,
            producer_id=rng.choice((0, 1, 5_000, INT64_MAX)),
            producer_epoch=rng.choice((0, 1, INT16_MAX)),
            timeout_ms=LIVE_TRANSACTION_MS,
            state=rng.choice((TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)),
            partitions={TopicPartition(TOPIC, 0): None},
            start_ms=1,
            update_ms=1,
            client_version=rng.choice((0, 2, 300)),
        )
        return txn_records.to_record(transaction, 2)

    def _planted_group(self, group_id: str) -> ShardRecord:
        """Return a value that only the group coordinator may write."""
        epoch = self.rng.choice((1, INT32_MAX))
        classic = GroupMetadataValue(protocol_type="consumer", generation=epoch)
        return self.rng.choice(
            (
                group_records.to_record(GroupMetadataKey(group_id), classic, 3),
                group_records.to_record(ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(epoch)),
                group_records.to_record(OffsetCommitKey(group_id, TOPIC, 0), OffsetCommitValue(offset=epoch)),
            )
        )

    def _partitions_of(self, topic: str) -> int:
        return self.victim.topics[topic][1] if topic in self.victim.topics else 1

    def _producer_ids(self) -> Attack:
        rng = self.rng
        requests: list[tuple[Message, int]] = []
        for _ in range(self.sizes.flood):
            choice = rng.random()
            name = None if choice < 0.4 else f"hostile-{rng.randrange(4)}" if choice < 0.6 else _random_name(rng)
            requests.append((init_producer_id.InitProducerIdRequest(name, LIVE_TRANSACTION_MS), 4))
        return _several(PRODUCER_IDS, "InitProducerId", requests)

    def _members(self) -> Attack:
        requests: list[tuple[Message, int]] = []
        for _ in range(self.sizes.flood):
            protocol = join_group.JoinGroupRequestProtocol("range", self.rng.randbytes(20))
            request = join_group.JoinGroupRequest(
                f"hostile-group-{self.rng.randrange(4)}", 6_000, 6_000, "", None, "consumer", [protocol]
            )
            requests.append((request, 5))
        return _several(MEMBERS, "JoinGroup", requests)

    def _sessions(self) -> Attack:
        requests: list[tuple[Message, int]] = [
            (self._fetch(offset=self.rng.choice((0, 1, INT64_MAX)), session_epoch=0), 12)
            for _ in range(self.sizes.flood)
        ]
        return _several(SESSIONS, "Fetch", requests)

    def _unknown_topics(self) -> Attack:
        names = []
        for _ in range(self.sizes.flood):
            if self._created < self.sizes.topics_created and self.rng.random() < 0.3:
                self._created += 1
                names.append(f"hostile-created-{self._created}")
            else:
                names.append(self.rng.choice(("", "a b", "..", "x" * 300, "é")))
        topics = [metadata.MetadataRequestTopic(name=name) for name in names]
        request = metadata.MetadataRequest(topics, allow_auto_topic_creation=True)
        return self._single(UNKNOWN_TOPICS, request, 9)

    def _expanding(self) -> Attack:
        """Return a batch whose bytes expand many times, or whose header declares another number of records."""
        rng = self.rng
        count = rng.randint(*self.sizes.expanded_records)
        codec = rng.choice((Compression.GZIP, Compression.LZ4, Compression.ZSTD, Compression.SNAPPY))
        body = KEYLESS * count
        batch = (
            tiny_records(min(count, KEYED_MAX), codec)
            if rng.random() < 0.2
            else crafted(body, rng.choice((1, count)), codec)
        )
        topic = rng.choice((TOPIC, COMPACTED_TOPIC))
        return self._single(EXPANDING, _produce(topic, batch), 9)

    # ---- parts ------------------------------------------------------------------------------------------------------

    def _fetch(self, *, offset: int = 0, leader_epoch: int = -1, session_epoch: int = -1) -> Message:
        partition = fetch.FetchPartition(0, leader_epoch, offset, partition_max_bytes=1_000)
        topic = fetch.FetchTopic(TOPIC, partitions=[partition])
        return fetch.FetchRequest(max_wait_ms=10, max_bytes=10_000, session_epoch=session_epoch, topics=[topic])

    def _own_request(self) -> bytes:
        rng = self.rng
        name = f"hostile-{rng.randrange(4)}"
        requests: list[tuple[Message, int]] = [
            (metadata.MetadataRequest([metadata.MetadataRequestTopic(name=TOPIC)]), 9),
            (init_producer_id.InitProducerIdRequest(name, LIVE_TRANSACTION_MS), 4),
            (self._fetch(), 12),
            (_produce(TOPIC, build_batch([(b"k", b"v" * 100, 1, ())])), 9),
        ]
        message, version = rng.choice(requests)
        return encode_request(message, version, 1, CLIENT_ID)

    def _any_api(self, *, excluded: tuple[str, ...] = ()) -> tuple[AnyApi, int]:
        api = self.rng.choice([row for row in API_TABLE if row.name not in excluded])
        return api, self.rng.randint(api.min_version, api.max_version)

    def _single(
        self, kind: str, message: Message, version: int, *, refused: bool = False, client_id: str = CLIENT_ID
    ) -> Attack:
        data = encode_request(message, version, 1, client_id)
        return Attack(kind, message.NAME, data, 1, message.API_KEY, version, refused=refused)


def _several(kind: str, what: str, requests: list[tuple[Message, int]]) -> Attack:
    frames = [encode_request(message, version, number, CLIENT_ID) for number, (message, version) in enumerate(requests)]
    return Attack(kind, what, b"".join(frames), requests=len(frames), waits=what in WAITING)


def _produce(topic: str, batch: bytes, *, partition: int = 0) -> Message:
    data = produce.TopicProduceData(topic, partition_data=[produce.PartitionProduceData(partition, batch)])
    return produce.ProduceRequest(None, 1, 1_000, [data])


def _waits(api: AnyApi) -> bool:
    """Return True if a request may say how long its response may take: the controller may be down for that time."""
    return api.name in WAITING or "timeout_ms" in api.request.__slots__


def _random_name(rng: Random) -> str:
    return f"hostile-{uuid.UUID(int=rng.getrandbits(128))}"


def _frame(api: AnyApi, version: int, body: bytes) -> bytes:
    header: Any = RequestHeader(api.key, version, 1, CLIENT_ID)
    payload = encode(header, request_header_version(api.key, version)) + body
    return SIZE.pack(len(payload)) + payload
