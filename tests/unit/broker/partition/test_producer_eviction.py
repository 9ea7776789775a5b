"""Eviction of idle producers from a partition whose table of producers is full."""

from pathlib import Path

import pytest

from odradek.protocol.errors import ErrorCode, Refusal
from odradek.storage.producers import state as producer_state
from odradek.storage.producers.entry import Origin
from odradek.storage.producers.state import EVICTION_IDLE_MS_MIN
from tests.support.data_rig import NOW_MS, Rig
from tests.support.logs import produced


async def test_wall_clock_ahead_of_the_expiry_time_evicts_no_producer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 1)
    rig = Rig(tmp_path)
    rig.topic("t")
    partition = rig.partition()
    partition.append(produced(1, 0), origin=Origin.CLIENT, now_ms=NOW_MS)
    jumped_ms = NOW_MS + EVICTION_IDLE_MS_MIN
    monkeypatch.setattr(rig.clock, "expiry_ms", lambda: jumped_ms - 1)
    with pytest.raises(Refusal) as caught:
        partition.append(produced(2, 0), origin=Origin.CLIENT, now_ms=jumped_ms)
    assert caught.value.error is ErrorCode.NOT_ENOUGH_REPLICAS
    monkeypatch.setattr(rig.clock, "expiry_ms", lambda: jumped_ms)
    partition.append(produced(2, 0), origin=Origin.CLIENT, now_ms=jumped_ms)
    assert list(partition.log.producers.entries) == [2]
