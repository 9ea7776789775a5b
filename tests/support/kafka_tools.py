"""Kafka's own command-line tools, run from the jars."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.kafka_broker import JARS

LOGGING = Path(__file__).resolve().parents[1] / "interop" / "java" / "log4j2.properties"
TIMEOUT_S = 120.0
TOOLS = {
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
}


def run_tool(name: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a tool to its end; its exit code and output are the caller's to judge."""
    java = ["java", "-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={LOGGING}"]
    return subprocess.run(
        [*java, "-cp", f"{JARS}/*", TOOLS[name], *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
