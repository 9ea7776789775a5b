"""Runs of queries in one process: their sessions, and the threads that write to one sink."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from odradek.client import ProducerIdentity
from odradek.spark import BatchFailed, InvalidInput, SinkError, SinkInUse, batch, exactly_once
from odradek.spark.errors import Doubtful
from odradek.spark.exactly_once import Batch, ignore, repeated
from odradek.spark.options import sink_options
from odradek.spark.transaction import Session

if TYPE_CHECKING:
    from collections.abc import Callable

SINK = sink_options({"kafka.bootstrap.servers": "127.0.0.1:9092", "sink": "s", "topic": "t"})


@pytest.fixture(autouse=True)
def sessions(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Session]:
    found: dict[Any, Session] = {}

    async def opened(*_: Any) -> Session:
        return Session(ProducerIdentity("spark.s", 1, 0))

    monkeypatch.setattr(exactly_once, "_sessions", found)
    monkeypatch.setattr(exactly_once, "_opened", opened)
    return found


class Interrupted(str):  # noqa: SLOT000
    """Bootstrap servers whose second hash in the main thread calls `rival`: after a look-up, before the next access."""

    rival: Callable[[], None]
    hashes = 0

    def __hash__(self) -> int:
        if threading.current_thread() is threading.main_thread():
            self.hashes += 1
            if self.hashes == 2:
                self.rival()
        return str.__hash__(self)


def test_thread_that_is_interrupted_when_it_claims_a_sink_does_not_write_with_another_one() -> None:
    bootstrap = Interrupted(SINK.bootstrap)
    sink = replace(SINK, bootstrap=bootstrap)
    is_decided, end = threading.Event(), threading.Event()
    writing: list[str] = []

    def rival() -> None:
        def attempt(_session: Session, *, is_first: bool) -> None:
            writing.append("rival")
            is_decided.set()
            end.wait()

        with suppress(SinkInUse):
            repeated(attempt, sink, Batch(0, None, "run"), ignore)
        is_decided.set()

    def start_rival() -> None:
        thread.start()
        is_decided.wait()

    thread = threading.Thread(target=rival)
    bootstrap.rival = start_rival
    try:
        repeated(lambda *_, **__: writing.append("main"), sink, Batch(0, None, "run"), ignore)
    finally:
        end.set()
        thread.join()
    assert writing == ["main"]


def test_oldest_session_is_removed_above_the_limit(
    sessions: dict[Any, Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exactly_once, "SESSIONS_MAX", 2)
    for number, run in enumerate("abac"):
        repeated(lambda *_, **__: None, SINK, Batch(number, "query", run), ignore)
    assert [run for _, _, run in sessions] == ["a", "c"]


@pytest.mark.parametrize(
    ("batch_id", "message"),
    [(None, "the batch failed (attempts: 1): no leader"), (4, "batch 4 failed (attempts: 3): no leader")],
)
def test_failed_batch_is_named_with_its_attempts(batch_id: int | None, message: str) -> None:
    def attempt(_session: Session, *, is_first: bool) -> None:
        raise Doubtful("no leader")

    with pytest.raises(BatchFailed) as failed:
        repeated(attempt, SINK, Batch(batch_id, None, "run"), ignore)
    assert str(failed.value) == message


def test_batch_can_be_written_in_a_notebook_whose_thread_runs_an_event_loop() -> None:
    """Jupyter runs the cells of a notebook in a coroutine, which `asyncio.run` does not allow in the same thread."""
    written = []

    async def cell() -> None:
        repeated(lambda session, **_: written.append(session.identity), SINK, Batch(0, None, "run"), ignore)

    asyncio.run(cell())
    assert written == [ProducerIdentity("spark.s", 1, 0)]


def test_query_that_spark_does_not_list_is_refused() -> None:
    """The id of the process in place of the run would take two runs for one."""
    queries = SimpleNamespace(get=lambda _: None)
    df: Any = SimpleNamespace(
        sparkSession=SimpleNamespace(
            sparkContext=SimpleNamespace(getLocalProperty=lambda _: "query-id"),
            _jvm=SimpleNamespace(
                java=SimpleNamespace(util=SimpleNamespace(UUID=SimpleNamespace(fromString=lambda text: text)))
            ),
            _jsparkSession=SimpleNamespace(sharedState=lambda: SimpleNamespace(activeStreamingQueries=lambda: queries)),
        )
    )
    with pytest.raises(SinkError, match="Spark does not list the streaming query query-id as active"):
        batch.query_of(df)


@pytest.mark.parametrize("batch_id", [-1, 2**63 - 1])
def test_batch_id_that_the_ledger_cannot_have_is_refused(batch_id: int) -> None:
    """The ledger has -1 for a sink without a batch, so such a batch would be written again in each repetition."""
    with pytest.raises(InvalidInput, match=f"batch id {batch_id} is invalid; use 0, and a higher one for each batch"):
        Batch(batch_id, None, "run")
