"""Open transactions that the final evaluation of a chaos run waits for."""

from odradek.client import PartialResult, TransactionListing
from tests.chaos.open_transactions import describe


def test_open_transaction_without_records_delays_the_evaluation() -> None:
    listed = PartialResult([TransactionListing("tx-feed-1", "Ongoing", 7, 2, 3)], {})
    assert describe(listed) == ["transaction of tx-feed-1 is in state Ongoing"]


def test_broker_that_does_not_list_its_transactions_delays_the_evaluation() -> None:
    assert describe(PartialResult([], {2: "connection refused"})) == [
        "broker 2 did not list its transactions: connection refused"
    ]


def test_listing_of_all_brokers_without_open_transactions_ends_the_wait() -> None:
    assert describe(PartialResult([], {})) == []
