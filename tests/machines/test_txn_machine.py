"""Transactions: the core agrees with an independent model and with the replay of its own log after each operation."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from odradek.coordinator.txn import commands as c
from odradek.coordinator.txn.ports import TopicPartition, TxnConfig
from odradek.coordinator.txn.state import ProducerIdentity
from odradek.coordinator.txn.transitions import TRANSITIONS, Event
from odradek.protocol.txn_state import TxnState
from tests.machines.transition_visits import note
from tests.machines.txn_model import FOREVER_MS, RETRY, WEEK_MS, Model
from tests.support.cell_counts import count
from tests.support.effort import effort, run_machine
from tests.support.txn_rig import ID, NOW_MS, CoreRig, transaction

PARTITIONS = ["t-0", "t-1", "u-0"]

if TYPE_CHECKING:
    from collections.abc import Callable

producers = st.sampled_from(["client"] * 5 + ["current", "previous", "other"])
epochs = st.sampled_from([0] * 5 + [-1] * 3 + [1, -2, "last", 32_766])
rarely = st.sampled_from([False] * 4 + [True])
parts = st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=2, unique=True)


def topic_partitions(names: list[str]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(name[0], int(name[2])) for name in names)


def plain(reply: Any) -> object:
    """Convert a reply of the core to the model's value."""
    if isinstance(reply, dict):
        return {f"{topic}-{index}": error.name for (topic, index), error in reply.items()}
    if isinstance(reply, c.RecoveredProducer):
        return plain(reply.identity), plain(reply.ongoing)
    return tuple(reply) if isinstance(reply, tuple) else reply


class TransactionMachine(RuleBasedStateMachine):
    """Operations on one transactional id. Ids share no state, so that one is sufficient."""

    @initialize(level=st.sampled_from([0, 1, 2, 2]))
    def start(self, level: int) -> None:
        self.level = level
        self.rig = CoreRig(level=level, config=TxnConfig())
        self.rig.ids.next = 1_000
        self.model = Model()
        self.expired = False

    # ---- requests ---------------------------------------------------------------------------------------------------

    def producer(self, producer_id: str) -> int:
        model = self.model
        return {"client": model.client[0], "current": model.pid, "previous": model.prev, "other": 77}[producer_id]

    def epoch(self, epoch_choice: object, producer_id: str) -> int:
        if epoch_choice == "last":
            return self.model.last
        assert isinstance(epoch_choice, int)
        base = self.model.client[1] if producer_id == "client" else self.model.epoch
        return epoch_choice if epoch_choice == 32_766 else base + epoch_choice

    def check_reply(self, command: c.Command, expected: object, before: int) -> None:
        """Run a command and compare its reply with the model's. `before` is the log size before the command."""
        reply = plain(self.rig.do(command))
        if self.expired:
            assert reply == RETRY or isinstance(command, c.VerifyPartitions | c.EndTransaction), (command, reply)
            assert len(self.rig.log) == before
            return
        assert reply == expected, (command, reply, expected, self.model)
        if self.rig.lag and len(self.rig.log) > before:
            self.model.committed = False

    @rule(
        producer_id=producers,
        epoch_choice=epochs,
        has_identity=st.sampled_from([True, True, True, False]),
        timeout_ms=st.sampled_from([1, 60_000, FOREVER_MS]),
        keeps=st.booleans(),
    )
    def init(self, producer_id: str, epoch_choice: object, has_identity: bool, timeout_ms: int, keeps: bool) -> None:
        keeps &= self.level == 2
        expected = (self.producer(producer_id), self.epoch(epoch_choice, producer_id)) if has_identity else None
        identity = None if expected is None else ProducerIdentity(*expected)
        command = c.InitProducerId(ID, timeout_ms, identity)
        before = len(self.rig.log)
        check_reply = self.model.keep if keeps else self.model.init
        response = RETRY if self.expired else check_reply(expected, timeout_ms, self.level, self.rig.now_ms)
        self.check_reply(c.RecoverProducer(command) if keeps else command, response, before)

    @rule(producer_id=producers, epoch_choice=epochs, names=parts, version=st.sampled_from([0, 2]))
    def add(self, producer_id: str, epoch_choice: object, names: list[str], version: int) -> None:
        pid, epoch = self.producer(producer_id), self.epoch(epoch_choice, producer_id)
        command = c.AddPartitions(ID, pid, epoch, topic_partitions(names), version)
        before = len(self.rig.log)
        response = RETRY if self.expired else self.model.add(pid, epoch, names, version, self.rig.now_ms)
        self.check_reply(command, response, before)

    @rule(producer_id=producers, epoch_choice=epochs, names=parts)
    def verify(self, producer_id: str, epoch_choice: object, names: list[str]) -> None:
        pid, epoch = self.producer(producer_id), self.epoch(epoch_choice, producer_id)
        response = self.model.verify(pid, epoch, names)
        self.check_reply(c.VerifyPartitions(ID, pid, epoch, topic_partitions(names)), response, len(self.rig.log))

    @rule(producer_id=producers, epoch_choice=epochs, commit=st.booleans(), tv2=st.booleans())
    def end(self, producer_id: str, epoch_choice: object, commit: bool, tv2: bool) -> None:
        pid, epoch = self.producer(producer_id), self.epoch(epoch_choice, producer_id)
        command = c.EndTransaction(ID, pid, epoch, commit, c.TV2 if tv2 else 0)
        before = len(self.rig.log)
        response: object = RETRY
        if not self.expired:
            check_reply = self.model.end_tv2 if tv2 else self.model.end_classic
            response = check_reply(pid, epoch, commit, self.rig.now_ms)
        self.check_reply(command, response, before)

    # ---- coordinator ------------------------------------------------------------------------------------------------

    @rule(stale=st.booleans())
    def markers_complete(self, stale: bool) -> None:
        model = self.model
        identity = (model.pid, model.epoch - 1) if stale else model.markers or (model.pid, model.epoch)
        before = len(self.rig.log)
        is_due = model.prepared and model.committed and not stale and not self.expired
        if model.prepared and not model.committed:
            return  # markers are sent only after the prepared state is committed
        self.rig.do(c.CompleteTransaction(ID, *identity))
        assert (len(self.rig.log) > before) is is_due
        if is_due:
            model.complete(self.rig.now_ms)
            model.given_up = False
            model.committed = not self.rig.lag

    @precondition(lambda self: self.model.prepared and self.model.committed)
    @rule()
    def completion_stops(self) -> None:
        self.rig.core.stop_completion(ID, self.model.pid, self.model.epoch)
        self.model.given_up = True

    @rule(pass_ms=st.sampled_from([1, 2, 59_999, 60_001, WEEK_MS]))
    def time_passes(self, pass_ms: int) -> None:
        self.rig.now_ms += pass_ms

    @rule(stale=st.booleans())
    def abort_timed_out(self, stale: bool) -> None:
        before = len(self.rig.log)
        start_ms = self.model.start_ms - 1 if stale else self.model.start_ms
        self.rig.do(c.AbortTimedOut(ID, self.model.pid, start_ms))
        is_due = not stale and not self.expired and self.model.time_out(self.level, self.rig.now_ms)
        assert (len(self.rig.log) > before) is is_due
        if is_due and self.rig.lag:
            self.model.committed = False

    @rule()
    def expire_idle_ids(self) -> None:
        is_due = self.model.expires(self.rig.now_ms) and not self.expired
        self.rig.do(c.SweepExpired())
        commands = [effect.command for effect in self.rig.effects]
        assert bool(commands) is is_due
        for command in commands or [c.ExpireIds((ID,))]:
            assert self.rig.do(command) == int(is_due)
        if is_due:
            self.expired, self.model.committed = True, False
            self.commit()

    # ---- the log ----------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        if self.rig.lag:
            return
        self.rig.commit()
        self.model.committed = True
        if self.expired:
            self.expired = False
            self.model = Model(fresh=self.rig.ids.next)

    @rule(really=rarely)
    def high_watermark_stops(self, really: bool) -> None:
        self.rig.lag |= really

    @rule()
    def high_watermark_catches_up(self) -> None:
        self.rig.lag = False
        self.commit()

    @rule(really=rarely)
    def crash(self, really: bool) -> None:
        if not really:
            return
        self.rig.core = self.rig.replayed()
        loaded = self.rig.core.on_loaded(7, self.rig.now_ms)
        self.model.crash(self.level)
        if self.expired:
            self.expired = False
            self.model = Model(fresh=self.rig.ids.next)
        self.model.committed = True
        self.rig.lag = False
        assert bool(loaded.effects) is self.model.prepared

    @precondition(lambda self: self.model.exists and not self.expired)
    @rule(
        state=st.sampled_from([state for state in TxnState if state < TxnState.DEAD]),
        epoch=st.sampled_from([0, 5, 32_765, 32_766, 32_767]),
    )
    def stored_state_is_loaded(self, state: TxnState, epoch: int) -> None:
        """Load a stored state with an epoch near the maximum. Completion of a prepared transaction is stopped."""
        stored = transaction(state, epoch=epoch, producer_id=self.model.pid, prev_producer_id=self.model.pid)
        self.rig.store(stored)
        self.rig.core.stop_completion(ID, self.model.pid, epoch)
        model = self.model
        model.state, model.epoch = state.kafka_name, epoch
        model.parts = ["t-0"] if model.state in {"Ongoing", "PrepareCommit", "PrepareAbort"} else []
        model.prev, model.next, model.last, model.version, model.markers = model.pid, None, -1, 0, None
        model.timeout_ms, model.start_ms, model.update_ms = stored.timeout_ms, stored.start_ms, stored.update_ms
        model.committed, model.given_up = True, model.prepared

    # ---- invariants -------------------------------------------------------------------------------------------------

    @invariant()
    def core_matches_model(self) -> None:
        txn = self.rig.core.transactions.get(ID)
        model = self.model
        if self.expired:
            assert txn is not None
            assert txn.state is TxnState.DEAD
        elif txn is None:
            assert not model.exists
        else:
            assert (txn.state.kafka_name, txn.producer_id, txn.producer_epoch) == (model.state, model.pid, model.epoch)
            assert txn.prev_producer_id == model.prev
            assert (txn.next_producer_id, txn.next_producer_epoch) == (model.next or (-1, -1))
            assert (txn.last_producer_epoch, txn.client_version) == (model.last, model.version)
            assert (txn.start_ms, txn.update_ms, txn.timeout_ms) == (model.start_ms, model.update_ms, model.timeout_ms)
            assert sorted(txn.partitions) == sorted(topic_partitions(model.parts))

    @invariant()
    def replay_gives_the_same_state(self) -> None:
        if self.expired:
            return
        transactions = {
            name: txn.as_replayed(feature_level=self.level) for name, txn in self.rig.core.transactions.items()
        }
        assert self.rig.replayed().transactions == transactions


def test_transactions_match_the_model() -> None:
    run_machine(TransactionMachine, examples=150, steps=50)


def walk(rng: Random, level: int, steps: int) -> None:
    """Run random operations with fixed weights. Hypothesis prefers short runs, which do not visit every transition."""
    machine = TransactionMachine()
    machine.start(level=level)
    producer_id, epoch_choice = (
        ["client"] * 5 + ["current", "previous", "other"],
        [0] * 5 + [-1] * 3 + [1, -2, "last", 32_766],
    )

    def names() -> list[str]:
        return rng.sample(PARTITIONS, rng.randint(1, 2))

    def load_stored_state() -> None:
        if machine.model.exists and not machine.expired:
            states = [state for state in TxnState if state < TxnState.DEAD]
            machine.stored_state_is_loaded(state=rng.choice(states), epoch=rng.choice([0, 5, 32_765, 32_766, 32_767]))

    def stop_completion() -> None:
        if machine.model.prepared and machine.model.committed:
            machine.completion_stops()

    steps_of: list[tuple[int, Callable[[], object]]] = [
        (
            3,
            lambda: machine.init(
                rng.choice(producer_id),
                rng.choice(epoch_choice),
                rng.random() < 0.7,
                rng.choice([1, 60_000, FOREVER_MS]),
                rng.random() < 0.5,
            ),
        ),
        (6, lambda: machine.add(rng.choice(producer_id), rng.choice(epoch_choice), names(), rng.choice([0, 2]))),
        (3, lambda: machine.verify(rng.choice(producer_id), rng.choice(epoch_choice), names())),
        (
            9,
            lambda: machine.end(
                rng.choice(producer_id), rng.choice(epoch_choice), rng.random() < 0.5, rng.random() < 0.5
            ),
        ),
        (4, lambda: machine.markers_complete(rng.random() < 0.3)),
        (1, stop_completion),
        (2, lambda: machine.time_passes(rng.choice([1, 2, 59_999, 60_001, WEEK_MS]))),
        (2, lambda: machine.abort_timed_out(rng.random() < 0.3)),
        (2, machine.expire_idle_ids),
        (1, lambda: machine.high_watermark_stops(really=True)),
        (4, machine.high_watermark_catches_up),
        (1, lambda: machine.crash(really=True)),
        (2, load_stored_state),
    ]
    weights = [weight for weight, _ in steps_of]
    for _ in range(steps):
        rng.choices(steps_of, weights)[0][1]()
        machine.core_matches_model()
        machine.replay_gives_the_same_state()


def test_long_walks_visit_every_transition() -> None:
    counts = count(TRANSITIONS)
    before = dict(counts.visits)
    for seed in range(effort(150)):
        walk(Random(seed), level=(0, 1, 2, 2)[seed % 4], steps=120)
    unvisited = note(
        "transactions",
        (
            (event.name, state.name, counts.visits[state, event] - before[state, event])
            for state, event in counts.possible
            # DEAD is always uncommitted: other events are refused before they reach the table.
            if (state is not TxnState.DEAD or event in {Event.VERIFY, Event.MARKERS_DONE})
        ),
    )
    assert unvisited == []


def test_rig_clock_starts_at_now_ms() -> None:
    assert CoreRig().now_ms == NOW_MS
