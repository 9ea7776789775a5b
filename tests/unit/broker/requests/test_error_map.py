"""Replacement of error codes that a request version or its clients do not know."""

import pytest

from odradek.broker.requests.error_map import wire_error
from odradek.protocol.errors import ErrorCode as E

PRODUCE, FETCH, LIST_OFFSETS, INIT, ADD, END = 0, 1, 2, 22, 24, 26


@pytest.mark.parametrize(
    ("api", "last_version", "error", "sent"),
    [
        (INIT, 3, E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        (ADD, 1, E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        (END, 1, E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        (PRODUCE, 10, E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE),
        (PRODUCE, 11, E.CONCURRENT_TRANSACTIONS, E.NOT_ENOUGH_REPLICAS),
        (FETCH, 5, E.KAFKA_STORAGE_ERROR, E.NOT_LEADER_OR_FOLLOWER),
        (LIST_OFFSETS, 4, E.OFFSET_NOT_AVAILABLE, E.LEADER_NOT_AVAILABLE),
    ],
)
def test_error_unknown_to_an_old_version_is_replaced(api: int, last_version: int, error: E, sent: E) -> None:
    assert wire_error(api, last_version, error) is sent
    assert wire_error(api, last_version + 1, error) is error


@pytest.mark.parametrize("version", [3, 13])
def test_produce_replaces_errors_that_are_fatal_for_producers(version: int) -> None:
    assert wire_error(PRODUCE, version, E.PRODUCER_FENCED) is E.INVALID_PRODUCER_EPOCH
    assert wire_error(PRODUCE, version, E.COORDINATOR_LOAD_IN_PROGRESS) is E.NOT_ENOUGH_REPLICAS


def test_other_errors_are_unchanged() -> None:
    assert wire_error(FETCH, 4, E.OFFSET_OUT_OF_RANGE) is E.OFFSET_OUT_OF_RANGE
    assert wire_error(PRODUCE, 3, E.INVALID_PRODUCER_EPOCH) is E.INVALID_PRODUCER_EPOCH
