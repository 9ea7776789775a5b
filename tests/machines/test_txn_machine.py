"""The transaction core against a model written apart, and against its own log, after every step."""

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
from odradek.coordinator.txn.state import TxnState
from odradek.coordinator.txn.transitions import TRANSITIONS, Event
from tests.machines.transition_visits import note
from tests.machines.txn_model import AGAIN, WEEK_MS, Model
from tests.support.cell_counts import count
from tests.support.effort import effort, run_machine
from tests.support.txn_rig import ID, NOW_MS, CoreRig, transaction

PARTITIONS = ["t-0", "t-1", "u-0"]

if TYPE_CHECKING:
    from collections.abc import Callable

producers = st.sampled_from(["current"] * 5 + ["previous", "next", "other"])
epochs = st.sampled_from([0] * 5 + [-1] * 3 + [1, -2, "last", 32_766])
rarely = st.sampled_from([False] * 4 + [True])
parts = st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=2, unique=True)


def topic_partitions(names: list[str]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(name[0], int(name[2])) for name in names)


def plain(reply: Any) -> object:
    """A reply of the core in the words of the model."""
    if isinstance(reply, dict):
        return {f"{topic}-{index}": error.name for (topic, index), error in reply.items()}
    return tuple(reply) if isinstance(reply, tuple) else reply


class TransactionMachine(RuleBasedStateMachine):
    """One id is enough: ids do not touch each other."""

    @initialize(level=st.sampled_from([0, 1, 2, 2]))
    def start(self, level: int) -> None:
        self.level = level
        self.rig = CoreRig(level=level, config=TxnConfig())
        self.rig.ids.next = 1_000
        self.model = Model()
        self.dead = False

    # ---- requests ---------------------------------------------------------------------------------------------------

    def producer(self, who: str) -> int:
        model = self.model
        return {"current": model.pid, "previous": model.prev, "next": model.next, "other": 77}[who]

    def epoch(self, which: object) -> int:
        if which == "last":
            return self.model.last
        assert isinstance(which, int)
        return which if which == 32_766 else self.model.epoch + which

    def ask(self, command: c.Command, expected: object, before: int) -> None:
        """`expected` is the model's answer; it has gone ahead if it wrote, which the log shows too."""
        got = plain(self.rig.do(command))
        if self.dead:
            assert got == AGAIN or isinstance(command, c.VerifyPartitions | c.EndTransaction), (command, got)
            assert len(self.rig.log) == before
            return
        assert got == expected, (command, got, expected, self.model)
        if self.rig.lag and len(self.rig.log) > before:
            self.model.committed = False

    @rule(
        who=producers,
        which=epochs,
        known=st.sampled_from([True, True, True, False]),
        timeout_ms=st.sampled_from([1, 60_000]),
    )
    def init(self, who: str, which: object, known: bool, timeout_ms: int) -> None:
        expected = (self.producer(who), self.epoch(which)) if known else None
        identity = None if expected is None else c.ProducerIdentity(*expected)
        command = c.InitProducerId(ID, timeout_ms, identity)
        before = len(self.rig.log)
        answer = AGAIN if self.dead else self.model.init(expected, timeout_ms, self.level, self.rig.now_ms)
        self.ask(command, answer, before)

    @rule(who=producers, which=epochs, names=parts, version=st.sampled_from([0, 2]))
    def add(self, who: str, which: object, names: list[str], version: int) -> None:
        pid, epoch = self.producer(who), self.epoch(which)
        command = c.AddPartitions(ID, pid, epoch, topic_partitions(names), version)
        before = len(self.rig.log)
        answer = AGAIN if self.dead else self.model.add(pid, epoch, names, version, self.rig.now_ms)
        self.ask(command, answer, before)

    @rule(which=epochs, names=parts)
    def verify(self, which: object, names: list[str]) -> None:
        pid, epoch = self.model.pid, self.epoch(which)
        answer = self.model.verify(pid, epoch, names)
        self.ask(c.VerifyPartitions(ID, pid, epoch, topic_partitions(names)), answer, len(self.rig.log))

    @rule(who=producers, which=epochs, commit=st.booleans(), tv2=st.booleans())
    def end(self, who: str, which: object, commit: bool, tv2: bool) -> None:
        pid, epoch = self.producer(who), self.epoch(which)
        command = c.EndTransaction(ID, pid, epoch, commit, c.TV2 if tv2 else 0)
        before = len(self.rig.log)
        answer: object = AGAIN
        if not self.dead:
            ask = self.model.end_tv2 if tv2 else self.model.end_classic
            answer = ask(pid, epoch, commit, self.rig.now_ms)
        self.ask(command, answer, before)

    # ---- the broker's own -------------------------------------------------------------------------------------------

    @rule(stale=st.booleans())
    def markers_are_written(self, stale: bool) -> None:
        model = self.model
        identity = (model.pid, model.epoch - 1) if stale else model.markers or (model.pid, model.epoch)
        before = len(self.rig.log)
        due = model.prepared and model.committed and not stale and not self.dead
        if model.prepared and not model.committed:
            return  # effects wait for the commit: nobody has sent anything
        self.rig.do(c.CompleteTransaction(ID, *identity))
        assert (len(self.rig.log) > before) is due
        if due:
            model.complete(self.rig.now_ms)
            model.given_up = False
            model.committed = not self.rig.lag

    @precondition(lambda self: self.model.prepared and self.model.committed)
    @rule()
    def the_completion_is_given_up(self) -> None:
        self.rig.core.stop_completion(ID, self.model.pid, self.model.epoch)
        self.model.given_up = True

    @rule(pass_ms=st.sampled_from([1, 2, 59_999, 60_001, WEEK_MS]))
    def time_passes(self, pass_ms: int) -> None:
        self.rig.now_ms += pass_ms

    @rule(stale=st.booleans())
    def the_sweep_for_time_outs(self, stale: bool) -> None:
        before = len(self.rig.log)
        start_ms = self.model.start_ms - 1 if stale else self.model.start_ms
        self.rig.do(c.AbortTimedOut(ID, self.model.pid, start_ms))
        due = not stale and not self.dead and self.model.time_out(self.level, self.rig.now_ms)
        assert (len(self.rig.log) > before) is due
        if due and self.rig.lag:
            self.model.committed = False

    @rule()
    def the_sweep_for_idle_ids(self) -> None:
        due = self.model.expires(self.rig.now_ms) and not self.dead
        self.rig.do(c.SweepExpired())
        told = [effect.command for effect in self.rig.effects]
        assert bool(told) is due
        for command in told or [c.ExpireIds((ID,))]:
            assert self.rig.do(command) == int(due)
        if due:
            self.dead, self.model.committed = True, False
            self.commit()

    # ---- the log ----------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        if self.rig.lag:
            return
        self.rig.commit()
        self.model.committed = True
        if self.dead:
            self.dead = False
            self.model = Model(fresh=self.rig.ids.next)

    @rule(really=rarely)
    def the_watermark_stands(self, really: bool) -> None:
        self.rig.lag |= really

    @rule()
    def the_watermark_catches_up(self) -> None:
        self.rig.lag = False
        self.commit()

    @rule(really=rarely)
    def crash(self, really: bool) -> None:
        if not really:
            return
        self.rig.core = self.rig.replayed()
        loaded = self.rig.core.on_loaded(7, self.rig.now_ms)
        self.model.crash(self.level)
        if self.dead:
            self.dead = False
            self.model = Model(fresh=self.rig.ids.next)
        self.model.committed = True
        self.rig.lag = False
        assert bool(loaded.effects) is self.model.prepared

    @precondition(lambda self: self.model.exists and not self.dead)
    @rule(
        found=st.sampled_from([state for state in TxnState if state < TxnState.DEAD]),
        epoch=st.sampled_from([0, 5, 32_765, 32_766, 32_767]),
    )
    def an_old_log_is_found(self, found: TxnState, epoch: int) -> None:
        """So that the end of the epochs is near; what is prepared in it has been given up."""
        state = found.kafka_name
        stored = transaction(found, epoch=epoch, producer_id=self.model.pid, prev_producer_id=self.model.pid)
        self.rig.store(stored)
        self.rig.core.stop_completion(ID, self.model.pid, epoch)
        model = self.model
        model.state, model.epoch = state, epoch
        model.parts = ["t-0"] if state in {"Ongoing", "PrepareCommit", "PrepareAbort"} else []
        model.prev, model.next, model.last, model.version, model.markers = model.pid, -1, -1, 0, None
        model.timeout_ms, model.start_ms, model.update_ms = stored.timeout_ms, stored.start_ms, stored.update_ms
        model.committed, model.given_up = True, model.prepared

    # ---- what always holds ------------------------------------------------------------------------------------------

    @invariant()
    def the_core_says_what_the_model_says(self) -> None:
        txn = self.rig.core.transactions.get(ID)
        model = self.model
        if self.dead:
            assert txn is not None
            assert txn.state is TxnState.DEAD
        elif txn is None:
            assert not model.exists
        else:
            assert (txn.state.kafka_name, txn.producer_id, txn.producer_epoch) == (model.state, model.pid, model.epoch)
            assert (txn.prev_producer_id, txn.next_producer_id) == (model.prev, model.next)
            assert (txn.last_producer_epoch, txn.client_version) == (model.last, model.version)
            assert (txn.start_ms, txn.update_ms, txn.timeout_ms) == (model.start_ms, model.update_ms, model.timeout_ms)
            assert sorted(txn.partitions) == sorted(topic_partitions(model.parts))

    @invariant()
    def replay_gives_the_same_state(self) -> None:
        if self.dead:
            return
        live = {name: txn.as_replayed(feature_level=self.level) for name, txn in self.rig.core.transactions.items()}
        assert self.rig.replayed().transactions == live


def test_the_core_behaves_like_the_model() -> None:
    run_machine(TransactionMachine, examples=150, steps=50)


def walk(rng: Random, level: int, steps: int) -> None:
    """The same machine, driven evenly: Hypothesis looks for short programs, this one for every corner."""
    machine = TransactionMachine()
    machine.start(level=level)
    who, which = ["current"] * 5 + ["previous", "next", "other"], [0] * 5 + [-1] * 3 + [1, -2, "last", 32_766]

    def names() -> list[str]:
        return rng.sample(PARTITIONS, rng.randint(1, 2))

    def old_log() -> None:
        if machine.model.exists and not machine.dead:
            states = [state for state in TxnState if state < TxnState.DEAD]
            machine.an_old_log_is_found(found=rng.choice(states), epoch=rng.choice([0, 5, 32_765, 32_766, 32_767]))

    def give_up() -> None:
        if machine.model.prepared and machine.model.committed:
            machine.the_completion_is_given_up()

    steps_of: list[tuple[int, Callable[[], object]]] = [
        (3, lambda: machine.init(rng.choice(who), rng.choice(which), rng.random() < 0.7, rng.choice([1, 60_000]))),
        (6, lambda: machine.add(rng.choice(who), rng.choice(which), names(), rng.choice([0, 2]))),
        (3, lambda: machine.verify(rng.choice(which), names())),
        (9, lambda: machine.end(rng.choice(who), rng.choice(which), rng.random() < 0.5, rng.random() < 0.5)),
        (4, lambda: machine.markers_are_written(rng.random() < 0.3)),
        (1, give_up),
        (2, lambda: machine.time_passes(rng.choice([1, 2, 59_999, 60_001, WEEK_MS]))),
        (2, lambda: machine.the_sweep_for_time_outs(rng.random() < 0.3)),
        (2, machine.the_sweep_for_idle_ids),
        (1, lambda: machine.the_watermark_stands(really=True)),
        (4, machine.the_watermark_catches_up),
        (1, lambda: machine.crash(really=True)),
        (2, old_log),
    ]
    weights = [weight for weight, _ in steps_of]
    for _ in range(steps):
        rng.choices(steps_of, weights)[0][1]()
        machine.the_core_says_what_the_model_says()
        machine.replay_gives_the_same_state()


def test_every_row_of_the_table_is_met_on_a_long_walk() -> None:
    counts = count(TRANSITIONS)
    before = dict(counts.visits)
    for seed in range(effort(150)):
        walk(Random(seed), level=(0, 1, 2, 2)[seed % 4], steps=120)
    unmet = note(
        "transactions",
        (
            (event.name, state.name, counts.visits[state, event] - before[state, event])
            for state, event in counts.possible
            # Dead is always uncommitted: only those who do not ask for that reach the table.
            if (state is not TxnState.DEAD or event in {Event.VERIFY, Event.MARKERS_DONE})
        ),
    )
    assert unmet == []


def test_the_clock_of_the_machine_starts_where_the_rig_does() -> None:
    assert CoreRig().now_ms == NOW_MS
