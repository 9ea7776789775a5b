"""Repeat calls of confluent-kafka's transactional producer that fail with retriable errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST_SECONDS_MAX = 30.0
"""Maximum seconds for one call of the client: init, flush, commit or abort."""
ATTEMPTS_MAX = 10
"""Maximum attempts of one call of the client that fails with retriable errors."""


def retry(call: Callable[[float], None]) -> None:
    """Repeat `call` after retriable errors, which include time-outs. Raise KafkaException after `ATTEMPTS_MAX`.

    After a retriable error, the outcome is unknown. The repetition of init, commit or abort is safe.
    """
    for attempt in range(ATTEMPTS_MAX):
        try:
            call(REQUEST_SECONDS_MAX)
        except KafkaException as error:
            if not error.args[0].retriable() or attempt == ATTEMPTS_MAX - 1:
                raise
        else:
            return
