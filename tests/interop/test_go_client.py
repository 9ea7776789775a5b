"""franz-go, asked for what every other client is asked for; it has no column in docs/clients.md, since users need no Go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.test_clients import (  # noqa: F401  collected here too, with this module's driver
    test_a_second_producer_fences_the_first,
    test_a_transaction_that_takes_too_long_is_aborted,
    test_an_open_transaction_holds_back_committed_readers,
    test_codecs_are_read_by_this_client_and_by_others,
    test_headers_keys_and_nulls,
    test_idempotent_producer,
    test_only_committed_transactions_are_read,
    test_records_come_back_in_order,
    test_timestamps_are_kept,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.drivers.base import Driver

pytestmark = pytest.mark.interop


@pytest.fixture
def driver(drivers: Callable[[str], Driver]) -> Driver:
    return drivers("franz-go")
