"""Totals of a campaign: events that did not occur are reported."""

from dataclasses import replace

from tests.sim.campaign import (
    REACHABILITY_DISK_FAULTS_MIN,
    REACHABILITY_EVENTS_MIN,
    REACHABILITY_HOSTILE_MIN,
    REACHABILITY_MANY_DISK_FAULTS_MIN,
    REACHABILITY_MANY_TABLES_MIN,
    REACHABILITY_TABLES_MIN,
    REACHABILITY_TENANTS_MIN,
    REACHABLE_BY_DISK_FAULTS,
    REACHABLE_BY_HOSTILE_CLIENTS,
    REACHABLE_BY_MANY_DISK_FAULTS,
    REACHABLE_BY_MANY_TABLES,
    REACHABLE_BY_TABLES,
    REACHABLE_BY_TENANTS,
    Campaign,
)
from tests.sim.result import Result
from tests.sim.transition_coverage import CELLS, GROUP_EVENTS, report, since, unmet, visits


def result(seed: int, cells: dict[tuple[str, str, str], int]) -> Result:
    return Result(seed, [], "", {}, 0, 0, 0, 0.0, 0, groups=True, cells=cells)


def test_unmet_lists_every_group_event_without_visits() -> None:
    assert len(unmet({})) == len(GROUP_EVENTS) > 15
    visited = {cell: 1 for cell in CELLS if cell[:2] != ("classic groups", "HEARTBEAT")}
    assert unmet(visited) == ["classic groups: HEARTBEAT"]


def test_campaign_sums_cells_and_reports_unreached_events() -> None:
    campaign = Campaign()
    all_but_one = {cell: 1 for cell in CELLS if cell[1] != "STATIC_LEAVE"}
    for seed in range(REACHABILITY_EVENTS_MIN):
        assert not [name for name in campaign.unreached() if "STATIC_LEAVE" in name]
        campaign.add(result(seed, all_but_one))
    assert "consumer groups: STATIC_LEAVE" in campaign.unreached()
    campaign.add(result(0, {("consumer groups", "STATIC_LEAVE", "STABLE"): 1}))
    assert "consumer groups: STATIC_LEAVE" not in campaign.unreached()
    assert campaign.cells["consumer groups", "CURRENT", "STABLE"] == REACHABILITY_EVENTS_MIN


def test_rare_compaction_events_are_required_of_long_campaigns_only() -> None:
    campaign = Campaign()
    for seed in range(REACHABILITY_MANY_TABLES_MIN):
        required = set(campaign.unreached()) & {*REACHABLE_BY_TABLES, *REACHABLE_BY_MANY_TABLES}
        assert required == (set(REACHABLE_BY_TABLES) if seed >= REACHABILITY_TABLES_MIN else set())
        campaign.add(replace(result(seed, {}), table=True))
    assert set(REACHABLE_BY_MANY_TABLES) <= set(campaign.unreached())


def test_campaign_requires_each_kind_of_failed_disk_operation() -> None:
    campaign = Campaign()
    for seed in range(REACHABILITY_MANY_DISK_FAULTS_MIN):
        required = set(campaign.unreached()) & {*REACHABLE_BY_DISK_FAULTS, *REACHABLE_BY_MANY_DISK_FAULTS}
        assert required == (set(REACHABLE_BY_DISK_FAULTS) if seed >= REACHABILITY_DISK_FAULTS_MIN else set())
        campaign.add(replace(result(seed, {}), disk_faults=True))
    assert {*REACHABLE_BY_DISK_FAULTS, *REACHABLE_BY_MANY_DISK_FAULTS} <= set(campaign.unreached())
    assert "failed disk operation: sync_directory EMFILE" in campaign.unreached()
    assert "failed disk operation on quorum-state" in campaign.unreached()


def test_campaign_requires_each_kind_of_attack_once_enough_seeds_have_a_hostile_client() -> None:
    campaign = Campaign()
    for seed in range(REACHABILITY_HOSTILE_MIN):
        assert not set(campaign.unreached()) & set(REACHABLE_BY_HOSTILE_CLIENTS)
        campaign.add(replace(result(seed, {}), hostile=True))
    assert set(REACHABLE_BY_HOSTILE_CLIENTS) <= set(campaign.unreached())


def test_campaign_requires_each_event_of_tenants_once_enough_seeds_have_acls() -> None:
    campaign = Campaign()
    for seed in range(REACHABILITY_TENANTS_MIN):
        assert not set(campaign.unreached()) & set(REACHABLE_BY_TENANTS)
        campaign.add(replace(result(seed, {}), security=True))
    assert set(REACHABLE_BY_TENANTS) <= set(campaign.unreached())


def test_since_counts_visits_after_the_start_of_a_run() -> None:
    before = {cell: count - 1 for cell, count in visits().items()}
    assert set(since(before)) == set(visits())
    assert set(since(visits())) == set()


def test_report_has_a_line_for_each_event() -> None:
    lines = report({("classic groups", "HEARTBEAT", "STABLE"): 7})
    assert [line for line in lines if "STABLE 7" in line] == [
        "    HEARTBEAT              PREPARING 0, COMPLETING 0, STABLE 7"
    ]
    assert any(line.startswith("  classic groups: 1 of ") for line in lines)
