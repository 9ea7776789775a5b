"""Logs of a host from its files, also after a power cut has removed part of them."""

from collections.abc import Iterator
from random import Random

import pytest

from odradek.simulation.environment.disk import DiskLatency, SimDisk
from odradek.simulation.environment.loop import SimLoop
from odradek.simulation.environment.medium import Medium
from tests.sim.watchers.host_logs import ABORTED_ENTRY, HostLogs
from tests.sim.workloads.encode import encode_batch

STATE = "/data/__transaction_state-0"


def name_of(base: int) -> str:
    return f"{STATE}/{base:020}.log"


def batch(offset: int) -> bytes:
    return encode_batch([(None, b"value")], timestamp=1, base_offset=offset)


class Host:
    """Log of a coordinator: batches 0, 1 and 2 in one segment, and two segments that a power cut has emptied."""

    def __init__(self, loop: SimLoop) -> None:
        self.medium = Medium()
        self.violations: list[str] = []
        self.logs = HostLogs(1, self.medium, "/data", lambda _: True, {}, lambda *_: None, self.violations)
        self.disk = SimDisk(self.medium, loop, Random(1), name="n", latency=DiskLatency())
        self.disk.make_directory(STATE)
        for base, content in ((0, batch(0) + batch(1) + batch(2)), (8, b""), (11, b"")):
            self.disk.open(name_of(base), create=True).write(0, content)
        self.logs.reload(self.medium)
        self.disk.watchers.append(self.logs)

    def append(self, base: int, offset: int) -> None:
        file = self.disk.open(name_of(base), create=False)
        file.write(file.size, batch(offset))


@pytest.fixture
def host() -> Iterator[Host]:
    loop = SimLoop(Random(1))
    yield Host(loop)
    loop.close()


def test_log_continues_after_recovery_removed_empty_segments(host: Host) -> None:
    for base in (8, 11):
        host.disk.rename(name_of(base), f"{name_of(base)}.deleted")
    host.append(0, 3)
    assert host.violations == []


def test_log_continues_at_the_base_of_its_last_empty_segment(host: Host) -> None:
    host.disk.remove(name_of(8))
    host.append(11, 11)
    assert host.violations == []


def test_append_below_the_last_segment_is_reported(host: Host) -> None:
    host.append(0, 3)
    assert host.violations == [f"I13 {name_of(0)} of broker 1: offset 3 follows 10"]


def test_removed_log_is_kept_until_it_is_created_again(host: Host) -> None:
    place = ("__transaction_state", 0)
    host.disk.rename(STATE, f"{STATE}.0123-delete")
    assert place not in host.logs.logs
    assert host.logs.last_log(place).model().stable_end == 3
    host.disk.make_directory(STATE)
    host.disk.open(name_of(0), create=True).write(0, batch(0))
    assert host.logs.last_log(place).model().stable_end == 1


@pytest.mark.parametrize(("stable", "is_reported"), [(11, False), (3, False), (12, True)])
def test_aborted_index_entry_with_stable_offset_above_its_marker_is_reported(
    host: Host, stable: int, is_reported: bool
) -> None:
    entry = ABORTED_ENTRY.pack(0, 7, 5, 10, stable)
    host.disk.open(f"{STATE}/{0:020}.txnindex", create=True).write(0, entry)
    assert bool(host.violations) is is_reported
