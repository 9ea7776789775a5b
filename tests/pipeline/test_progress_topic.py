"""Requests of the progress topic while leaders move."""

from __future__ import annotations

from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from pipeline.flights import progress_topic
from pipeline.flights.progress_topic import watermarks

TOPIC = "progress"


class MovingLeader:
    """A consumer whose first requests fail with `errors`."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.refreshed: list[str] = []

    def get_watermark_offsets(self, *_: object, timeout: float) -> tuple[int, int]:
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        return 3, 9

    def list_topics(self, topic: str, timeout: float) -> None:
        self.refreshed.append(topic)


def test_watermarks_come_from_the_new_leader() -> None:
    consumer = MovingLeader(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
    assert watermarks(cast("Consumer", consumer), TOPIC) == (3, 9)
    assert consumer.refreshed == [TOPIC, TOPIC]


@pytest.mark.parametrize("response_seconds_max", [30.0, -1.0])
def test_other_errors_and_late_leaders_are_reported(
    monkeypatch: pytest.MonkeyPatch, response_seconds_max: float
) -> None:
    monkeypatch.setattr(progress_topic, "RESPONSE_SECONDS_MAX", response_seconds_max)
    error = KafkaError.TOPIC_AUTHORIZATION_FAILED if response_seconds_max > 0 else KafkaError.NOT_LEADER_FOR_PARTITION
    with pytest.raises(KafkaException):
        watermarks(cast("Consumer", MovingLeader(error)), TOPIC)
