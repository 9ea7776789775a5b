"""Deadlines of a connection: for the rest of a request, and for an idle client."""

from odradek.broker.network.deadlines import Deadlines
from tests.support.broker_context import config

NOW_S = 100.0


def deadlines(*assignments: str) -> Deadlines:
    settings = ("odradek.frame.deadline.ms=2000", "connections.max.idle.ms=5000", *assignments)
    return Deadlines(config(*settings), NOW_S)


def test_without_request_and_idle_client_the_next_check_is_a_frame_deadline_away() -> None:
    assert deadlines().remaining_s(NOW_S + 50, awaits_frame=False, is_idle=False) == 2


def test_frame_deadline_passes_two_seconds_after_the_client_could_send_the_rest() -> None:
    connection = deadlines()
    connection.frame_s = NOW_S + 1

    assert connection.remaining_s(NOW_S + 2.5, awaits_frame=True, is_idle=False) == 0.5
    assert connection.remaining_s(NOW_S + 3, awaits_frame=True, is_idle=False) == 0


def test_idle_deadline_passes_five_seconds_after_the_last_bytes() -> None:
    connection = deadlines()
    connection.active_s = NOW_S + 10

    assert connection.remaining_s(NOW_S + 14, awaits_frame=False, is_idle=True) == 1
    assert connection.remaining_s(NOW_S + 15, awaits_frame=False, is_idle=True) == 0


def test_negative_connections_max_idle_ms_disables_the_idle_deadline() -> None:
    connection = deadlines("connections.max.idle.ms=-1")

    assert connection.remaining_s(NOW_S + 1_000_000, awaits_frame=False, is_idle=True) == 2


def test_client_that_does_not_receive_its_responses_has_five_seconds_while_the_budget_is_exhausted() -> None:
    connection = deadlines("odradek.frame.deadline.ms=30000")
    connection.active_s = NOW_S + 10

    def remaining_s(*, is_exhausted: bool) -> float:
        return connection.remaining_s(
            NOW_S + 14, awaits_frame=False, is_idle=False, has_unsent=True, is_exhausted=is_exhausted
        )

    assert remaining_s(is_exhausted=True) == 1
    assert remaining_s(is_exhausted=False) == 5
