"""The begin of a transaction, from a response to DescribeTransactions."""

from __future__ import annotations

import pytest

from odradek.client.admin.transactions import _description
from odradek.protocol.messages.describe_transactions import TransactionState


@pytest.mark.parametrize(
    ("state", "started_ms"),
    [
        ("Ongoing", 7),
        ("PrepareCommit", 7),
        ("PrepareAbort", 7),
        ("CompleteCommit", None),
        ("CompleteAbort", None),
        ("Empty", None),
    ],
)
def test_an_ended_transaction_has_no_begin(state: str, started_ms: int | None) -> None:
    response = TransactionState(transactional_id="id", transaction_state=state, transaction_start_time_ms=7)
    assert _description(response, 1).started_ms == started_ms
