"""Changes of groups between samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.client.admin.group_members import GroupMember, GroupMembers
from odradek.console.model import group_history
from odradek.console.model.group_history import NAME_CHARACTERS_MAX, GroupHistory, Sample, changes, sample_of

if TYPE_CHECKING:
    import pytest


def sample(state: str = "Stable", epoch: int | None = 1, owned: dict[int, str] | None = None) -> Sample:
    members = set((owned or {}).values())
    return Sample(
        state, epoch, {each: f"client-{each}" for each in members}, {("t", k): v for k, v in (owned or {}).items()}
    )


def test_state_epoch_members_and_assignment_are_compared() -> None:
    before = sample(owned={0: "a", 1: "a"})
    now = sample("Reconciling", 2, {0: "a", 1: "b"})
    assert list(changes(before, now)) == [
        ("state", "Stable → Reconciling"),
        ("epoch", "epoch 1 → 2"),
        ("members", "client-b joined"),
        ("assignment", "1 assigned anew, 2 assigned in total"),
    ]
    assert list(changes(now, sample("Reconciling", 2, {0: "a"}))) == [
        ("members", "client-b left"),
        ("assignment", "1 without owner, 1 assigned in total"),
    ]
    assert list(changes(now, now)) == []


def test_many_members_are_counted() -> None:
    [(_, text), _] = changes(sample(), sample(owned={number: str(number) for number in range(5)}))
    assert text == "client-0, client-1, client-2 and 2 more joined"


def test_changes_are_kept_newest_first_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_history, "EVENTS_PER_GROUP", 2)
    monkeypatch.setattr(group_history, "GROUPS_MAX", 2)
    history = GroupHistory()
    for epoch in range(5):
        history.observe("g", sample(epoch=epoch), epoch)
    assert [(each.at_ms, each.text) for each in history.changes("g")] == [(4, "epoch 3 → 4"), (3, "epoch 2 → 3")]
    history.observe("h", sample(), 5)
    history.observe("i", sample(), 6)
    assert [history.is_observed(each) for each in "ghi"] == [False, True, True]
    assert history.changes("g") == []


def test_changes_of_all_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_history, "CHANGES_MAX", 3)
    history = GroupHistory()
    for epoch in range(3):
        for group in "gh":
            history.observe(group, sample(epoch=epoch), epoch)
    assert [len(history.changes(group)) for group in "gh"] == [1, 2]
    for epoch in (3, 4):
        history.observe("g", sample(epoch=epoch), epoch)
    assert [[each.at_ms for each in history.changes(group)] for group in "gh"] == [[4, 3, 2], []]
    assert history.is_observed("h")


def test_long_client_ids_are_shortened() -> None:
    member = GroupMember("m", None, "c" * 32_000, "/127.0.0.1", None, {})
    found = sample_of(GroupMembers("g", "classic", "Stable", None, "range", [member]))
    assert found.members == {"m": "c" * NAME_CHARACTERS_MAX + "…"}
