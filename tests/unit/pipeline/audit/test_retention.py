"""Retention of the transitions of a cluster that will be audited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from odradek.pipeline.audit import keep_transitions, retention
from odradek.pipeline.cluster.access import Access
from odradek.protocol.internal_topics import TRANSACTION_STATE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from odradek.client import ConfigChange


class OneCluster:
    """A cluster that has each coordinator."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close nothing."""

    async def coordinator(self, kind: object, key: str) -> int:
        return 1


async def test_a_notebook_can_keep_the_transitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook runs its cells in a thread with an event loop."""
    altered: dict[str, dict[str, str | None]] = {}

    async def alter(cluster: OneCluster, kind: object, name: str, changes: Sequence[ConfigChange]) -> None:
        altered[name] = {change.name: change.value for change in changes}

    monkeypatch.setattr(retention, "alter_configs", alter)
    monkeypatch.setattr(Access, "cluster", lambda _: OneCluster())
    keep_transitions(Access("127.0.0.1:9092"))
    assert altered == {TRANSACTION_STATE: {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}}
