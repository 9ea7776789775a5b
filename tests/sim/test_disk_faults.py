"""Runs whose disks fail: operations on every kind of file, and full disks. No finding, and the cluster recovers."""

from contextlib import suppress

import pytest

from odradek.simulation.environment.disk import DiskFault, SimDisk
from tests.sim.campaign import REACHABLE_BY_DISK_FAULTS, Campaign, explain, run_range
from tests.sim.options.disk_options import DISK_ERRORS, DISK_FULL, DISK_OPERATION
from tests.sim.options.run_options import generate_options
from tests.sim.run import run_seed

pytestmark = pytest.mark.sim

SHORT = (5010, 5032)
"""Seed 5010: the new meta.properties is visible, but not durable. Seed 5032: a disk fails during a start."""
FULL = range(5000, 5040)


@pytest.mark.parametrize("seed", SHORT)
def test_failing_disks_lose_nothing(seed: int) -> None:
    options = generate_options(seed, disk_faults=True)
    assert {fault.kind for fault in options.faults} & {DISK_OPERATION, DISK_FULL}
    result = run_seed(seed, options=options)
    assert result.passed, explain(result)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_campaign_of_failing_disks_has_no_findings_and_reaches_each_kind_of_failure() -> None:
    campaign = Campaign()
    for result in run_range(FULL, disk_faults=True):
        campaign.add(result)
    assert not campaign.failed, "\n".join(explain(result) for result in campaign.failed)
    assert campaign.disk_fault_seeds == len(FULL)
    assert not set(campaign.unreached()) & set(REACHABLE_BY_DISK_FAULTS)


def test_each_disk_error_is_generated() -> None:
    errors = dict.fromkeys(DISK_ERRORS)
    assert len(errors) == len(DISK_ERRORS), "an entry is listed twice"
    for seed in range(5000, 6500):
        for fault in generate_options(seed, disk_faults=True).faults:
            if fault.kind == DISK_OPERATION:
                errors.pop(DISK_ERRORS[fault.number], None)
    assert not errors


@pytest.mark.full
def test_each_disk_error_is_injected(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one run with compaction and metadata snapshots, inject each entry of the table at its first operation.

    The broker does not receive the error, so that the run reaches the operations of all other entries.
    """
    missing = dict.fromkeys(DISK_ERRORS)
    fail = SimDisk.fault

    def inject_missing(disk: SimDisk, operation: str, path: str, *, can_be_repeated: bool = True) -> None:
        faults = [DiskFault(*error) for error in missing]
        state = disk.faults, disk.on_fault, disk.may_fail
        disk.faults, disk.on_fault, disk.may_fail = faults, None, lambda: True
        for fault in list(faults):
            if fault.operation == operation and fault.match in path:
                with suppress(OSError):
                    fail(disk, operation, path, can_be_repeated=can_be_repeated)
                assert fault.injected
                del missing[fault.operation, fault.match, fault.errno]
        disk.faults, disk.on_fault, disk.may_fail = state
        fail(disk, operation, path, can_be_repeated=can_be_repeated)

    monkeypatch.setattr(SimDisk, "fault", inject_missing)
    result = run_seed(39, options=generate_options(39, brokers=3, groups=True))
    assert result.passed, explain(result)
    assert not missing
