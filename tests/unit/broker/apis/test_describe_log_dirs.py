"""DescribeLogDirs: what lies in the data directory, and how large its volume is."""

from pathlib import Path
from typing import Any

import pytest

from odradek.broker.apis import describe_log_dirs
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from odradek.storage.producers.entry import Origin
from tests.support import broker_context
from tests.support.data_rig import NOW_MS, Rig, batch


def described(rig: Rig, *topics: tuple[str, int]) -> Any:
    named = [DescribableLogDirTopic(topic, [index]) for topic, index in topics] if topics else None
    (result,) = describe_log_dirs.handle(rig.context(35, 5), DescribeLogDirsRequest(named)).results
    return result


async def test_replicas_and_the_volume_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    monkeypatch.setattr(rig.disk, "total_bytes", {"/data": 1_000}.__getitem__)
    monkeypatch.setattr(rig.disk, "free_bytes", {"/data": 400}.__getitem__)
    rig.topic("a", 2)
    rig.topic("b", number=101)
    rig.partition("a", 1).append(batch(), origin=Origin.CLIENT, now_ms=NOW_MS)
    result = described(rig)
    sizes = {
        (topic.name, row.partition_index): row.partition_size for topic in result.topics for row in topic.partitions
    }
    assert sizes == {("a", 0): 0, ("a", 1): len(batch()), ("b", 0): 0}
    assert (result.log_dir, result.total_bytes, result.usable_bytes, result.is_cordoned) == ("/data", 1_000, 400, False)
    assert [topic.name for topic in described(rig, ("b", 0), ("unknown", 0)).topics] == ["b"]


async def test_it_is_for_those_who_may(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.services.authorizer = broker_context.Deny((AclOperation.DESCRIBE, "kafka-cluster"))
    with pytest.raises(Refusal) as caught:
        described(rig)
    assert caught.value.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for version, at_top in ((5, True), (2, False)):
        context = rig.context(35, version)
        response = describe_log_dirs.refuse(
            context, DescribeLogDirsRequest(), ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None
        )
        assert bool(response.error_code) == at_top
        assert bool(response.results) != at_top
