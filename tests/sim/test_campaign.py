"""Campaigns of the simulator, replayed seeds, and planted bugs.

`make test` runs the short forms, `make test-all` all of them, and `make sim SEEDS=a..b` more seeds.
"""

import os
import subprocess
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.sim.campaign import Campaign, explain, run_campaign, run_generated, run_range
from tests.sim.options.read_options import READ_FILES
from tests.sim.options.run_options import generate_options
from tests.sim.planted.bugs import PLANTED, SEEDS, TABLE, find_again, finding_of, table_row
from tests.sim.planted.planted import Planted
from tests.sim.run import run_seed

ROOT = Path(__file__).resolve().parents[2]
SHORT_SEEDS = [((2, 6), 1), ((1, 4), 3), ((1000,), 5)]
"""Seeds of `make test`: short runs that contain groups, compaction, ACLs, process kills and lost un-synced data."""
SEEDS_ALONE = range(100)
SEEDS_OF_THREE = range(120)
SEEDS_OF_FIVE = range(1000, 1040)
SEEDS_WITH_GROUPS_MIN = 100
SEEDS_WITH_READ_ERRORS = range(20)
SEEDS_WITH_READ_ERRORS_SHORT = (3,)
REPLAYED = [(1, 1), (4, 1), (11, 1), (2, 3), (7, 3), (1000, 5)]
REPLAYED_SHORT = [(1, 1)]
PLANTED_SHORT = (
    "acknowledged before the flush",
    "last stable offset one too high",
    "ListOffsets right after an election",
    "TxnOffsetCommit of a fenced member accepted",
    "marker compacted away before its records",
)
"""Bugs that `make test` finds: one of each kind that a short run finds.

`tests/unit/sim/test_hostile_client.py` finds one that needs a hostile client.
"""

T = TypeVar("T")

pytestmark = pytest.mark.sim


def check_runs(campaign: Campaign) -> None:
    assert not campaign.failed, "\n".join(explain(result) for result in campaign.failed)
    assert not campaign.thin, [
        (result.seed, result.operations, result.transactions, result.faults) for result in campaign.thin
    ]


def check_campaign(campaign: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{campaign.report()}")
    check_runs(campaign)
    assert campaign.unreached() == []


@pytest.mark.parametrize(("seeds", "brokers"), SHORT_SEEDS, ids=str)
def test_short_campaign_has_no_findings(seeds: Sequence[int], brokers: int) -> None:
    campaign = run_campaign(seeds, processes=1, quiet=True, brokers=brokers)
    assert campaign.seeds == len(seeds)
    check_runs(campaign)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_campaign_of_one_broker_has_no_findings_and_reaches_all_events(
    capsys: pytest.CaptureFixture[str],
) -> None:
    check_campaign(run_campaign(SEEDS_ALONE, quiet=True, brokers=1), capsys)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_campaign_of_several_brokers_has_no_findings_and_reaches_all_events(
    capsys: pytest.CaptureFixture[str],
) -> None:
    campaign = run_campaign(SEEDS_OF_THREE, quiet=True, brokers=3)
    for result in run_range(SEEDS_OF_FIVE, brokers=5):
        campaign.add(result)
    check_campaign(campaign, capsys)


def test_campaigns_contain_a_hundred_seeds_with_groups() -> None:
    seeds = [(SEEDS_ALONE, 1), (SEEDS_OF_THREE, 3), (SEEDS_OF_FIVE, 5)]
    have_groups = [
        generate_options(seed, brokers=brokers).groups is not None
        for seed_range, brokers in seeds
        for seed in seed_range
    ]
    assert sum(have_groups) >= SEEDS_WITH_GROUPS_MIN


def except_short(cases: Iterable[T], short: Collection[T]) -> list[Any]:
    """Mark every case as `full` that does not belong to the short form."""
    return [case if case in short else pytest.param(case, marks=pytest.mark.full) for case in cases]


@pytest.mark.parametrize("seed", except_short(SEEDS_WITH_READ_ERRORS, SEEDS_WITH_READ_ERRORS_SHORT))
def test_failed_reads_at_a_start_have_no_findings(seed: int) -> None:
    """Seed 3 found a failed start that marked the logs of a killed process as closed cleanly."""
    result = run_seed(seed, options=generate_options(seed, read_errors=READ_FILES))
    assert not result.findings, explain(result)


@pytest.mark.parametrize("replayed", except_short(REPLAYED, REPLAYED_SHORT), ids=str)
def test_equal_seeds_have_equal_traces(replayed: tuple[int, int]) -> None:
    seed, brokers = replayed
    first, second = run_generated(seed, brokers=brokers), run_generated(seed, brokers=brokers)
    assert (first.digest, first.steps) == (second.digest, second.steps)
    assert first.digest != run_generated(seed + 1000, brokers=brokers).digest


@pytest.mark.parametrize("brokers", except_short([1, 3], [3]))
def test_process_with_another_hash_seed_has_the_same_trace(brokers: int) -> None:
    program = f"from tests.sim.campaign import run_generated; print(run_generated(2, brokers={brokers}).digest)"
    other_process = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other_process.stdout == f"{run_generated(2, brokers=brokers).digest}\n"


def test_short_form_names_existing_planted_bugs() -> None:
    assert {bug.title for bug in PLANTED} > set(PLANTED_SHORT)


@pytest.mark.parametrize(
    "bug",
    except_short(PLANTED, [bug for bug in PLANTED if bug.title in PLANTED_SHORT]),
    ids=lambda bug: bug.title,
)
def test_planted_bug_is_found_with_the_listed_seed_and_finding(
    bug: Planted, capsys: pytest.CaptureFixture[str]
) -> None:
    first_failure = find_again(bug)
    assert first_failure is not None, f"{bug.title}: not found in {len(SEEDS)} seeds"
    seed, result = first_failure
    with capsys.disabled():
        print(f"\nplanted: {bug.title:<42} | found at seed {seed:>3} | {finding_of(bug, result) or '':.90}")
    row = table_row(bug, first_failure)
    assert row in TABLE.read_text().splitlines(), "python -m tests.sim.planted.bugs --write"
