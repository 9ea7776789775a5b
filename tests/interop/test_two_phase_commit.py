"""Two-phase commit (KIP-939): Kafka's tools show, end and decode a transaction whose owner does not come back."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from odradek import client
from tests.support.command_line import json_output, odradek
from tests.support.jars import REFERENCE
from tests.support.kafka_jars import run_class
from tests.support.kafka_tools import LOGGING

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
OWNER = "owner-1"
JAVA_OWNER = Path(__file__).parent / "java" / "TwoPhaseCommit.java"
JAVA_TIMEOUT_S = 120.0


async def prepare_and_keep(bootstrap: str) -> client.PreparedTransaction:
    """Prepare a transaction of the first incarnation of an owner. Keep it with the second one, which then fails."""
    async with client.Cluster(bootstrap) as cluster:
        first, second = (client.Producer(cluster, OWNER, two_phase_commit=True) for _ in range(2))
        await first.begin()
        await first.send("t", [client.ProducerRecord(None, b"prepared")])
        prepared = await first.prepare()
        assert await second.recover() == prepared
        return prepared


def transactions(bootstrap: str, *arguments: str) -> list[list[str]]:
    finished = run_class(TRANSACTIONS, "--bootstrap-server", bootstrap, *arguments)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return [[cell.strip() for cell in line.split("\t")] for line in finished.stdout.splitlines() if OWNER in line]


def records_of_owner(directory: Path) -> list[dict[str, object]]:
    """Return the records of the owner's transactional id in the order of the log, as Kafka's decoder prints them."""
    files = [path for path in directory.glob("*/__transaction_state-*/*.log") if path.stat().st_size]
    finished = run_class(DUMP, "--transaction-log-decoder", "--files", ",".join(map(str, files)))
    assert finished.returncode == 0, finished.stderr
    lines = [line for line in finished.stdout.splitlines() if OWNER in line]
    return [json.loads(line.partition(" payload: ")[2])["data"] for line in lines]


@pytest.mark.feature("kafka-transactions: forceTerminateTransaction of a kept transaction", client="Kafka's tools 4.3")
def test_kafkas_tools_end_and_decode_a_kept_transaction(tmp_path: Path) -> None:
    started = odradek("up", "--brokers", "1", "--dir", str(tmp_path), "--port", "0", "--detach", "--two-phase-commit")
    assert started.returncode == 0, started.stderr
    try:
        bootstrap = started.stdout.split()[1]
        json_output("topics", "create", "t", "--bootstrap", bootstrap)
        prepared = asyncio.run(prepare_and_keep(bootstrap))
        [row] = json_output("txns", "--bootstrap", bootstrap)
        assert (row["condition"], row["times_out"], row["held_back"]) == ("in doubt", "never", 1)
        [[coordinator, name, producer_id, epoch, state, timeout_ms, *_]] = transactions(
            bootstrap, "describe", "--transactional-id", OWNER
        )
        assert (coordinator, name, state, timeout_ms) == ("1", OWNER, "Ongoing", "2147483647")
        assert f"{producer_id}:{epoch}" == str(prepared)
        transactions(bootstrap, "forceTerminateTransaction", "--transactionalId", OWNER)
        [[*_, state]] = [[cell for cell in row if cell] for row in transactions(bootstrap, "list")]
        assert state == "Empty"
        assert json_output("txns", "--bootstrap", bootstrap) == []
    finally:
        odradek("down", "--dir", str(tmp_path))
    epochs = [(row["producerEpoch"], row.get("nextProducerEpoch")) for row in records_of_owner(tmp_path)]
    first = prepared.producer_epoch
    # Empty, Ongoing, Ongoing (kept), PrepareAbort, CompleteAbort, Empty
    assert epochs == [
        (first, None),
        (first, None),
        (first, first + 1),
        (first + 1, first + 2),
        (first + 2, None),
        (first + 3, None),
    ]


def java_owner(bootstrap: str, *arguments: str) -> str:
    """Run an owner that uses Kafka's Java producer. Return the identity of the prepared transaction."""
    java = ["java", "-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={LOGGING}"]
    finished = subprocess.run(
        [*java, "-cp", f"{REFERENCE}/*", str(JAVA_OWNER), bootstrap, OWNER, *arguments],
        capture_output=True,
        text=True,
        timeout=JAVA_TIMEOUT_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


@pytest.mark.full
@pytest.mark.feature("two-phase commit: prepare, keep, commit and abort", client="Java 4.4")
def test_java_producer_ends_the_transaction_of_its_killed_predecessor(tmp_path: Path) -> None:
    started = odradek("up", "--brokers", "1", "--dir", str(tmp_path), "--port", "0", "--detach", "--two-phase-commit")
    assert started.returncode == 0, started.stderr
    try:
        bootstrap = started.stdout.split()[1]
        json_output("topics", "create", "t", "--bootstrap", bootstrap)
        first = java_owner(bootstrap, "prepare", "t", "committed")
        [row] = json_output("txns", "--bootstrap", bootstrap)
        assert (row["condition"], row["times_out"], row["held_back"]) == ("in doubt", "never", 1)
        assert f"{row['producer_id']}:{row['producer_epoch']}" == first
        assert java_owner(bootstrap, "complete", first) == first
        second = java_owner(bootstrap, "prepare", "t", "aborted")
        assert second != first
        assert java_owner(bootstrap, "complete", first) == second
        assert json_output("txns", "--bootstrap", bootstrap) == []
        [line] = odradek("consume", "t", "--json", "--bootstrap", bootstrap).stdout.splitlines()
        assert json.loads(line)["value"] == "committed"
    finally:
        odradek("down", "--dir", str(tmp_path))
