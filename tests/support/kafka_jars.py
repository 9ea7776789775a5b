"""Runs a main class out of Kafka's jars."""

from __future__ import annotations

import subprocess

from tests.support.jars import PREVIOUS
from tests.support.kafka_tools import LOGGING

TIMEOUT_S = 120.0


def run_class(main_class: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Exit code and output are the caller's to judge."""
    java = ["java", "-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={LOGGING}"]
    return subprocess.run(
        [*java, "-cp", f"{PREVIOUS}/*", main_class, *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
