"""The campaign of `make test`: a hundred seeds of one broker and more of clusters under faults, a hundred of them all with groups, the same answer twice, and planted bugs that must be found.

`make sim SEEDS=a..b` runs more of the same.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.campaign import Campaign, explain, run_campaign, run_drawn, run_range
from tests.sim.options import draw
from tests.sim.planted import PLANTED, SEEDS, Planted, find_again

ROOT = Path(__file__).resolve().parents[2]
SEEDS_ALONE = range(100)
SEEDS_OF_THREE = range(120)
SEEDS_OF_FIVE = range(1000, 1040)
SEEDS_WITH_GROUPS_MIN = 100

pytestmark = pytest.mark.sim


def judge(campaign: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{campaign.report()}")
    assert not campaign.failed, "\n".join(explain(result) for result in campaign.failed)
    assert not campaign.thin, [
        (result.seed, result.operations, result.transactions, result.faults) for result in campaign.thin
    ]
    assert campaign.unreached() == []


@pytest.mark.timeout(900)
def test_no_seed_of_one_broker_breaks_a_promise_and_everything_rare_is_reached(
    capsys: pytest.CaptureFixture[str],
) -> None:
    judge(run_campaign(SEEDS_ALONE, quiet=True, brokers=1), capsys)


@pytest.mark.timeout(900)
def test_no_seed_of_several_brokers_breaks_a_promise_and_everything_rare_is_reached(
    capsys: pytest.CaptureFixture[str],
) -> None:
    campaign = run_campaign(SEEDS_OF_THREE, quiet=True, brokers=3)
    for result in run_range(SEEDS_OF_FIVE, brokers=5):
        campaign.add(result)
    judge(campaign, capsys)


def test_a_hundred_seeds_of_these_have_groups() -> None:
    seeds = [(SEEDS_ALONE, 1), (SEEDS_OF_THREE, 3), (SEEDS_OF_FIVE, 5)]
    drawn = [draw(seed, brokers=brokers).groups is not None for these, brokers in seeds for seed in these]
    assert sum(drawn) >= SEEDS_WITH_GROUPS_MIN


@pytest.mark.parametrize(("seed", "brokers"), [(1, 1), (4, 1), (11, 1), (2, 3), (7, 3), (1000, 5)])
def test_equal_seeds_give_equal_traces(seed: int, brokers: int) -> None:
    first, second = run_drawn(seed, brokers=brokers), run_drawn(seed, brokers=brokers)
    assert (first.digest, first.steps) == (second.digest, second.steps)
    assert first.digest != run_drawn(seed + 1000, brokers=brokers).digest


@pytest.mark.parametrize("brokers", [1, 3])
def test_another_process_with_another_hash_seed_gives_the_same_trace(brokers: int) -> None:
    program = f"from tests.sim.campaign import run_drawn; print(run_drawn(2, brokers={brokers}).digest)"
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
    assert digests[0] == digests[1] == f"{run_drawn(2, brokers=brokers).digest}\n"


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.title)
def test_a_planted_bug_is_found(bug: Planted, capsys: pytest.CaptureFixture[str]) -> None:
    found = find_again(bug)
    assert found is not None, f"{bug.title}: not found in {len(SEEDS)} seeds"
    seed, result = found
    with capsys.disabled():
        print(f"\nplanted: {bug.title:<42} | found at seed {seed:>3} | {result.findings[0].splitlines()[0]:.90}")
