"""Runs whose disks fail: operations on every kind of file, and full disks. No finding, and the cluster recovers."""

import pytest

from tests.sim.campaign import explain
from tests.sim.options.disk_options import DISK_FULL, DISK_OPERATION
from tests.sim.options.run_options import generate_options
from tests.sim.run import run_seed

pytestmark = pytest.mark.sim

SHORT = (5011, 5032)
"""Seed 5011: a controller has no descriptor to read a metadata snapshot. Seed 5032: a disk fails during a start."""
FULL = [pytest.param(seed, marks=pytest.mark.full) for seed in range(5000, 5040) if seed not in SHORT]


@pytest.mark.parametrize("seed", [*SHORT, *FULL])
def test_failing_disks_lose_nothing(seed: int) -> None:
    options = generate_options(seed, disk_faults=True)
    assert {fault.kind for fault in options.faults} & {DISK_OPERATION, DISK_FULL}
    result = run_seed(seed, options=options)
    assert result.passed, explain(result)
