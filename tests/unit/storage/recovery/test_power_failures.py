"""Power failures at any time: recovery from the recovery start derives what a recovery of whole segments derives."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from random import Random
from typing import TYPE_CHECKING

import pytest

from odradek.simulation.environment.disk import DiskLatency, SimDisk
from odradek.simulation.environment.loop import SimLoop
from odradek.simulation.environment.medium import Medium
from odradek.storage.log import flushing
from tests.support.effort import effort
from tests.support.logs import NOW_MS, append, batch, open_log
from tests.support.recovery_starts import CONFIG, checkpointed, fill, state, without_entries_of_rolls

if TYPE_CHECKING:
    from odradek.storage.log.log import PartitionLog

ROOT = "/data"
RUNS = effort(150)


class Run:
    """One log on a simulated medium. The seed generates appends, flushes, rolls, kills and the power failure."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.loop = SimLoop(Random(seed))
        self.medium = Medium()
        self.disk = self._disk(self.medium)
        self.disk.make_directory(f"{ROOT}/t-0")
        self.loop.run_until_complete(self.disk.sync_directory(ROOT))
        self.loop.run_until_complete(self.disk.sync_directory("/"))
        self.log = open_log(self.disk, ROOT, CONFIG)
        self.options = checkpointed(self.log)
        self.rounds = 0
        self.flushes: list[asyncio.Task[None]] = []

    def _disk(self, medium: Medium) -> SimDisk:
        return SimDisk(medium, self.loop, self.rng, name="n", latency=DiskLatency(cold_probability=0.0))

    def fill(self) -> None:
        fill(self.log, self.rounds, size=50)
        self.rounds += 1

    def append(self) -> None:
        append(self.log, batch(3), leader_epoch=self.rounds)

    def flush(self) -> None:
        self.loop.run_until_complete(self.log.flush())

    def flush_for_recovery(self) -> None:
        self.loop.run_until_complete(self.log.flush_for_recovery())

    def begin_flush(self) -> None:
        """Begin a flush, and leave it before its end."""
        self.flushes.append(self.loop.create_task(self.log.flush_for_recovery()))
        for _ in range(self.rng.randint(1, 3)):
            self.loop.run_until_complete(asyncio.sleep(self.rng.random() * 0.01))
            self.append()

    def checkpoint(self) -> None:
        self.options = checkpointed(self.log)

    def roll(self) -> None:
        self.log.roll(NOW_MS)

    def kill(self) -> None:
        """Kill the process, and open the log as its checkpoints have it. Then they are written again."""
        self._end()
        self.disk = self._disk(self.medium)
        self.log = open_log(self.disk, ROOT, CONFIG, **self.options)
        self.log.update_high_watermark(self.log.log_end_offset)
        self.checkpoint()

    def lose_power(self) -> None:
        self._end()
        self.medium.lose_power(self.rng)

    def _end(self) -> None:
        """End the process. Its flushes can change nothing more."""
        self.disk.detach()
        if self.flushes:
            self.loop.run_until_complete(asyncio.wait(self.flushes))
            assert all(task.exception() is None or isinstance(task.exception(), OSError) for task in self.flushes)
            self.flushes.clear()

    def opened(self, *, whole: bool) -> PartitionLog:
        """Open a copy of the log; with `whole`, without its recovery start."""
        options = self.options | ({"recovery_start": None} if whole else {})
        return open_log(self._disk(deepcopy(self.medium)), ROOT, CONFIG, **options)


@pytest.mark.parametrize("part", range(3))
def test_power_failure_changes_no_result_of_recovery(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushing, "RECOVERY_START_BYTES_MIN", 1)
    used = 0
    for seed in range(part * RUNS, (part + 1) * RUNS):
        run = Run(seed)
        run.fill()
        for _ in range(run.rng.randint(3, 12)):
            weights = {
                run.fill: 3,
                run.append: 2,
                run.flush: 1,
                run.flush_for_recovery: 3,
                run.begin_flush: 2,
                run.checkpoint: 3,
                run.roll: 1,
                run.kill: 1,
            }
            run.rng.choices(list(weights), list(weights.values()))[0]()
        run.lose_power()
        found, whole = run.opened(whole=False), run.opened(whole=True)
        expected = state(whole)
        assert without_entries_of_rolls(state(found), expected, found) == expected, f"seed {seed}"
        used += found.recovery_start is not None
        run.loop.close()
    assert used > RUNS // 10, "few runs used a recovery start"
