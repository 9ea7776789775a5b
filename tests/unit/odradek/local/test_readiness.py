"""Blocking waits until a cluster is ready, inside and outside an event loop."""

from __future__ import annotations

import pytest

from odradek.client.admin import readiness as client_readiness
from odradek.local.processes import BrokerFailed
from odradek.local.readiness import await_in_sync, await_serving

NO_BROKER = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def _short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_readiness, "READY_TIMEOUT_S", 0.1)


def test_a_cluster_that_does_not_become_ready_has_failed_to_start() -> None:
    for wait in (await_serving, await_in_sync):
        with pytest.raises(BrokerFailed, match=rf"not in sync within 0 s: cannot connect to a broker at {NO_BROKER}"):
            wait(NO_BROKER, 1)


async def test_a_caller_with_a_running_event_loop_can_wait() -> None:
    with pytest.raises(BrokerFailed, match="not in sync"):
        await_serving(NO_BROKER, 1)
