from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek import BrokerFailed, LocalCluster
from odradek.testing.pool import ClusterPool
from odradek.testing.spec import ClusterSpec

if TYPE_CHECKING:
    from pathlib import Path


def test_cluster_that_does_not_start_raises_the_reason_of_its_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.testing.run_directory.base_directory", lambda: tmp_path)
    pool = ClusterPool()
    spec = ClusterSpec.of(settings={"num.partitions": "many"})
    pool.warm(spec)
    with pytest.raises(BrokerFailed, match=r"num\.partitions"):
        pool.cluster(spec)
    assert pool._clusters == {}  # the next test tries again
    pool.close(keep_logs=False)
    assert list(tmp_path.glob("run-*")) == []


def test_local_cluster_in_a_new_directory_raises_the_reason_of_its_broker(tmp_path: Path) -> None:
    cluster = LocalCluster(directory=tmp_path / "new", settings={"num.partitions": "many"})
    with pytest.raises(BrokerFailed, match=r"num\.partitions"):
        cluster.start()
    cluster.close()
    assert not (tmp_path / "new").exists()
