"""Partitions of a running cluster: offsets to read, and where gaps are excused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Self

import pytest

from odradek.client import EARLIEST
from odradek.pipeline.audit import wire
from odradek.protocol.internal_topics import TRANSACTION_STATE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.client import TopicPartition

POLICIES = {TRANSACTION_STATE: "delete", "compacted": "compact,delete", "plain": "delete"}


class OneBroker:
    """The metadata of a cluster with one partition per topic."""

    def __init__(self, bootstrap: str, settings: object) -> None:
        self.bootstrap = bootstrap

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close nothing."""

    async def fetch_metadata(self, topics: None) -> SimpleNamespace:
        return SimpleNamespace(topics={name: SimpleNamespace(name=name, partitions={0: None}) for name in POLICIES})


async def offsets(cluster: OneBroker, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {key: 0 if time == EARLIEST else 9 for key, time in times.items()}


async def configs(cluster: OneBroker, kind: object, topic: str, *, defaults: bool) -> list[SimpleNamespace]:
    return [SimpleNamespace(name="cleanup.policy", value=POLICIES[topic])]


@pytest.fixture(autouse=True)
def one_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "Cluster", OneBroker)
    monkeypatch.setattr(wire, "offsets_of_partitions", offsets)
    monkeypatch.setattr(wire, "describe_configs", configs)


def test_gaps_are_excused_in_compacted_topics_and_in_transitions() -> None:
    """Topic `__transaction_state` may have been compacted before its policy was changed."""
    listed = wire.RunningCluster("127.0.0.1:9092").partitions()
    assert {each["topic"]: each["compacted_below"] for each in listed} == {
        TRANSACTION_STATE: 9,
        "compacted": 9,
        "plain": 0,
    }


async def test_a_notebook_can_audit_a_running_cluster() -> None:
    """A notebook runs its cells in a thread with an event loop."""
    listed = wire.RunningCluster("127.0.0.1:9092").partitions()
    assert {each["topic"] for each in listed} == set(POLICIES)
