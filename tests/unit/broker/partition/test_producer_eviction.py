"""Eviction of idle producers from a partition whose table of producers is full."""

from pathlib import Path

import pytest

from odradek.protocol.errors import ErrorCode, Refusal
from odradek.storage.producers import state as producer_state
from odradek.storage.producers.entry import Origin
from odradek.storage.producers.state import EVICTION_IDLE_MS_MIN
from tests.support.data_rig import NOW_MS, Rig
from tests.support.logs import produced

DAY_MS = 24 * 60 * 60 * 1_000


async def test_idle_time_of_a_producer_follows_no_jump_of_the_wall_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 1)
    rig = Rig(tmp_path)
    rig.topic("t")
    partition = rig.partition()
    partition.append(produced(1, 0), origin=Origin.CLIENT, now_ms=NOW_MS)
    jumped_ms = NOW_MS + 8 * DAY_MS
    rig.clock.now_ms += EVICTION_IDLE_MS_MIN - 1
    with pytest.raises(Refusal) as caught:
        partition.append(produced(2, 0), origin=Origin.CLIENT, now_ms=jumped_ms)
    assert caught.value.error is ErrorCode.NOT_ENOUGH_REPLICAS
    rig.clock.now_ms += 1
    partition.append(produced(2, 0), origin=Origin.CLIENT, now_ms=jumped_ms)
    rig.clock.now_ms += EVICTION_IDLE_MS_MIN
    partition.append(produced(3, 0), origin=Origin.CLIENT, now_ms=NOW_MS)
    assert list(partition.log.producers.entries) == [3], "the wall clock was set back, and producer 2 is idle"
