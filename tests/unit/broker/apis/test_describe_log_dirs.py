"""DescribeLogDirs: replicas of the data directory, and the size of its volume."""

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


def describe(rig: Rig, *topics: tuple[str, int]) -> Any:
    requested_topics = [DescribableLogDirTopic(topic, [index]) for topic, index in topics] if topics else None
    response: Any = describe_log_dirs.handle(rig.context(35, 5), DescribeLogDirsRequest(requested_topics))
    (result,) = response.results
    return result


async def test_response_has_replica_sizes_and_the_size_of_the_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    monkeypatch.setattr(rig.disk, "total_bytes", {"/data": 1_000}.__getitem__)
    monkeypatch.setattr(rig.disk, "free_bytes", {"/data": 400}.__getitem__)
    rig.topic("a", 2)
    rig.topic("b", number=101)
    rig.partition("a", 1).append(batch(), origin=Origin.CLIENT, now_ms=NOW_MS)
    result = describe(rig)
    sizes = {
        (topic.name, row.partition_index): row.partition_size for topic in result.topics for row in topic.partitions
    }
    assert sizes == {("a", 0): 0, ("a", 1): len(batch()), ("b", 0): 0}
    assert (result.log_dir, result.total_bytes, result.usable_bytes, result.is_cordoned) == ("/data", 1_000, 400, False)
    assert [topic.name for topic in describe(rig, ("b", 0), ("unknown", 0)).topics] == ["b"]


async def test_offline_replica_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    for name in ("total_bytes", "free_bytes"):
        monkeypatch.setattr(rig.disk, name, {"/data": 1_000}.__getitem__)
    rig.topic("a", 2)
    rig.partition("a", 0).take_offline(OSError("I/O error"))
    assert [[row.partition_index for row in topic.partitions] for topic in describe(rig).topics] == [[1]]
    assert describe(rig, ("a", 0)).topics == []


async def test_describe_log_dirs_needs_permission_to_describe_the_cluster(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.services.authorizer = broker_context.Deny((AclOperation.DESCRIBE, "kafka-cluster"))
    with pytest.raises(Refusal) as caught:
        describe(rig)
    assert caught.value.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for version, at_top in ((5, True), (2, False)):
        context = rig.context(35, version)
        response = describe_log_dirs.refuse(
            context, DescribeLogDirsRequest(), ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None
        )
        assert bool(response.error_code) == at_top
        assert bool(response.results) != at_top
