"""Conversion of Raft messages to Kafka's requests and responses, and back."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.broker.quorum import wire
from odradek.cluster.metadata.image import METADATA_TOPIC_ID
from odradek.cluster.raft import messages as core
from odradek.cluster.raft.batches import encode_records
from odradek.protocol import codec
from odradek.protocol.errors import Malformed
from odradek.protocol.messages import fetch, vote
from tests.support.node_cluster import CLUSTER_ID


@pytest.mark.parametrize("standing", list(core.Standing))
def test_vote_response_carries_the_standing_of_the_voter(standing: core.Standing) -> None:
    reply = core.VoteReply(2, 1, 5, 3, True, False, request_id=7, standing=standing)
    data = codec.encode(wire.vote_response(reply), 2)
    request = core.VoteRequest(1, 2, 5, 0, 0, pre_vote=False, request_id=7)
    assert wire.vote_reply(request, codec.decode(vote.VoteResponse, 2, data)) == reply


FETCH = core.FetchRequest(1, 2, 5, 10, 4, 0, 7)


def fetch_response(*records: bytes) -> fetch.FetchResponse:
    data = fetch.PartitionData(current_leader=fetch.LeaderIdAndEpoch(2, 5), records=b"".join(records))
    return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[data])])


def record_batch(offset: int, epoch: int) -> bytes:
    return encode_records([(None, b"v")], base_offset=offset, epoch=epoch, now_ms=1)


def test_batches_that_continue_the_log_are_accepted() -> None:
    reply = wire.fetch_reply(FETCH, fetch_response(record_batch(10, 4), record_batch(11, 5)))
    assert reply is not None
    assert [(entry.base_offset, entry.epoch) for entry in reply.entries] == [(10, 4), (11, 5)]


@pytest.mark.parametrize(
    "records",
    [
        (record_batch(9, 4),),
        (record_batch(11, 4),),
        (record_batch(10, 3),),
        (record_batch(10, 6),),
        (record_batch(10, 5), record_batch(11, 4)),
        (record_batch(10, 4), record_batch(12, 4)),
        (record_batch(10, 4)[:-1] + b"\xff",),
    ],
)
def test_batches_that_do_not_continue_the_log_are_malformed(records: tuple[bytes, ...]) -> None:
    with pytest.raises(Malformed):
        wire.fetch_reply(FETCH, fetch_response(*records))


def test_fetch_of_another_topic_is_no_metadata_fetch() -> None:
    request = wire.fetch_request(core.FetchRequest(3, 1, 1, 0, 0, 0), CLUSTER_ID, 10)
    assert wire.is_metadata_fetch(request)
    request.topics[0].topic_id = UUID(int=2)
    assert not wire.is_metadata_fetch(request)
