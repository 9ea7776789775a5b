"""All features of test_clients.py with franz-go. It has no column in docs/clients.md, because Go is optional."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.test_clients import (  # noqa: F401  collected here with the driver of this module
    test_compressed_records_are_read_by_all_clients,
    test_headers_keys_and_null_values_are_preserved,
    test_idempotent_producer_writes_each_record_once,
    test_newer_producer_fences_the_older_one,
    test_open_transaction_holds_back_read_committed_consumers,
    test_read_committed_returns_only_committed_transactions,
    test_records_are_consumed_in_order,
    test_timestamps_are_preserved,
    test_transaction_is_aborted_after_its_time_out,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.drivers.base import Driver

pytestmark = pytest.mark.interop


@pytest.fixture
def driver(drivers: Callable[[str], Driver]) -> Driver:
    return drivers("franz-go")
