"""Runs of queries in one process: their sessions, and the threads that write to one sink."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError

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


class Queries(dict[str, Any]):
    """Active streaming queries of Spark, a ConcurrentHashMap."""

    def elements(self) -> Any:
        left = list(self.values())
        return SimpleNamespace(hasMoreElements=lambda: bool(left), nextElement=lambda: left.pop(0))


class JavaSession:
    """Session of the JVM. py4j gives another Python object for the same session, so only `equals` compares sessions."""

    def __init__(self, name: str, queries: Queries) -> None:
        self.name = name
        self.queries = queries

    def equals(self, other: JavaSession) -> bool:
        return self.name == other.name

    def sharedState(self) -> Any:
        return SimpleNamespace(activeStreamingQueries=lambda: self.queries)


def rows_in(session: str, query_id: str | None, queries: Queries) -> Any:
    """Return a DataFrame of a session, used in a thread whose local property is `query_id`."""
    return SimpleNamespace(
        sparkSession=SimpleNamespace(
            sparkContext=SimpleNamespace(getLocalProperty=lambda _: query_id),
            _jvm=SimpleNamespace(
                java=SimpleNamespace(util=SimpleNamespace(UUID=SimpleNamespace(fromString=lambda text: text)))
            ),
            _jsparkSession=JavaSession(session, queries),
        )
    )


def queries_in(*sessions: str) -> Queries:
    """Return an active query per session, with the ids `query of SESSION` and `run of SESSION`."""
    found = Queries()
    for session in sessions:
        found[f"query of {session}"] = SimpleNamespace(
            id=lambda session=session: SimpleNamespace(toString=lambda: f"query of {session}"),
            runId=lambda session=session: SimpleNamespace(toString=lambda: f"run of {session}"),
            sparkSessionForStream=lambda session=session: JavaSession(session, found),
        )
    return found


def test_query_that_spark_does_not_list_is_refused() -> None:
    """The id of the process in place of the run would take two runs for one."""
    with pytest.raises(SinkError, match="Spark does not list the streaming query query-id as active"):
        batch.query_of(rows_in("a", "query-id", Queries()))


def test_query_of_a_batch_in_a_thread_without_local_properties_is_found_by_the_session() -> None:
    found = batch.query_of(rows_in("b", None, queries_in("a", "b", "c")))
    assert found == ("query of b", "run of b")


def test_version_of_spark_without_sessions_of_queries_leaves_a_batch_outside_of_streaming() -> None:
    def missing() -> None:
        raise Py4JError("Method sparkSessionForStream([]) does not exist")

    queries = Queries(a=SimpleNamespace(sparkSessionForStream=missing))
    assert batch.query_of(rows_in("a", None, queries)) == (None, batch.PROCESS_RUN_ID)


@pytest.mark.parametrize("sessions", [(), ("a", "b")])
def test_batch_in_a_session_without_a_query_is_outside_of_streaming(sessions: tuple[str, ...]) -> None:
    found = batch.query_of(rows_in("session of the user", None, queries_in(*sessions)))
    assert found == (None, batch.PROCESS_RUN_ID)


@pytest.mark.parametrize("batch_id", [-1, 2**63 - 1])
def test_batch_id_that_the_ledger_cannot_have_is_refused(batch_id: int) -> None:
    """The ledger has -1 for a sink without a batch, so such a batch would be written again in each repetition."""
    with pytest.raises(InvalidInput, match=f"batch id {batch_id} is invalid; use 0, and a higher one for each batch"):
        Batch(batch_id, None, "run")
