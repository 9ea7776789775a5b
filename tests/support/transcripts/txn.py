"""Commands of the golden transcripts of the transaction coordinator: commands, `----`, and their output.

    new level=2            a coordinator on an empty log (level: the finalized transaction.version)
    init id [timeout=] [expect=pid/epoch] [2pc] [keep]
    add id pid/epoch t-0 t-1 [tv2]      verify id pid/epoch t-0
    commit id pid/epoch [tv2]           abort id pid/epoch [tv2]
    markers                the leaders have written every marker that was sent
    refuse-markers         a leader responded with INVALID_PRODUCER_EPOCH
    lag | catch-up         the high watermark stops | reaches the log end
    expire-waits           requests that wait in a queue, or for a commit, time out
    clock +ms              wall-clock time passes, and with it the timers
    crash [lost=n]         kill -9; the last n records had not reached the log; the next coordinator loads it
    found id State pid/epoch t-0    a record that the next `crash` finds in the log
    state id               show the state of an id

Below `----`: `log` is a decoded record, `send` markers to be written, `#n` the response to the n-th request.

See harness.py for the format of a transcript, and for how to update one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.coordinator.txn import commands as c
from odradek.coordinator.txn.ports import TopicPartition
from odradek.coordinator.txn.records import to_record
from odradek.coordinator.txn.state import ProducerIdentity
from odradek.protocol.errors import Refusal
from odradek.protocol.txn_state import NEVER_TIMES_OUT_MS, STATE_BY_NAME
from tests.support.transcripts.harness import Interpreter
from tests.support.txn_rig import EngineRig, read_back, transaction

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from odradek.coordinator.txn.state import Transaction

WAIT_MS = 3_600_000  # queue and commit waits never time out, except by `expire-waits`


def identity(text: str) -> ProducerIdentity:
    pid, epoch = text.split("/")
    return ProducerIdentity(int(pid), int(epoch))


def partitions(words: Iterable[str]) -> tuple[TopicPartition, ...]:
    found = []
    for word in words:
        topic, _, index = word.rpartition("-")
        found.append(TopicPartition(topic, int(index)))
    return tuple(found)


def named(words: Iterable[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words if "=" in word)


def shown_partitions(found: Any) -> str:
    return "[" + " ".join(f"{topic}-{index}" for topic, index in found) + "]"


def shown_txn(txn: Transaction) -> str:
    extra = "" if txn.prev_producer_id in {txn.producer_id, -1} else f" prev={txn.prev_producer_id}"
    if txn.has_next_identity:
        rotated = txn.state.is_prepared and txn.next_producer_epoch == 0
        extra += f" next={txn.next_producer_id}" + ("" if rotated else f"/{txn.next_producer_epoch}")
    if txn.client_version:
        extra += f" tv={txn.client_version}"
    if txn.never_times_out:
        extra += " 2pc"
    parts = f" {shown_partitions(txn.partitions)}" if txn.partitions else ""
    return f"{txn.transactional_id} {txn.state.kafka_name} {txn.producer_id}/{txn.producer_epoch}{parts}{extra}"


class TxnInterpreter(Interpreter):
    """Execute commands on a transaction coordinator."""

    def __init__(self) -> None:
        self.rig = EngineRig(wait_ms=WAIT_MS)
        self.requests: list[tuple[int, asyncio.Future[Any]]] = []
        self.numbered = 0
        self.records_shown = 0
        self.markers_shown = 0
        self.level = 2

    def collect(self, result: str | None) -> list[str]:
        return [*self.new_output(), *([] if result is None else [result])]

    # ---- requests ---------------------------------------------------------------------------------------------------

    def do_init(self, *words: str) -> None:
        options = named(words)
        expected = identity(options["expect"]) if "expect" in options else None
        timeout_ms = NEVER_TIMES_OUT_MS if "2pc" in words else int(options.get("timeout", "60000"))
        init = c.InitProducerId(words[0], timeout_ms, expected)
        self._submit(c.RecoverProducer(init) if "keep" in words else init)

    def do_add(self, *words: str) -> None:
        tv2 = "tv2" in words
        requested = partitions([word for word in words[2:] if word != "tv2"])
        self._submit(c.AddPartitions(words[0], *identity(words[1]), requested, c.TV2 if tv2 else 0))

    def do_verify(self, *words: str) -> None:
        self._submit(c.VerifyPartitions(words[0], *identity(words[1]), partitions(words[2:])))

    def do_commit(self, *words: str) -> None:
        self._end(words, commit=True)

    def do_abort(self, *words: str) -> None:
        self._end(words, commit=False)

    def _end(self, words: tuple[str, ...], *, commit: bool) -> None:
        self._submit(c.EndTransaction(words[0], *identity(words[1]), commit, c.TV2 if "tv2" in words else 0))

    def _submit(self, command: c.Command) -> None:
        self.numbered += 1
        self.requests.append((self.numbered, self.rig.submit(command, WAIT_MS)))

    # ---- environment of the coordinator -----------------------------------------------------------------------------

    async def do_new(self, *words: str) -> None:
        self.level = int(named(words).get("level", "2"))
        self.rig = await EngineRig(level=self.level, wait_ms=WAIT_MS).loaded()
        self.rig.ids.next = 1_000

    def do_markers(self, *words: str) -> None:
        self.markers_shown = 0
        self.rig.complete()

    def do_refuse_markers(self, *words: str) -> None:
        for effect in self.rig.effects:
            self.rig.core.stop_completion(
                effect.transactional_id, effect.marker.producer_id, effect.marker.producer_epoch
            )
        self.rig.effects.clear()
        self.markers_shown = 0

    def do_lag(self, *words: str) -> None:
        self.rig.log.lag = True

    def do_catch_up(self, *words: str) -> None:
        self.rig.log.lag = False
        self.rig.log.commit()

    def do_expire_waits(self, *words: str) -> None:
        engine = self.rig.engine
        calls = list(engine._waiting)
        calls += [entry.call for entry in engine._parked if entry.call is not None]
        for call in calls:
            if call.handle is not None:
                call.handle._run()

    def do_clock(self, *words: str) -> None:
        self.rig.clock.now_ms += int(words[0])
        self.rig.engine._timers._expire()

    async def do_crash(self, *words: str) -> None:
        log, ids, clock = self.rig.log, self.rig.ids, self.rig.clock
        lost = int(named(words).get("lost", "0"))
        self.rig.engine.unload()
        successor = log.successor(lag=log.lag, upto=log.log_end_offset - lost)
        self.rig = EngineRig(successor, level=self.level, wait_ms=WAIT_MS)
        self.rig.ids, self.rig.clock = ids, clock
        self.rig.core._take_producer_id = ids.take
        self.rig.engine._clock = self.rig.engine._timers._clock = clock
        await self.rig.loaded()
        self.records_shown = len(successor.entries)
        self.markers_shown = 0

    def do_found(self, *words: str) -> None:
        producer = identity(words[2])
        txn = transaction(
            STATE_BY_NAME[words[1]],
            epoch=producer.producer_epoch,
            partitions=partitions(words[3:]),
            transactional_id=words[0],
            producer_id=producer.producer_id,
            prev_producer_id=producer.producer_id,
        )
        self.rig.log.append([to_record(txn, self.level)], self.rig.clock.now_ms)

    def do_state(self, *words: str) -> str:
        txn = self.rig.core.transactions.get(words[0])
        return "unknown" if txn is None else shown_txn(txn)

    # ---- output -----------------------------------------------------------------------------------------------------

    def new_output(self) -> list[str]:
        out = []
        for _, record, _ in self.rig.log.entries[self.records_shown :]:
            txn = read_back(record)
            out.append("log tombstone" if txn is None else f"log {shown_txn(txn)}")
        self.records_shown = len(self.rig.log.entries)
        for effect in self.rig.effects[self.markers_shown :]:
            marker = effect.marker
            what = "commit" if marker.commit else "abort"
            out.append(
                f"send {what} {marker.producer_id}/{marker.producer_epoch} {shown_partitions(marker.partitions)}"
                f" coordinator={marker.coordinator_epoch} tv={marker.transaction_version}"
            )
        self.markers_shown = len(self.rig.effects)
        waiting = []
        for number, future in self.requests:
            if future.done():
                out.append(f"#{number} {self._reply(future)}")
            else:
                waiting.append((number, future))
        if len(waiting) > 0 and waiting[-1][0] == self.numbered and waiting != self._waiting_before:
            out.append(f"#{self.numbered} waits")
        self.requests = waiting
        self._waiting_before = list(waiting)
        return out

    _waiting_before: list[tuple[int, asyncio.Future[Any]]] = []  # noqa: RUF012  replaced, never changed

    def _reply(self, future: asyncio.Future[Any]) -> str:
        failure = future.exception()
        if isinstance(failure, Refusal):
            return failure.error.name
        reply = future.result()
        if isinstance(reply, ProducerIdentity):
            return f"{reply.producer_id}/{reply.producer_epoch}"
        if isinstance(reply, c.RecoveredProducer):
            producer_id, epoch = reply.ongoing or (-1, -1)
            return f"{reply.identity.producer_id}/{reply.identity.producer_epoch} ongoing={producer_id}/{epoch}"
        return " ".join(f"{topic}-{index}:{error.name}" for (topic, index), error in reply.items())
