"""Floods of requests on a broker process with small limits.

Each flood is refused at its limit, its memory stays bounded, and another client is served. `make floods` uses the real
limits and prints figures.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.flood_requests import (
    LONGEST,
    METADATA,
    SESSION_PARTITIONS,
    TOPIC_PARTITIONS,
    Flood,
    Limits,
    floods,
    share_of_address,
)
from benchmarks.floods import Broker, Report, Witness, measure
from tests.support.small_limits_broker import SmallLimitsBrokerCommand

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 40
LIMITS = Limits(
    groups=LIMIT,
    pending=LIMIT // 2,
    members_bytes=16 * len(METADATA),  # enough for LIMIT members with small metadata and assignments
    offsets=LIMIT // 2 * TOPIC_PARTITIONS,
    metadata_bytes=LIMIT // 2 * len(LONGEST),
    transactional_ids=LIMIT,
    producers=LIMIT,
    session_partitions=5 * SESSION_PARTITIONS,
)
CONSTANTS = {
    "odradek.coordinator.group.state.GROUPS_MAX": LIMITS.groups,
    "odradek.coordinator.group.memory_accounting.MEMBERS_BYTES_MAX": LIMITS.members_bytes,
    "odradek.coordinator.group.offsets.commit.OFFSETS_MAX": LIMITS.offsets,
    "odradek.coordinator.group.offsets.commit.METADATA_BYTES_MAX": LIMITS.metadata_bytes,
    "odradek.coordinator.group.classic.join.PENDING_MAX": LIMITS.pending,
    "odradek.coordinator.txn.init_producer_id.TRANSACTIONAL_IDS_MAX": LIMITS.transactional_ids,
    "odradek.storage.producers.state.PRODUCERS_MAX": LIMITS.producers,
    "odradek.broker.fetch.sessions.PARTITIONS_MAX": LIMITS.session_partitions,
}


async def test_floods_are_refused_and_another_client_is_served(tmp_path: Path) -> None:
    broker = Broker(tmp_path, partial(SmallLimitsBrokerCommand, limits=CONSTANTS))
    try:
        await broker.ready()
        witness = Witness(await broker.connect("witness"))
        await witness.prepare()
        reports = [await measure(broker, witness, flood) for flood in floods(LIMITS)]
    finally:
        code = broker.stop()
    assert code == 0
    assert [fault for report in reports for fault in report.faults()] == []
    assert all(report.took_ms for report in reports), "the witness client was served during each flood"
    accepted = {report.flood.name: report.accepted for report in reports}
    full = {flood.name: flood.limit for flood in floods(LIMITS) if flood.accepted}
    assert accepted == {**accepted, **full, "Produce, endless producers": share_of_address(LIMIT) - 1}, (
        "the witness client is a producer, too"
    )


def test_flood_without_a_refusal_is_reported_as_a_fault() -> None:
    flood = Flood("f", "nothing", 1, "FULL", 0, lambda: iter(()), lambda _: "NONE")
    unlimited = Report(flood, 0.0, outcomes={"NONE": 2, "ODD": 1}, limit_mib=10, after_mib=1_000)
    assert unlimited.faults() == [
        "f: unexpected responses ['ODD']",
        "f: no request was refused",
        "f: 2 requests were accepted, the limit is 1",
        "f: grew by 1000 MiB, the limit is 128",
        "f: grew by 990 MiB while all requests were refused",
    ]
    assert Report(flood, 0.0, outcomes={"NONE": 1, "FULL": 1}).faults() == []
