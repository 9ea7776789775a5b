"""Folders of Apache Kafka's jars that `make setup` fills."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "build" / "jars" / "kafka"
"""Apache Kafka 4.4.0: message schemas, broker and Java client."""
PREVIOUS = ROOT / "build" / "jars" / "kafka-4.3"
"""Apache Kafka 4.3.1: broker, Java client, command-line tools and Kafka Streams."""
CLIENT_3_9 = ROOT / "build" / "jars" / "kafka-3.9"
"""Java client 3.9.2."""
