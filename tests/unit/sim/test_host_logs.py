"""What the files of a host say, also where a crash has left less than was written."""

from collections.abc import Iterator
from random import Random

import pytest

from tests.sim.environment.disk import DiskLatency, SimDisk
from tests.sim.environment.loop import SimLoop
from tests.sim.environment.medium import Medium
from tests.sim.watchers.host_logs import ABORTED_ENTRY, HostLogs
from tests.sim.workloads.encode import encode_batch

STATE = "/data/__transaction_state-0"


def name_of(base: int) -> str:
    return f"{STATE}/{base:020}.log"


def batch(offset: int) -> bytes:
    return encode_batch([(None, b"value")], timestamp=1, base_offset=offset)


class Host:
    """The log of a coordinator: batches at 0, 1 and 2 in a segment, and two segments that a power cut has emptied."""

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


def test_a_log_goes_on_behind_what_is_left_when_recovery_has_removed_segments_that_were_emptied(host: Host) -> None:
    for base in (8, 11):
        host.disk.rename(name_of(base), f"{name_of(base)}.deleted")
    host.append(0, 3)
    assert host.violations == []


def test_a_log_goes_on_where_its_last_segment_begins_although_one_before_it_has_gone_empty(host: Host) -> None:
    host.disk.remove(name_of(8))
    host.append(11, 11)
    assert host.violations == []


def test_offsets_that_go_back_while_the_later_segments_are_still_there_are_seen(host: Host) -> None:
    host.append(0, 3)
    assert host.violations == [f"I13 {name_of(0)} of broker 1: offset 3 follows 10"]


def test_what_a_replica_was_when_it_was_removed_is_remembered_until_it_is_made_anew(host: Host) -> None:
    place = ("__transaction_state", 0)
    host.disk.rename(STATE, f"{STATE}.0123-delete")
    assert place not in host.logs.logs
    assert host.logs.last_log(place).model().stable_end == 3
    host.disk.make_directory(STATE)
    host.disk.open(name_of(0), create=True).write(0, batch(0))
    assert host.logs.last_log(place).model().stable_end == 1


@pytest.mark.parametrize(("stable", "found"), [(11, False), (3, False), (12, True)])
def test_an_aborted_transaction_after_which_more_is_said_to_be_stable_than_its_marker_is_seen(
    host: Host, stable: int, found: bool
) -> None:
    entry = ABORTED_ENTRY.pack(0, 7, 5, 10, stable)
    host.disk.open(f"{STATE}/{0:020}.txnindex", create=True).write(0, entry)
    assert bool(host.violations) is found
