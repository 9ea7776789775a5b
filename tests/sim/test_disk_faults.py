"""Runs whose disks fail: operations on every kind of file, and full disks. No finding, and the cluster recovers."""

import pytest

from tests.sim.campaign import explain
from tests.sim.options.disk_options import DISK_FULL, DISK_OPERATION
from tests.sim.options.run_options import generate_options
from tests.sim.run import run_seed

pytestmark = pytest.mark.sim

SHORT = ((5011, 3), (5032, 1))
"""Seed 5011 has no descriptor for a metadata snapshot. In seed 5032, a broker starts on a disk that fails."""
FULL = tuple((seed, brokers) for seed in range(5000, 5020) for brokers in (1, 3))


@pytest.mark.parametrize(
    ("seed", "brokers"), [*SHORT, *(pytest.param(*each, marks=pytest.mark.full) for each in FULL if each not in SHORT)]
)
def test_failing_disks_lose_nothing(seed: int, brokers: int) -> None:
    options = generate_options(seed, brokers=brokers, disk_faults=True)
    assert {fault.kind for fault in options.faults} & {DISK_OPERATION, DISK_FULL}
    result = run_seed(seed, options=options)
    assert result.passed, explain(result)
