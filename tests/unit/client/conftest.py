"""Fixtures of the client's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.fake_kafka import FakeKafka, virtual_loop

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def kafka() -> Iterator[FakeKafka]:
    """Three scripted brokers on virtual time. The test starts them by `run`."""
    with virtual_loop() as loop:
        yield FakeKafka(loop, 3)
