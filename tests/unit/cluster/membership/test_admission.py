"""Admission of datagrams: numbers, verified processes, and addresses."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from odradek.cluster.membership.admission import (
    ADDRESSES_MAX,
    ENDED_MAX,
    SENT_MAX,
    WINDOW,
    Admission,
    Admitted,
)
from odradek.cluster.membership.members import MemberSpec
from odradek.cluster.membership.messages import UNKNOWN_INCARNATION, Ack, Datagram, Message, Ping, PingRequest, Rejected

if TYPE_CHECKING:
    from collections.abc import Iterable

ME, OTHER, THIRD, UNKNOWN = 1, 2, 3, 9
RUN, NEXT_RUN, LATER_RUN = 22, 23, 24
"""Incarnations of OTHER."""
PAUSE_MS: Final = 150
HOME, ELSEWHERE, FAR = ("10.0.0.2", 9091), ("10.9.0.2", 9091), ("10.9.9.9", 1)
FIRST = 2**62
ACCEPTED = Admitted(None)
ONLY_ACKNOWLEDGED = Admitted(None, True, True)
REPLAYED = Admitted(Rejected.REPLAYED)


class Receiver:
    """Admission of node ME. OTHER is registered at HOME with incarnation RUN."""

    def __init__(self, *, verifies_addresses: bool = True, registered: int = RUN) -> None:
        self.admission = Admission(ME, Random(4), challenge_pause_ms=PAUSE_MS, verifies_addresses=verifies_addresses)
        self.register(registered)
        self.now_ms = 1_000
        self.sequence = 2**63 + 5

    def register(self, incarnation: int) -> None:
        self.admission.set_members([MemberSpec(ME, 5, 11), MemberSpec(OTHER, 6, incarnation), MemberSpec(THIRD, 7, 33)])

    def receive(self, message: Message, number: int, source: tuple[str, int] = HOME) -> Admitted:
        datagram = Datagram(0, number, message)
        return self.admission.admit(datagram, source, self.now_ms, from_registered=source == HOME)

    def ping(self, number: int, source: tuple[str, int] = HOME, *, run: int = RUN, node_id: int = OTHER) -> Admitted:
        return self.receive(Ping(node_id, ME, run, 0, 7), number, source)

    def exchange(
        self, number: int, source: tuple[str, int] = HOME, *, run: int = RUN, sent_to: tuple[str, int] | None = None
    ) -> Admitted:
        """Send a ping to OTHER, and receive its acknowledgment."""
        self.sequence += 1
        self.admission.sent(Ping(ME, OTHER, 11, 0, self.sequence), sent_to or source)
        return self.receive(ack(self.sequence, run), number, source)


def ack(sequence: int, run: int = RUN) -> Ack:
    return Ack(OTHER, ME, run, 0, sequence, OTHER, run, 0)


def verified(number: int = FIRST, *, verifies_addresses: bool = True) -> Receiver:
    receiver = Receiver(verifies_addresses=verifies_addresses)
    assert receiver.exchange(number) == ACCEPTED
    return receiver


def outcomes(numbers: Iterable[int]) -> list[bool]:
    receiver = verified()
    results = [receiver.ping(FIRST + number) for number in numbers]
    assert all(result in {ACCEPTED, REPLAYED} for result in results)
    return [result == ACCEPTED for result in results]


@pytest.mark.parametrize(
    ("numbers", "accepted"),
    [
        ([1, 2, 3], [True, True, True]),
        ([1, 1], [True, False]),
        ([0], [False]),
        ([-1], [False]),
        ([3, 1, 2, 1, 2, 3], [True, True, True, False, False, False]),
        ([WINDOW, 1, 1], [True, True, False]),
        ([WINDOW + 1, 1, 2], [True, False, True]),
        ([10 * WINDOW, 9 * WINDOW, 9 * WINDOW + 1], [True, False, True]),
        ([2**61, 5, 2**61, 2**61 - 1], [True, False, False, True]),
    ],
    ids=["increasing", "twice", "verifying number", "before it", "reordered", "edge", "beyond", "far", "jump"],
)
def test_each_number_is_accepted_once_within_the_window(numbers: list[int], accepted: list[bool]) -> None:
    assert outcomes(numbers) == accepted


def test_window_agrees_with_a_set_of_received_numbers() -> None:
    rng = Random(8)
    numbers = [max(1, step * 40 + rng.randrange(-2 * WINDOW, 2 * WINDOW)) for step in range(400)]
    received: set[int] = set()
    expected = []
    for number in numbers:
        highest = max(received, default=0)
        expected.append(number not in received and number > highest - WINDOW)
        received.add(number)
    assert outcomes(numbers) == expected


def test_ping_of_an_unverified_process_is_acknowledged_only_and_challenged_once_per_pause() -> None:
    receiver = Receiver()
    assert receiver.ping(FIRST) == ONLY_ACKNOWLEDGED
    assert receiver.ping(FIRST + 1) == Admitted(None, True)
    receiver.now_ms += PAUSE_MS
    assert receiver.ping(FIRST + 2) == ONLY_ACKNOWLEDGED


@pytest.mark.parametrize("message", [ack(1), PingRequest(OTHER, ME, RUN, 0, 7, THIRD)])
def test_other_messages_of_an_unverified_process_are_dropped(message: Message) -> None:
    assert Receiver().receive(message, FIRST) == Admitted(Rejected.UNVERIFIED, challenge=True)


def test_acknowledgment_of_a_ping_to_another_node_verifies_nothing() -> None:
    receiver = Receiver()
    receiver.admission.sent(Ping(ME, THIRD, 11, 0, 70), HOME)
    assert receiver.receive(ack(70), FIRST).rejected is Rejected.UNVERIFIED


def test_acknowledgment_of_a_ping_request_verifies_the_node_that_received_it() -> None:
    receiver = Receiver()
    receiver.admission.sent(PingRequest(ME, OTHER, 11, 0, 70, THIRD), HOME)
    assert receiver.receive(Ack(OTHER, ME, RUN, 0, 70, THIRD, 33, 0), FIRST) == ACCEPTED
    assert receiver.ping(FIRST + 1) == ACCEPTED


def test_next_process_is_verified_and_the_ended_one_is_dropped() -> None:
    receiver = verified()
    assert receiver.ping(4, run=NEXT_RUN) == ONLY_ACKNOWLEDGED
    assert receiver.ping(FIRST + 1) == ACCEPTED
    assert receiver.exchange(5, run=NEXT_RUN) == ACCEPTED
    receiver.register(NEXT_RUN)
    assert receiver.ping(6, run=NEXT_RUN) == ACCEPTED
    assert receiver.ping(FIRST + 2) == Admitted(Rejected.EARLIER)
    assert receiver.ping(6, run=NEXT_RUN) == REPLAYED


def test_recording_of_an_ended_process_has_no_effect_after_a_restart_of_the_receiver() -> None:
    receiver = Receiver(registered=NEXT_RUN)
    assert receiver.ping(FIRST, run=RUN).acknowledge_only
    assert receiver.receive(ack(3, RUN), FIRST + 1).rejected is Rejected.UNVERIFIED
    assert receiver.exchange(50, run=NEXT_RUN) == ACCEPTED
    assert receiver.ping(51, run=NEXT_RUN) == ACCEPTED


def test_registered_process_is_never_counted_as_ended() -> None:
    receiver = verified()
    assert receiver.exchange(5, run=NEXT_RUN) == ACCEPTED
    assert receiver.exchange(FIRST + 9) == ACCEPTED
    assert receiver.ping(FIRST + 10) == ACCEPTED


def test_ended_processes_are_bounded() -> None:
    receiver = Receiver(registered=UNKNOWN_INCARNATION)
    runs = range(100, 102 + ENDED_MAX)
    for run in runs:
        assert receiver.exchange(1, run=run) == ACCEPTED
    assert receiver.ping(2, run=runs[1]) == Admitted(Rejected.EARLIER)
    assert receiver.ping(2, run=runs[0]).acknowledge_only


def test_datagram_from_another_address_is_dropped_and_the_address_is_challenged() -> None:
    receiver = verified()
    assert receiver.ping(FIRST + 1, ELSEWHERE) == Admitted(Rejected.ADDRESS, challenge=True)
    assert receiver.ping(FIRST + 2, ELSEWHERE) == Admitted(Rejected.ADDRESS)
    assert receiver.ping(FIRST + 3) == ACCEPTED


def test_address_is_accepted_when_it_acknowledges_a_ping() -> None:
    receiver = verified()
    assert receiver.exchange(FIRST + 1, ELSEWHERE) == ACCEPTED
    assert receiver.ping(FIRST + 2, ELSEWHERE) == ACCEPTED
    assert receiver.ping(FIRST + 2, ELSEWHERE) == REPLAYED
    assert receiver.ping(FIRST + 3) == ACCEPTED
    assert receiver.ping(FIRST + 4, FAR).rejected is Rejected.ADDRESS


def test_acknowledgment_from_another_address_than_that_of_the_ping_is_dropped() -> None:
    receiver = verified()
    assert receiver.exchange(FIRST + 1, ELSEWHERE, sent_to=HOME).rejected is Rejected.ADDRESS


def test_recorded_acknowledgment_does_not_verify_an_address() -> None:
    receiver = verified()
    assert receiver.ping(FIRST + 1) == ACCEPTED
    assert receiver.exchange(FIRST + 1, ELSEWHERE) == REPLAYED
    assert receiver.ping(FIRST + 2, ELSEWHERE).rejected is Rejected.ADDRESS


def test_registered_process_is_verified_at_another_address() -> None:
    receiver = Receiver()
    assert receiver.ping(FIRST, ELSEWHERE) == Admitted(Rejected.ADDRESS, challenge=True)
    assert receiver.exchange(FIRST + 1, ELSEWHERE) == ACCEPTED
    assert receiver.ping(FIRST + 2, ELSEWHERE) == ACCEPTED


def test_process_with_a_duplicate_node_id_at_another_address_does_not_replace_the_registered_one() -> None:
    receiver = verified()
    assert receiver.exchange(9, ELSEWHERE, run=LATER_RUN) == Admitted(Rejected.ADDRESS)
    assert receiver.ping(FIRST + 1) == ACCEPTED


def test_without_a_secret_other_addresses_are_dropped_without_a_challenge() -> None:
    receiver = verified(verifies_addresses=False)
    assert receiver.ping(FIRST + 1, ELSEWHERE) == Admitted(Rejected.ADDRESS)
    assert receiver.exchange(FIRST + 2, ELSEWHERE) == Admitted(Rejected.ADDRESS)
    assert receiver.ping(FIRST + 3, ELSEWHERE) == Admitted(Rejected.ADDRESS)


def test_addresses_of_a_node_are_bounded() -> None:
    receiver = verified()
    addresses = [("10.1.0.1", port) for port in range(ADDRESSES_MAX + 1)]
    for number, address in enumerate(addresses, FIRST + 1):
        assert receiver.exchange(number, address) == ACCEPTED
    assert receiver.ping(FIRST + 50, addresses[0]).rejected is Rejected.ADDRESS
    assert receiver.ping(FIRST + 50, addresses[1]) == ACCEPTED


def test_unanswered_pings_are_bounded() -> None:
    receiver = Receiver()
    for sequence in range(SENT_MAX + 1):
        receiver.admission.sent(Ping(ME, OTHER, 11, 0, sequence), HOME)
    assert receiver.receive(ack(0), FIRST).rejected is Rejected.UNVERIFIED
    assert receiver.receive(ack(1), FIRST) == ACCEPTED


@pytest.mark.parametrize(
    "message", [Ping(OTHER, THIRD, RUN, 0, 7), Ping(ME, ME, 11, 0, 7)], ids=["for another node", "from itself"]
)
def test_datagram_for_another_node_or_from_itself_is_dropped(message: Message) -> None:
    assert verified().receive(message, FIRST + 1) == Admitted(Rejected.MISDIRECTED)


def test_ping_of_an_unknown_node_is_acknowledged_only() -> None:
    receiver = Receiver()
    assert receiver.ping(FIRST, FAR, node_id=UNKNOWN) == Admitted(None, True)
    request = PingRequest(UNKNOWN, ME, RUN, 0, 7, OTHER)
    assert receiver.receive(request, FIRST, FAR) == Admitted(Rejected.UNVERIFIED)
    assert receiver.admission._senders == {}


def test_node_that_is_no_member_any_more_is_forgotten() -> None:
    receiver = verified()
    receiver.admission.set_members([MemberSpec(ME, 5, 11)])
    assert receiver.admission._senders == {}


def test_numbers_of_two_processes_begin_at_random() -> None:
    first, second = (Admission(ME, Random(seed), challenge_pause_ms=1, verifies_addresses=False) for seed in (1, 2))
    numbers = [first.next_number() for _ in range(3)]
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]
    assert abs(second.next_number() - numbers[0]) > 2**40
