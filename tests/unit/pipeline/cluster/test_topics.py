"""Administrative clients of the pipeline."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from odradek.pipeline.cluster import topics
from odradek.pipeline.cluster.access import Access

if TYPE_CHECKING:
    import pytest

ACCESS = Access("127.0.0.1:1")
INFO_LEVEL = 6
"""Level at which librdkafka reports that it drops an event of a closed AdminClient."""


class Admin:
    """Fake AdminClient that keeps its configuration and completes all requests."""

    configurations: list[dict[str, Any]]

    def __init__(self, configuration: dict[str, Any]) -> None:
        self.configurations.append(configuration)

    def complete(self, requested: list[Any], operation_timeout: float) -> dict[Any, Future[None]]:
        assert operation_timeout > 0
        done: Future[None] = Future()
        done.set_result(None)
        return dict.fromkeys(requested, done)

    create_topics = create_partitions = delete_topics = complete


def test_admin_clients_do_not_print_when_they_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Admin, "configurations", [], raising=False)
    monkeypatch.setattr(topics, "AdminClient", Admin)
    topics.create_topics(ACCESS, {"a": 1})
    topics.add_partitions(ACCESS, {"a": 2})
    topics.delete_topics(ACCESS, ["a"])
    assert [each["bootstrap.servers"] for each in Admin.configurations] == [ACCESS.bootstrap] * 3
    assert all(each["log_level"] < INFO_LEVEL for each in Admin.configurations)
