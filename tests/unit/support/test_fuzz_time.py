"""The process of a fuzz target is killed for its processor time, not for the time that a loaded machine takes."""

from __future__ import annotations

import os
import time

from tests.fuzz.campaign import STALLED_S, ProcessorLimit, processor_s


def test_slow_process_below_its_processor_time_is_not_killed() -> None:
    limit = ProcessorLimit(limit_s=10, began_s=0)
    for step in range(1, 11):
        assert not limit.is_exceeded(used_s=step, now_s=step * STALLED_S)


def test_process_beyond_its_processor_time_is_killed() -> None:
    assert ProcessorLimit(limit_s=10, began_s=0).is_exceeded(used_s=10.01, now_s=11)


def test_process_that_uses_no_processor_time_is_killed() -> None:
    limit = ProcessorLimit(limit_s=10, began_s=0)
    assert not limit.is_exceeded(used_s=1, now_s=1)
    assert not limit.is_exceeded(used_s=1, now_s=1 + STALLED_S)
    assert limit.is_exceeded(used_s=1, now_s=1.1 + STALLED_S)


def test_processor_time_of_a_process_is_that_of_its_threads() -> None:
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    before_s = time.process_time()
    measured_s = processor_s(os.getpid())
    assert before_s - 2 * tick_s <= measured_s <= time.process_time() + 2 * tick_s
