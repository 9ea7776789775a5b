"""Fuzz several targets in processes, print progress, and minimize the inputs that failed."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz.folders import CORPUS, FAILURES, REGRESSIONS, SCRATCH, inputs
from tests.fuzz.minimize import minimized
from tests.fuzz.verdict import slow, verify
from tests.support.jars import ROOT

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Sequence

    from tests.fuzz.target import Target

PARALLEL = 2
"""Targets that run at the same time, one process each."""
SECONDS_MIN = 5
"""Minimum duration of one target, in seconds."""
OVERTIME_S = 180
"""Processor time beyond the duration of a target, in seconds, after which its process is killed.

libFuzzer ends the process after the duration, or HANG_S of `tests.fuzz.engine` after the start of an execution that
hangs. On a loaded machine a process takes longer, but it does not use more processor time.
"""
STALLED_S = 600
"""Seconds without processor time after which the process of a target is killed: it waits for something."""
CHECK_INTERVAL_S = 5
"""Interval between two checks of the processor time of a process, in seconds."""
ROW_INTERVAL_S = 30
"""Interval of progress rows of one target, in seconds."""
HEADING = f"{'target':<22} {'executions':>11} {'per second':>10} {'corpus':>7} {'new paths':>9} {'failures':>8}"
STATUS = re.compile(rb"#(\d+)\s+(\w+)\s+cov: (\d+) ft: (\d+) corp: (\d+)/\S+ .*?exec/s: (\d+)")
HARD_FAILURES = ("timeout-", "oom-", "crash-", "leak-")
"""Names of the inputs that libFuzzer writes when it ends the process."""


@dataclass
class Progress:
    """State of one target, from the output of its process."""

    name: str
    executions: int = 0
    per_second: int = 0
    corpus: int = 0
    corpus_at_start: int | None = None
    exit_code: int | None = None
    output: bytes = b""

    def read(self, line: bytes) -> bool:
        """Take over one line of output. Return True if it is a status."""
        self.output = (self.output + line)[-4_000:]
        match = STATUS.match(line)
        if match is None:
            return False
        self.executions, self.corpus, self.per_second = int(match[1]), int(match[5]), int(match[6])
        if match[2] == b"INITED":
            self.corpus_at_start = self.corpus
        return True

    def row(self) -> str:
        paths = self.corpus - self.corpus_at_start if self.corpus_at_start is not None else 0
        failures = len(found(self.name))
        return (
            f"{self.name:<22} {self.executions:>11,} {self.per_second:>10,} {self.corpus:>7,} {paths:>9,}"
            f" {failures:>8,}"
        )


@dataclass
class ProcessorLimit:
    """Limit of the processor time of one process."""

    limit_s: float
    began_s: float
    _used_s: float = 0.0

    def is_exceeded(self, used_s: float, now_s: float) -> bool:
        """Return True if the process has used more than the limit, or nothing for STALLED_S."""
        if used_s > self._used_s:
            self._used_s, self.began_s = used_s, now_s
        return used_s > self.limit_s or now_s - self.began_s > STALLED_S


def processor_s(pid: int) -> float:
    """Return the processor time of a process that has not been waited for, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime


def found(name: str) -> dict[str, bytes]:
    """Return the failed inputs of a target by file name."""
    return inputs(FAILURES / name)


class Campaign:
    """One run of several targets, which share its duration."""

    def __init__(self, targets: Sequence[Target], seconds: float, seed: int, write: Callable[[str], None]) -> None:
        self._targets = targets
        self._seconds = seconds
        self._seed = seed
        self._write = write

    async def run(self) -> bool:
        """Fuzz all targets. Return True if no input failed."""
        for target in self._targets:
            shutil.rmtree(FAILURES / target.name, ignore_errors=True)
        self._write(HEADING)
        slots = asyncio.Semaphore(PARALLEL)
        share = self._seconds * min(PARALLEL, len(self._targets)) / len(self._targets)
        duration_s = max(SECONDS_MIN, int(share))

        async def run_one(target: Target) -> Progress:
            async with slots:
                return await self._run_target(target, duration_s)

        finished = await asyncio.gather(*map(run_one, self._targets))
        failed = [self._report(target, progress) for target, progress in zip(self._targets, finished, strict=True)]
        return not any(failed)

    async def _run_target(self, target: Target, duration_s: int) -> Progress:
        progress = Progress(target.name)
        scratch = SCRATCH / target.name
        for folder in (scratch, seeds_of(scratch)):
            shutil.rmtree(folder, ignore_errors=True)
        process = await asyncio.create_subprocess_exec(
            *engine_command(target.name, scratch), "--seconds", str(duration_s), "--seed", str(self._seed),
            cwd=ROOT, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(self._follow(process, progress))
                limit = ProcessorLimit(duration_s + OVERTIME_S, time.monotonic())
                while not (await asyncio.wait([following], timeout=CHECK_INTERVAL_S))[0]:
                    if process.returncode is not None:
                        continue  # the rest of its output follows
                    if limit.is_exceeded(processor_s(process.pid), time.monotonic()):
                        process.kill()
                        progress.output += b"\nkilled: the process did not end in time"
                        break
        finally:
            if process.returncode is None:
                process.kill()
            progress.exit_code = await process.wait()
        self._write(progress.row())
        return progress

    async def _follow(self, process: Process, progress: Progress) -> None:
        assert process.stderr is not None
        loop = asyncio.get_running_loop()
        next_row = loop.time() + ROW_INTERVAL_S
        async for line in process.stderr:
            if progress.read(line) and loop.time() >= next_row:
                next_row = loop.time() + ROW_INTERVAL_S
                self._write(progress.row())
        await process.wait()

    def _report(self, target: Target, progress: Progress) -> bool:
        """Print the failures of a target. Return True if there is one."""
        slow_name = slow(target).key
        if slow_name in found(target.name) and verify(target, found(target.name)[slow_name]) is None:
            (FAILURES / target.name / slow_name).unlink()
        failures = found(target.name)
        for name, data in failures.items():
            path = FAILURES / target.name / name
            if name.startswith(HARD_FAILURES):
                self._write(f"\n{target.name}: {name.partition('-')[0]} with {len(data):,} bytes")
            else:
                smallest = minimized(target, data)
                path.write_bytes(smallest)
                finding = verify(target, smallest) or verify(target, data)
                text = finding.text if finding is not None else "not repeated outside of the run"
                place = f" at {finding.place}" if finding is not None else ""
                self._write(f"\n{target.name}: {text[:1_000]}{place}")
            self._write(f"  python -m tests.fuzz --replay {path.relative_to(ROOT)}")
        if progress.exit_code and not failures:
            self._write(f"\n{target.name}: the process ended with {progress.exit_code}")
            self._write(progress.output.decode(errors="replace"))
        return bool(failures or progress.exit_code)


def engine_command(name: str, scratch: Path) -> list[str]:
    """Return the command of the process that fuzzes one target."""
    folders = [folder for folder in (CORPUS / name, REGRESSIONS / name) if folder.is_dir()]
    command = [sys.executable, "-m", "tests.fuzz.engine", name, "--scratch", str(scratch)]
    command += ["--failures", str(FAILURES / name)]
    return [*command, "--corpus", *map(str, folders)] if folders else command


def seeds_of(scratch: Path) -> Path:
    """Return the folder of the inputs that the target generates."""
    return scratch.parent / f"{scratch.name}.seeds"
