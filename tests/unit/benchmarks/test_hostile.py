"""Versions in which the benchmark of huge requests sends each API."""

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.hostile import served
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.produce import ProduceRequest


@pytest.mark.parametrize(("lowest", "versions"), [(False, [13, 18]), (True, [3, 4])])
async def test_announced_version_without_a_schema_is_not_sent(*, lowest: bool, versions: list[int]) -> None:
    """A broker announces Produce from version 0 on. Versions 0 to 2 do not exist any more."""
    rows = [SimpleNamespace(api_key=0, min_version=0, max_version=13)]
    rows.append(SimpleNamespace(api_key=1, min_version=4, max_version=18))

    async def call(*_: Any) -> Any:
        return SimpleNamespace(api_keys=rows)

    async def connect(_client_id: str) -> Any:
        return SimpleNamespace(call=call, close=lambda: None)

    broker: Any = SimpleNamespace(connect=connect)
    assert await served(broker, lowest=lowest) == list(zip((ProduceRequest, FetchRequest), versions, strict=True))
