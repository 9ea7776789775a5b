"""What a campaign has not met it has not tried, and says so."""

from tests.sim.campaign import REACHABILITY_EVENTS_MIN, Campaign
from tests.sim.cells import CELLS, GROUP_EVENTS, report, since, unmet, visits
from tests.sim.result import Result


def result(seed: int, cells: dict[tuple[str, str, str], int]) -> Result:
    return Result(seed, [], "", {}, 0, 0, 0, 0.0, 0, groups=True, cells=cells)


def test_every_event_that_members_bring_about_has_to_be_met() -> None:
    assert len(unmet({})) == len(GROUP_EVENTS) > 15
    met = {cell: 1 for cell in CELLS if cell[:2] != ("classic groups", "HEARTBEAT")}
    assert unmet(met) == ["classic groups: HEARTBEAT"]


def test_a_campaign_adds_up_and_names_what_it_has_not_met() -> None:
    campaign = Campaign()
    every = {cell: 1 for cell in CELLS if cell[1] != "STATIC_LEAVE"}
    for seed in range(REACHABILITY_EVENTS_MIN):
        assert not [name for name in campaign.unreached() if "STATIC_LEAVE" in name]
        campaign.add(result(seed, every))
    assert "consumer groups: STATIC_LEAVE" in campaign.unreached()
    campaign.add(result(0, {("consumer groups", "STATIC_LEAVE", "STABLE"): 1}))
    assert "consumer groups: STATIC_LEAVE" not in campaign.unreached()
    assert campaign.cells["consumer groups", "CURRENT", "STABLE"] == REACHABILITY_EVENTS_MIN


def test_visits_are_counted_from_where_a_run_began() -> None:
    before = {cell: count - 1 for cell, count in visits().items()}
    assert set(since(before)) == set(visits())
    assert set(since(visits())) == set()


def test_the_report_has_a_line_for_each_event() -> None:
    lines = report({("classic groups", "HEARTBEAT", "STABLE"): 7})
    assert [line for line in lines if "STABLE 7" in line] == [
        "    HEARTBEAT              PREPARING 0, COMPLETING 0, STABLE 7"
    ]
    assert any(line.startswith("  classic groups: 1 of ") for line in lines)
