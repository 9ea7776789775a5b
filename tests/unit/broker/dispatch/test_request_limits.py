"""Limits of the size of a request, by API and by the roles of its listener."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.broker.dispatch.request_limits import OPERATOR_MARKERS_BYTES_MAX, frame_bytes_max
from odradek.broker.requests.listener import BROKER, CLIENT, CONTROLLER
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from tests.support import broker_context

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIG = broker_context.config()


@pytest.mark.parametrize(
    ("roles", "api_key", "limit"),
    [
        ((CLIENT,), ProduceRequest.API_KEY, CONFIG.socket_request_max_bytes),
        ((CLIENT,), MetadataRequest.API_KEY, CONFIG.odradek_request_max_bytes),
        ((CLIENT,), WriteTxnMarkersRequest.API_KEY, OPERATOR_MARKERS_BYTES_MAX),
        ((BROKER, CONTROLLER), WriteTxnMarkersRequest.API_KEY, CONFIG.socket_request_max_bytes),
        ((CLIENT, BROKER, CONTROLLER), WriteTxnMarkersRequest.API_KEY, CONFIG.socket_request_max_bytes),
    ],
)
def test_frame_limit_depends_on_the_api_and_the_listener(roles: Sequence[str], api_key: int, limit: int) -> None:
    assert frame_bytes_max(CONFIG, roles, api_key) == limit
