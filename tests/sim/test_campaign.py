"""The campaign of `make test`: a hundred seeds of the whole node under faults, the same answer twice, and six planted bugs that must be found.

`make sim SEEDS=a..b` runs more of the same.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.campaign import explain, run_campaign
from tests.sim.planted import PLANTED, Planted, seeds_to_find
from tests.sim.run import run_seed

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(100)
SEEDS_TO_FIND_MAX = 200

pytestmark = pytest.mark.sim


@pytest.mark.timeout(900)
def test_no_seed_breaks_a_promise_and_everything_rare_is_reached(capsys: pytest.CaptureFixture[str]) -> None:
    campaign = run_campaign(SEEDS, quiet=True, brokers=1)
    with capsys.disabled():
        print(f"\n{campaign.report()}")
    assert not campaign.failed, "\n".join(explain(result) for result in campaign.failed)
    assert not campaign.thin, [
        (result.seed, result.operations, result.transactions, result.faults) for result in campaign.thin
    ]
    assert campaign.unreached() == []


@pytest.mark.parametrize("seed", [1, 4, 11])
def test_equal_seeds_give_equal_traces(seed: int) -> None:
    first, second = run_seed(seed), run_seed(seed)
    assert (first.digest, first.steps) == (second.digest, second.steps)
    assert first.digest != run_seed(seed + 1000).digest


def test_another_process_with_another_hash_seed_gives_the_same_trace() -> None:
    program = "from tests.sim.run import run_seed; print(run_seed(2).digest)"
    digests = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert digests[0] == digests[1] == f"{run_seed(2).digest}\n"


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.title)
def test_a_planted_bug_is_found(bug: Planted, capsys: pytest.CaptureFixture[str]) -> None:
    found = seeds_to_find(bug, seeds_max=SEEDS_TO_FIND_MAX)
    assert found is not None, f"{bug.title}: not found in {SEEDS_TO_FIND_MAX} seeds"
    seeds, result = found
    with capsys.disabled():
        print(f"\nplanted: {bug.title:<42} | found at seed {seeds:>3} | {result.findings[0].splitlines()[0]:.90}")
