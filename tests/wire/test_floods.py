"""Floods on a broker process with small limits: each is refused in time, leaves no more than it may, and others are served.

With the real limits, and with figures: `make floods`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.flood_requests import LONGEST, METADATA, SESSION_PARTITIONS, TOPIC_PARTITIONS, Flood, Limits, floods
from benchmarks.floods import Broker, Report, Witness, measure
from tests.support.scaled_broker import ScaledBrokerCommand

if TYPE_CHECKING:
    from pathlib import Path

FEW = 40
LIMITS = Limits(
    groups=FEW,
    pending=FEW // 2,
    members_bytes=16 * len(METADATA),  # enough for FEW members that say and get little
    offsets=FEW // 2 * TOPIC_PARTITIONS,
    metadata_bytes=FEW // 2 * len(LONGEST),
    transactional_ids=FEW,
    producers=FEW,
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


async def test_floods_are_refused_and_others_are_served(tmp_path: Path) -> None:
    broker = Broker(tmp_path, partial(ScaledBrokerCommand, limits=CONSTANTS))
    try:
        await broker.ready()
        witness = Witness(await broker.connect("witness"))
        await witness.prepare()
        reports = [await measure(broker, witness, flood) for flood in floods(LIMITS)]
    finally:
        code = broker.stop()
    assert code == 0
    assert [fault for report in reports for fault in report.faults()] == []
    assert all(report.took_ms for report in reports), "the witness was served during each of them"
    accepted = {report.flood.name: report.accepted for report in reports}
    full = {flood.name: flood.limit for flood in floods(LIMITS) if flood.accepted}
    assert accepted == {**accepted, **full, "Produce, endless producers": FEW - 1}, "the witness is a producer, too"


def test_a_flood_that_is_never_refused_is_a_fault() -> None:
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
