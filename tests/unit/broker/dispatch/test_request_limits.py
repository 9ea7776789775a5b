"""Limits of the size of a request, by API and by the roles of its listener."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.broker.dispatch.request_limits import OPERATOR_MARKERS_BYTES_MAX, frame_bytes_max
from odradek.broker.dispatch.table import API_TABLE
from odradek.broker.requests.listener import BROKER, CLIENT, CONTROLLER, UNAUTHENTICATED
from odradek.protocol.messages.alter_partition import AlterPartitionRequest
from odradek.protocol.messages.envelope import EnvelopeRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.vote import VoteRequest
from odradek.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from tests.support import broker_context

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIG = broker_context.config()
NOT_SERVED_BYTES_MAX = CONFIG.sasl_server_max_receive_size
UNKNOWN_KEY = 2**15 - 1


@pytest.mark.parametrize(
    ("roles", "api_key", "limit"),
    [
        ((CLIENT,), ProduceRequest.API_KEY, CONFIG.socket_request_max_bytes),
        ((CLIENT,), MetadataRequest.API_KEY, CONFIG.odradek_request_max_bytes),
        ((CLIENT,), WriteTxnMarkersRequest.API_KEY, OPERATOR_MARKERS_BYTES_MAX),
        ((BROKER, CONTROLLER), WriteTxnMarkersRequest.API_KEY, CONFIG.socket_request_max_bytes),
        ((CLIENT, BROKER, CONTROLLER), WriteTxnMarkersRequest.API_KEY, CONFIG.socket_request_max_bytes),
        ((BROKER, CONTROLLER), AlterPartitionRequest.API_KEY, CONFIG.socket_request_max_bytes),
        ((BROKER, CONTROLLER), EnvelopeRequest.API_KEY, CONFIG.socket_request_max_bytes),
        ((BROKER, CONTROLLER), VoteRequest.API_KEY, CONFIG.odradek_request_max_bytes),
        ((CLIENT, UNAUTHENTICATED), ProduceRequest.API_KEY, CONFIG.socket_request_max_bytes),
        ((UNAUTHENTICATED,), ProduceRequest.API_KEY, NOT_SERVED_BYTES_MAX),
        ((BROKER,), AlterPartitionRequest.API_KEY, NOT_SERVED_BYTES_MAX),
        ((CLIENT,), UNKNOWN_KEY, NOT_SERVED_BYTES_MAX),
    ],
)
def test_frame_limit_depends_on_the_api_and_the_listener(roles: Sequence[str], api_key: int, limit: int) -> None:
    assert frame_bytes_max(CONFIG, roles, api_key) == limit


@pytest.mark.parametrize("roles", [(CLIENT,), (CLIENT, UNAUTHENTICATED), (UNAUTHENTICATED,)])
def test_request_of_brokers_on_another_listener_has_the_smallest_limit(roles: Sequence[str]) -> None:
    of_brokers = [api for api in API_TABLE if not {CLIENT, UNAUTHENTICATED} & set(api.listeners)]
    assert {EnvelopeRequest.API_KEY, AlterPartitionRequest.API_KEY} <= {api.key for api in of_brokers}
    for api in of_brokers:
        assert frame_bytes_max(CONFIG, roles, api.key) == NOT_SERVED_BYTES_MAX, api.name
