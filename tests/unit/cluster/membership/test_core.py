"""Rules of the failure detector that no transcript tells, and its limits."""

from __future__ import annotations

import pytest

from odradek.cluster.membership.gossip import TRANSMISSIONS_PER_DOUBLING, Gossip
from odradek.cluster.membership.local_member import COUNTER_MAX
from odradek.cluster.membership.local_time import LATE_MS, SETTLE_MS, Lateness, LocalTime
from odradek.cluster.membership.members import UNREGISTERED, MembershipConfig, MemberSpec
from odradek.cluster.membership.messages import UNKNOWN_INCARNATION, Ack, GossipEntry, Ping, PingRequest
from odradek.cluster.membership.relays import RELAYS_MAX
from odradek.cluster.membership.transitions import TRANSITIONS, Event, State
from odradek.runtime.machine import TransitionBug
from tests.support.membership_one import INCARNATION, One, specs
from tests.support.membership_rig import Rig

CONFIG = MembershipConfig()


# ---- the table -------------------------------------------------------------------------------------------------------


def test_what_cannot_happen_is_a_bug() -> None:
    with pytest.raises(TransitionBug, match="SUSPICION_TIMEOUT cannot occur in state ALIVE"):
        TRANSITIONS.look_up(State.ALIVE, Event.SUSPICION_TIMEOUT)


def test_nobody_dies_on_the_word_of_another() -> None:
    assert TRANSITIONS.look_up(State.ALIVE, Event.FAILURE_RECEIVED) is State.SUSPECT
    assert TRANSITIONS.look_up(State.SUSPECT, Event.FAILURE_RECEIVED) is State.SUSPECT


# ---- who is watched --------------------------------------------------------------------------------------------------


def test_alone_there_is_nothing_to_do() -> None:
    one = One()
    assert one.core.next_deadline_ms is None
    one.core.tick(one.now_ms + 60_000)
    assert one.core.take_ready() is None


def test_a_first_member_after_a_long_time_alone_is_no_standstill() -> None:
    one = One()
    one.now_ms += 3_600_000
    one.core.set_members(specs(1, 2), one.now_ms)
    one.run(0)
    assert one.core.counters.standstills == 0
    assert one.core.counters.probes == 1


def test_who_is_removed_is_forgotten() -> None:
    one = One(2, 3)
    one.hear(GossipEntry(3, INCARNATION + 3, 0, State.SUSPECT))
    one.core.set_members(specs(1, 2), one.now_ms)
    assert [member.node_id for member in one.core.view()] == [2]
    sent = [message for ready in one.run(200) for message in ready.messages]
    assert sent
    assert all(message.target == 2 and not message.gossip for message in sent)


def test_a_new_registration_of_the_same_process_changes_only_the_epoch() -> None:
    one = One(2)
    one.run(3_000)
    assert one.state(2) is State.FAILED
    one.core.set_members([MemberSpec(2, 77, INCARNATION + 2)], one.now_ms)
    assert [(member.broker_epoch, member.state) for member in one.core.view()] == [(77, State.FAILED)]


def test_a_new_life_begins_with_a_clean_slate() -> None:
    one = One(2)
    one.run(3_000)
    assert one.state(2) is State.FAILED
    one.core.set_members([MemberSpec(2, 77, 4711)], one.now_ms)
    assert [(member.broker_epoch, member.state) for member in one.core.view()] == [(77, State.ALIVE)]


# ---- probing ---------------------------------------------------------------------------------------------------------


def test_every_round_pings_everybody_once() -> None:
    one = One(*range(2, 12))
    pinged = []
    for turn in range(30):
        (ready,) = one.run(CONFIG.probe_interval_ms if turn else 0)
        (ping,) = ready.messages
        pinged.append(ping.target)
        incarnation = INCARNATION + ping.target
        one.core.step(Ack(ping.target, 1, incarnation, 0, ping.sequence, ping.target, incarnation, 0), one.now_ms)
    rounds = [tuple(pinged[start : start + 10]) for start in (0, 10, 20)]
    assert [sorted(each) for each in rounds] == [list(range(2, 12))] * 3
    assert len(set(rounds)) == 3


def test_no_more_helpers_are_asked_than_configured() -> None:
    one = One(*range(2, 12))
    asked = [message for ready in one.run(200) for message in ready.messages if isinstance(message, PingRequest)]
    assert len(asked) == CONFIG.helpers
    assert len({message.subject for message in asked}) == 1
    assert all(message.target != message.subject for message in asked)


def test_pings_for_others_are_limited() -> None:
    one = One(2, 3)
    for sequence in range(RELAYS_MAX + 50):
        one.core.step(PingRequest(2, 1, INCARNATION + 2, 0, sequence, 3), one.now_ms)
    assert sum(isinstance(message, Ping) for message in one.take().messages) == RELAYS_MAX


def test_an_unknown_node_is_not_pinged_for_others() -> None:
    one = One(2)
    one.core.step(PingRequest(2, 1, INCARNATION + 2, 0, 1, 99), one.now_ms)
    assert one.take().messages == ()


def test_a_node_that_the_cluster_does_not_know_yet_gets_an_answer() -> None:
    one = One(2)
    one.core.step(Ping(9, 1, 9, 0, 17), one.now_ms)
    (answer,) = one.take().messages
    assert isinstance(answer, Ack)
    assert (answer.target, answer.sequence, answer.subject) == (9, 17, 1)


def test_what_is_for_another_node_is_nothing() -> None:
    one = One(2)
    one.core.step(Ping(2, 3, INCARNATION + 2, 0, 17), one.now_ms)
    one.core.step(Ping(1, 1, INCARNATION + 1, 0, 17), one.now_ms)
    assert one.core.take_ready() is None


def test_an_answer_that_nobody_asked_for_is_nothing() -> None:
    one = One(2)
    one.run(3_000)
    assert one.state(2) is State.FAILED
    one.core.step(Ack(2, 1, INCARNATION + 2, 0, 123, 2, INCARNATION + 2, 0), one.now_ms)
    assert one.state(2) is State.FAILED


def test_an_answer_of_another_process_ends_the_life_that_was_asked_for_once() -> None:
    one = One(2)
    (ping,) = one.run(0)[0].messages
    for _ in range(3):
        one.core.step(Ack(2, 1, 666, 0, ping.sequence, 2, 666, 0), one.now_ms)
        one.take()
    assert [(change.broker_epoch, change.event) for change in one.changes] == [(12, Event.REPLACED)]


def test_the_process_that_has_replaced_another_does_not_bring_it_back_by_tcp() -> None:
    one = One(2)
    (ping,) = one.run(0)[0].messages
    one.core.step(Ack(2, 1, 666, 0, ping.sequence, 2, 666, 0), one.now_ms)
    one.heard[2] = one.now_ms + 5_000
    one.run(6_000)
    assert one.state(2) is State.FAILED


def test_a_process_that_starts_in_the_place_of_one_that_is_gone_is_no_second_death() -> None:
    """It speaks by TCP before it answers pings."""
    one = One(2)
    one.core.lost(2, one.now_ms, refused=True)
    one.run(2_000)
    one.heard[2] = one.now_ms
    pings = [message for ready in one.run(2_000) for message in ready.messages]
    one.core.step(Ack(2, 1, 666, 0, pings[-1].sequence, 2, 666, 0), one.now_ms)
    one.take()
    assert [change.event for change in one.changes] == [Event.CONNECTION_LOST, Event.NOT_LISTENING]


def test_an_unregistered_voter_that_was_gone_comes_back_by_tcp() -> None:
    one = One()
    one.core.set_members([MemberSpec(2, UNREGISTERED, UNKNOWN_INCARNATION)], one.now_ms)
    one.core.lost(2, one.now_ms, refused=True)
    one.run(2_000)
    one.heard[2] = one.now_ms
    one.run(200)
    assert [change.event for change in one.changes] == [Event.CONNECTION_LOST, Event.NOT_LISTENING, Event.TCP_CONTACT]


def test_an_unregistered_voter_may_be_any_process() -> None:
    one = One()
    one.core.set_members([MemberSpec(2, UNREGISTERED, UNKNOWN_INCARNATION)], one.now_ms)
    (ping,) = one.run(0)[0].messages
    one.core.step(Ack(2, 1, 666, 0, ping.sequence, 2, 666, 0), one.now_ms)
    assert one.state(2) is State.ALIVE


# ---- evidence by TCP -------------------------------------------------------------------------------------------------


def test_a_lost_connection_makes_a_suspect_that_is_pinged_and_knocked_at() -> None:
    one = One(2, 3)
    one.core.lost(2, one.now_ms)
    ready = one.take()
    assert [change.event for change in ready.changes] == [Event.CONNECTION_LOST]
    assert [message.target for message in ready.messages] == [2]
    assert ready.tcp_probes == (2,)


def test_one_knock_at_a_time() -> None:
    one = One(2, 3)
    one.core.lost(2, one.now_ms)
    one.core.lost(2, one.now_ms)
    assert sum(len(ready.tcp_probes) for ready in [one.take(), *one.run(500)] if 2 in ready.tcp_probes) == 1
    one.core.tcp_probe_ended(2)
    assert sum(len(ready.tcp_probes) for ready in one.run(200) if 2 in ready.tcp_probes) == 1


def test_what_was_heard_after_the_refusal_is_believed() -> None:
    """A listener that was closed for a moment: the process is there."""
    one = One(2)
    one.core.lost(2, one.now_ms, refused=True)
    one.heard[2] = one.now_ms + 1
    one.run(CONFIG.suspicion_timeout_ms - 1)
    assert one.state(2) is State.SUSPECT


def test_a_refusal_alone_is_not_enough() -> None:
    one = One(2)
    one.run(0)
    one.core.lost(2, one.now_ms, refused=True)
    one.run(CONFIG.probe_timeout_ms - 1)
    assert one.state(2) is State.SUSPECT
    one.run(1)
    assert one.state(2) is State.FAILED


def test_a_verdict_that_stands_is_not_shaken_by_a_lost_connection() -> None:
    one = One(2)
    one.run(3_000)
    one.core.lost(2, one.now_ms)
    assert one.state(2) is State.FAILED
    assert one.core.counters.failure_declarations == 1


def test_who_is_no_member_cannot_be_lost() -> None:
    one = One(2)
    one.core.lost(9, one.now_ms, refused=True)
    one.core.tcp_probe_ended(9)
    assert one.core.take_ready() is None


# ---- gossip ----------------------------------------------------------------------------------------------------------


def test_an_accusation_is_refuted_with_a_higher_counter() -> None:
    one = One(2)
    (answer,) = one.hear(GossipEntry(1, INCARNATION + 1, 6, State.FAILED)).messages
    assert answer.counter == 7
    assert GossipEntry(1, INCARNATION + 1, 7, State.ALIVE) in answer.gossip
    assert one.core.counters.refutations == 1


def test_an_old_accusation_is_refuted_already() -> None:
    one = One(2)
    one.hear(GossipEntry(1, INCARNATION + 1, 6, State.SUSPECT))
    one.hear(GossipEntry(1, INCARNATION + 1, 5, State.SUSPECT))
    assert one.core.counter == 7


def test_what_is_said_of_an_earlier_life_is_not_refuted() -> None:
    one = One(2)
    one.hear(GossipEntry(1, 4711, 6, State.FAILED))
    assert one.core.counter == 0


def test_the_last_counter_stays_the_last() -> None:
    one = One(2)
    one.hear(GossipEntry(1, INCARNATION + 1, COUNTER_MAX, State.SUSPECT))
    assert one.core.counter == 0


def test_what_is_said_of_another_life_is_nothing() -> None:
    one = One(2, 3)
    one.hear(GossipEntry(3, 4711, 9, State.FAILED))
    assert one.state(3) is State.ALIVE


def test_another_nodes_verdict_is_looked_into_and_shortens_the_suspicion() -> None:
    one = One(2, 3)
    assert 3 in one.hear(GossipEntry(3, INCARNATION + 3, 0, State.FAILED)).tcp_probes
    assert one.state(3) is State.SUSPECT
    one.run(CONFIG.suspicion_timeout_ms // 2 - 1)
    assert one.state(3) is State.SUSPECT
    one.run(1)
    assert one.state(3) is State.FAILED


def test_a_lower_counter_accuses_nobody() -> None:
    one = One(2, 3)
    one.hear(GossipEntry(3, INCARNATION + 3, 5, State.ALIVE))
    one.hear(GossipEntry(3, INCARNATION + 3, 4, State.SUSPECT))
    assert one.state(3) is State.ALIVE
    one.hear(GossipEntry(3, INCARNATION + 3, 5, State.SUSPECT))
    assert one.state(3) is State.SUSPECT


def test_the_accused_hears_it_with_every_ping() -> None:
    one = One(2, 3)
    one.hear(GossipEntry(3, INCARNATION + 3, 0, State.SUSPECT))
    pings = [m for ready in one.run(700) for m in ready.messages if isinstance(m, Ping) and m.target == 3]
    assert len(pings) >= 6
    assert all(GossipEntry(3, INCARNATION + 3, 0, State.SUSPECT) in message.gossip for message in pings)


def test_a_rumour_is_told_a_limited_number_of_times() -> None:
    gossip = Gossip()
    gossip.spread(GossipEntry(3, 1, 0, State.SUSPECT), 5)
    told = 0
    while gossip.take(None):
        told += 1
    assert told == TRANSMISSIONS_PER_DOUBLING * 3


def test_the_newest_rumour_of_a_node_replaces_the_older_and_the_freshest_go_first() -> None:
    gossip = Gossip()
    for node in (3, 4):
        gossip.spread(GossipEntry(node, 1, 0, State.SUSPECT), 5)
    gossip.take(GossipEntry(3, 1, 0, State.SUSPECT))
    gossip.spread(GossipEntry(3, 1, 1, State.ALIVE), 5)
    assert gossip.take(None) == (GossipEntry(3, 1, 1, State.ALIVE), GossipEntry(4, 1, 0, State.SUSPECT))
    assert len(gossip) == 2


def test_a_large_cluster_full_of_rumours_keeps_datagrams_small() -> None:
    """The rig asserts the size of every datagram."""
    rig = Rig(seed=3)
    for node in range(1, 101):
        rig.start(node)
    for node in range(2, 101):
        rig.crash(node, resets=True)
    rig.run(2_000)
    assert set(rig.states(1).values()) == {State.FAILED}


# ---- own time --------------------------------------------------------------------------------------------------------


def test_a_little_lateness_counts_as_time() -> None:
    time = LocalTime(300)
    assert time.wake(1_000, 1_000 + LATE_MS) is Lateness.NONE
    assert time.at(2_000) == 2_000


def test_lateness_is_taken_out_and_judgment_waits_once() -> None:
    time = LocalTime(300)
    assert time.wake(1_000, 1_100) is Lateness.LATE
    assert time.at(1_100) == 1_000
    assert time.wake_up_ms(1_000) == 1_100 + SETTLE_MS
    assert time.wake(1_000, 1_200) is Lateness.NONE  # late again: judgment must come some day


def test_a_standstill_is_no_time_at_all() -> None:
    time = LocalTime(300)
    assert time.wake(1_000, 90_000) is Lateness.STANDSTILL
    assert time.at(90_000) == 1_000


def test_a_node_that_is_always_late_still_finds_the_dead() -> None:
    rig = Rig(seed=5)
    for node in (1, 2):
        rig.start(node)
    rig.run(500)
    rig.stop(2)
    for _ in range(100):
        rig.nodes[1].late_ms = 90
        rig.run(50)
    assert rig.states(1)[2] is State.FAILED
    assert rig.nodes[1].core.counters.late_ticks > 5


def test_a_node_that_stood_still_gives_every_suspicion_its_full_time_again() -> None:
    one = One(2)
    one.run(600)
    assert one.state(2) is State.SUSPECT
    one.now_ms += 10_000
    one.core.tick(one.now_ms)
    one.run(CONFIG.suspicion_timeout_ms - 1)
    assert one.state(2) is State.SUSPECT
    one.run(1)
    assert one.state(2) is State.FAILED
