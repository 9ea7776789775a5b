"""Failure-detector core: rules that no transcript shows, and limits."""

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
from tests.support.membership_core_rig import INCARNATION, MembershipCoreRig, specs
from tests.support.membership_rig import Rig

CONFIG = MembershipConfig()


# ---- the table ------------------------------------------------------------------------------------------------------


def test_impossible_event_is_a_bug() -> None:
    with pytest.raises(TransitionBug, match="SUSPICION_TIMEOUT cannot occur in state ALIVE"):
        TRANSITIONS.look_up(State.ALIVE, Event.SUSPICION_TIMEOUT)


def test_received_failure_makes_a_node_suspect_only() -> None:
    assert TRANSITIONS.look_up(State.ALIVE, Event.FAILURE_RECEIVED) is State.SUSPECT
    assert TRANSITIONS.look_up(State.SUSPECT, Event.FAILURE_RECEIVED) is State.SUSPECT


# ---- members --------------------------------------------------------------------------------------------------------


def test_single_member_has_no_deadline() -> None:
    node = MembershipCoreRig()
    assert node.core.next_deadline_ms is None
    node.core.tick(node.now_ms + 60_000)
    assert node.core.take_ready() is None


def test_first_member_after_a_long_time_is_no_standstill() -> None:
    node = MembershipCoreRig()
    node.now_ms += 3_600_000
    node.core.set_members(specs(1, 2), node.now_ms)
    node.run(0)
    assert node.core.counters.standstills == 0
    assert node.core.counters.probes == 1


def test_removed_member_is_forgotten() -> None:
    node = MembershipCoreRig(2, 3)
    node.receive_gossip(GossipEntry(3, INCARNATION + 3, 0, State.SUSPECT))
    node.core.set_members(specs(1, 2), node.now_ms)
    assert [member.node_id for member in node.core.view()] == [2]
    sent = [message for ready in node.run(200) for message in ready.messages]
    assert sent
    assert all(message.target == 2 and not message.gossip for message in sent)


def test_new_registration_of_the_same_incarnation_changes_the_broker_epoch_only() -> None:
    node = MembershipCoreRig(2)
    node.run(3_000)
    assert node.state(2) is State.FAILED
    node.core.set_members([MemberSpec(2, 77, INCARNATION + 2)], node.now_ms)
    assert [(member.broker_epoch, member.state) for member in node.core.view()] == [(77, State.FAILED)]


def test_new_incarnation_starts_alive() -> None:
    node = MembershipCoreRig(2)
    node.run(3_000)
    assert node.state(2) is State.FAILED
    node.core.set_members([MemberSpec(2, 77, 4711)], node.now_ms)
    assert [(member.broker_epoch, member.state) for member in node.core.view()] == [(77, State.ALIVE)]


# ---- probing --------------------------------------------------------------------------------------------------------


def test_every_round_pings_each_member_once() -> None:
    node = MembershipCoreRig(*range(2, 12))
    pinged = []
    for turn in range(30):
        (ready,) = node.run(CONFIG.probe_interval_ms if turn else 0)
        (ping,) = ready.messages
        pinged.append(ping.target)
        incarnation = INCARNATION + ping.target
        node.core.step(Ack(ping.target, 1, incarnation, 0, ping.sequence, ping.target, incarnation, 0), node.now_ms)
    rounds = [tuple(pinged[start : start + 10]) for start in (0, 10, 20)]
    assert [sorted(targets) for targets in rounds] == [list(range(2, 12))] * 3
    assert len(set(rounds)) == 3


def test_ping_requests_go_to_the_configured_number_of_helpers() -> None:
    node = MembershipCoreRig(*range(2, 12))
    requests = [message for ready in node.run(200) for message in ready.messages if isinstance(message, PingRequest)]
    assert len(requests) == CONFIG.helpers
    assert len({message.subject for message in requests}) == 1
    assert all(message.target != message.subject for message in requests)


def test_relayed_pings_are_limited() -> None:
    node = MembershipCoreRig(2, 3)
    for sequence in range(RELAYS_MAX + 50):
        node.core.step(PingRequest(2, 1, INCARNATION + 2, 0, sequence, 3), node.now_ms)
    assert sum(isinstance(message, Ping) for message in node.take().messages) == RELAYS_MAX


def test_ping_request_for_an_unknown_node_is_ignored() -> None:
    node = MembershipCoreRig(2)
    node.core.step(PingRequest(2, 1, INCARNATION + 2, 0, 1, 99), node.now_ms)
    assert node.take().messages == ()


def test_ping_of_an_unknown_node_is_acknowledged() -> None:
    node = MembershipCoreRig(2)
    node.core.step(Ping(9, 1, 9, 0, 17), node.now_ms)
    (ack,) = node.take().messages
    assert isinstance(ack, Ack)
    assert (ack.target, ack.sequence, ack.subject) == (9, 17, 1)


def test_message_for_another_node_is_ignored() -> None:
    node = MembershipCoreRig(2)
    node.core.step(Ping(2, 3, INCARNATION + 2, 0, 17), node.now_ms)
    node.core.step(Ping(1, 1, INCARNATION + 1, 0, 17), node.now_ms)
    assert node.core.take_ready() is None


def test_unexpected_acknowledgment_is_ignored() -> None:
    node = MembershipCoreRig(2)
    node.run(3_000)
    assert node.state(2) is State.FAILED
    node.core.step(Ack(2, 1, INCARNATION + 2, 0, 123, 2, INCARNATION + 2, 0), node.now_ms)
    assert node.state(2) is State.FAILED


def test_acknowledgment_of_another_incarnation_declares_the_former_failed_once() -> None:
    node = MembershipCoreRig(2)
    (ping,) = node.run(0)[0].messages
    for _ in range(3):
        node.core.step(Ack(2, 1, 666, 0, ping.sequence, 2, 666, 0), node.now_ms)
        node.take()
    assert [(change.broker_epoch, change.event) for change in node.changes] == [(12, Event.REPLACED)]


def test_tcp_contact_of_the_replacement_does_not_revive_the_former_incarnation() -> None:
    node = MembershipCoreRig(2)
    (ping,) = node.run(0)[0].messages
    node.core.step(Ack(2, 1, 666, 0, ping.sequence, 2, 666, 0), node.now_ms)
    node.last_contacts[2] = node.now_ms + 5_000
    node.run(6_000)
    assert node.state(2) is State.FAILED


def test_replacement_of_a_failed_process_is_no_second_failure() -> None:
    """TCP contact with the new process comes before its first acknowledgment."""
    node = MembershipCoreRig(2)
    node.core.lost(2, node.now_ms, refused=True)
    node.run(2_000)
    node.last_contacts[2] = node.now_ms
    pings = [message for ready in node.run(2_000) for message in ready.messages]
    node.core.step(Ack(2, 1, 666, 0, pings[-1].sequence, 2, 666, 0), node.now_ms)
    node.take()
    assert [change.event for change in node.changes] == [Event.CONNECTION_LOST, Event.NOT_LISTENING]


def test_unregistered_voter_is_alive_again_after_tcp_contact() -> None:
    node = MembershipCoreRig()
    node.core.set_members([MemberSpec(2, UNREGISTERED, UNKNOWN_INCARNATION)], node.now_ms)
    node.core.lost(2, node.now_ms, refused=True)
    node.run(2_000)
    node.last_contacts[2] = node.now_ms
    node.run(200)
    assert [change.event for change in node.changes] == [Event.CONNECTION_LOST, Event.NOT_LISTENING, Event.TCP_CONTACT]


def test_unregistered_voter_matches_any_incarnation() -> None:
    node = MembershipCoreRig()
    node.core.set_members([MemberSpec(2, UNREGISTERED, UNKNOWN_INCARNATION)], node.now_ms)
    (ping,) = node.run(0)[0].messages
    node.core.step(Ack(2, 1, 666, 0, ping.sequence, 2, 666, 0), node.now_ms)
    assert node.state(2) is State.ALIVE


# ---- evidence by TCP ------------------------------------------------------------------------------------------------


def test_lost_connection_makes_a_suspect_with_ping_and_tcp_probe() -> None:
    node = MembershipCoreRig(2, 3)
    node.core.lost(2, node.now_ms)
    ready = node.take()
    assert [change.event for change in ready.changes] == [Event.CONNECTION_LOST]
    assert [message.target for message in ready.messages] == [2]
    assert ready.tcp_probes == (2,)


def test_one_tcp_probe_runs_at_a_time() -> None:
    node = MembershipCoreRig(2, 3)
    node.core.lost(2, node.now_ms)
    node.core.lost(2, node.now_ms)
    assert sum(len(ready.tcp_probes) for ready in [node.take(), *node.run(500)] if 2 in ready.tcp_probes) == 1
    node.core.tcp_probe_ended(2)
    assert sum(len(ready.tcp_probes) for ready in node.run(200) if 2 in ready.tcp_probes) == 1


def test_tcp_contact_after_a_refused_connection_keeps_the_suspicion() -> None:
    """The listener was closed for a moment, and the process runs."""
    node = MembershipCoreRig(2)
    node.core.lost(2, node.now_ms, refused=True)
    node.last_contacts[2] = node.now_ms + 1
    node.run(CONFIG.suspicion_timeout_ms - 1)
    assert node.state(2) is State.SUSPECT


def test_refused_connection_and_missed_ping_declare_a_failure() -> None:
    node = MembershipCoreRig(2)
    node.run(0)
    node.core.lost(2, node.now_ms, refused=True)
    node.run(CONFIG.probe_timeout_ms - 1)
    assert node.state(2) is State.SUSPECT
    node.run(1)
    assert node.state(2) is State.FAILED


def test_failure_declaration_is_unchanged_by_a_lost_connection() -> None:
    node = MembershipCoreRig(2)
    node.run(3_000)
    node.core.lost(2, node.now_ms)
    assert node.state(2) is State.FAILED
    assert node.core.counters.failure_declarations == 1


def test_unknown_node_cannot_be_lost() -> None:
    node = MembershipCoreRig(2)
    node.core.lost(9, node.now_ms, refused=True)
    node.core.tcp_probe_ended(9)
    assert node.core.take_ready() is None


# ---- gossip ---------------------------------------------------------------------------------------------------------


def test_accusation_is_refuted_with_a_higher_counter() -> None:
    node = MembershipCoreRig(2)
    (ack,) = node.receive_gossip(GossipEntry(1, INCARNATION + 1, 6, State.FAILED)).messages
    assert ack.counter == 7
    assert GossipEntry(1, INCARNATION + 1, 7, State.ALIVE) in ack.gossip
    assert node.core.counters.refutations == 1


def test_accusation_with_an_older_counter_needs_no_refutation() -> None:
    node = MembershipCoreRig(2)
    node.receive_gossip(GossipEntry(1, INCARNATION + 1, 6, State.SUSPECT))
    node.receive_gossip(GossipEntry(1, INCARNATION + 1, 5, State.SUSPECT))
    assert node.core.counter == 7


def test_accusation_of_an_earlier_incarnation_is_not_refuted() -> None:
    node = MembershipCoreRig(2)
    node.receive_gossip(GossipEntry(1, 4711, 6, State.FAILED))
    assert node.core.counter == 0


def test_counter_does_not_exceed_its_maximum() -> None:
    node = MembershipCoreRig(2)
    node.receive_gossip(GossipEntry(1, INCARNATION + 1, COUNTER_MAX, State.SUSPECT))
    assert node.core.counter == 0


def test_gossip_about_another_incarnation_is_ignored() -> None:
    node = MembershipCoreRig(2, 3)
    node.receive_gossip(GossipEntry(3, 4711, 9, State.FAILED))
    assert node.state(3) is State.ALIVE


def test_received_failure_starts_a_tcp_probe_and_shortens_the_suspicion() -> None:
    node = MembershipCoreRig(2, 3)
    assert 3 in node.receive_gossip(GossipEntry(3, INCARNATION + 3, 0, State.FAILED)).tcp_probes
    assert node.state(3) is State.SUSPECT
    node.run(CONFIG.suspicion_timeout_ms // 2 - 1)
    assert node.state(3) is State.SUSPECT
    node.run(1)
    assert node.state(3) is State.FAILED


def test_gossip_with_a_lower_counter_is_ignored() -> None:
    node = MembershipCoreRig(2, 3)
    node.receive_gossip(GossipEntry(3, INCARNATION + 3, 5, State.ALIVE))
    node.receive_gossip(GossipEntry(3, INCARNATION + 3, 4, State.SUSPECT))
    assert node.state(3) is State.ALIVE
    node.receive_gossip(GossipEntry(3, INCARNATION + 3, 5, State.SUSPECT))
    assert node.state(3) is State.SUSPECT


def test_suspect_receives_its_suspicion_with_every_ping() -> None:
    node = MembershipCoreRig(2, 3)
    node.receive_gossip(GossipEntry(3, INCARNATION + 3, 0, State.SUSPECT))
    pings = [m for ready in node.run(700) for m in ready.messages if isinstance(m, Ping) and m.target == 3]
    assert len(pings) >= 6
    assert all(GossipEntry(3, INCARNATION + 3, 0, State.SUSPECT) in message.gossip for message in pings)


def test_gossip_entry_is_sent_a_limited_number_of_times() -> None:
    gossip = Gossip()
    gossip.spread(GossipEntry(3, 1, 0, State.SUSPECT), 5)
    sent = 0
    while gossip.take(None):
        sent += 1
    assert sent == TRANSMISSIONS_PER_DOUBLING * 3


def test_newest_gossip_entry_of_a_node_replaces_older_ones_and_goes_first() -> None:
    gossip = Gossip()
    for node in (3, 4):
        gossip.spread(GossipEntry(node, 1, 0, State.SUSPECT), 5)
    gossip.take(GossipEntry(3, 1, 0, State.SUSPECT))
    gossip.spread(GossipEntry(3, 1, 1, State.ALIVE), 5)
    assert gossip.take(None) == (GossipEntry(3, 1, 1, State.ALIVE), GossipEntry(4, 1, 0, State.SUSPECT))
    assert len(gossip) == 2


def test_datagrams_stay_small_with_gossip_about_a_hundred_nodes() -> None:
    """The rig asserts the size of each datagram."""
    rig = Rig(seed=3)
    for node in range(1, 101):
        rig.start(node)
    for node in range(2, 101):
        rig.crash(node, resets=True)
    rig.run(2_000)
    assert set(rig.states(1).values()) == {State.FAILED}


# ---- local time -----------------------------------------------------------------------------------------------------


def test_small_lateness_counts_as_time() -> None:
    time = LocalTime(300)
    assert time.wake(1_000, 1_000 + LATE_MS) is Lateness.NONE
    assert time.at(2_000) == 2_000


def test_lateness_is_subtracted_and_decisions_wait_once() -> None:
    time = LocalTime(300)
    assert time.wake(1_000, 1_100) is Lateness.LATE
    assert time.at(1_100) == 1_000
    assert time.wake_up_ms(1_000) == 1_100 + SETTLE_MS
    assert time.wake(1_000, 1_200) is Lateness.NONE  # late again: decisions are deferred only once


def test_standstill_does_not_advance_local_time() -> None:
    time = LocalTime(300)
    assert time.wake(1_000, 90_000) is Lateness.STANDSTILL
    assert time.at(90_000) == 1_000


def test_node_with_constant_lateness_detects_a_failure() -> None:
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


def test_standstill_restarts_every_suspicion_timeout() -> None:
    node = MembershipCoreRig(2)
    node.run(600)
    assert node.state(2) is State.SUSPECT
    node.now_ms += 10_000
    node.core.tick(node.now_ms)
    node.run(CONFIG.suspicion_timeout_ms - 1)
    assert node.state(2) is State.SUSPECT
    node.run(1)
    assert node.state(2) is State.FAILED
