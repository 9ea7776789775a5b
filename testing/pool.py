"""The clusters of one test process. Each is started once, and tests with equal parameters share it."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from odradek.testing.kafka_cluster import KafkaCluster
from odradek.testing.run_directory import RunDirectory

if TYPE_CHECKING:
    from odradek.testing.spec import ClusterSpec

STARTS_MAX = 2
"""Maximum clusters that start at the same time. Each broker needs a core for half a second."""


class ClusterPool:
    """Clusters by their parameters. `warm` starts one in the background, `cluster` waits for it."""

    def __init__(self) -> None:
        self.run_directory = RunDirectory()
        self._executor = ThreadPoolExecutor(STARTS_MAX, "odradek-start")
        self._clusters: dict[ClusterSpec, Future[KafkaCluster]] = {}

    def warm(self, spec: ClusterSpec) -> None:
        """Begin to start the cluster, if it does not run and is not starting."""
        if spec not in self._clusters:
            self._clusters[spec] = self._executor.submit(self.start, spec)

    def cluster(self, spec: ClusterSpec) -> KafkaCluster:
        """Return the running cluster. Raise BrokerFailed if it does not start; the next call tries again."""
        self.warm(spec)
        try:
            return self._clusters[spec].result()
        except BaseException:
            del self._clusters[spec]
            raise

    def discard(self, spec: ClusterSpec) -> None:
        """End a cluster that is not usable for further tests."""
        future = self._clusters.pop(spec, None)
        if future is not None:
            future.result().close()

    def start(self, spec: ClusterSpec) -> KafkaCluster:
        """Return a new cluster, which the pool does not know. The caller closes it."""
        cluster = KafkaCluster(
            spec.brokers,
            directory=self.run_directory.new_cluster(),
            settings=dict(spec.settings),
            security=spec.security,
        )
        try:
            cluster.start()
        except BaseException:
            cluster.close()
            raise
        return cluster

    def close(self, *, keep_logs: bool) -> None:
        """End all clusters. With `keep_logs`, leave the logs of brokers."""
        self._executor.shutdown(wait=True, cancel_futures=True)
        for future in self._clusters.values():
            if not future.cancelled() and future.exception() is None:
                future.result().close()
        self._clusters.clear()
        self.run_directory.close(keep_logs=keep_logs)
