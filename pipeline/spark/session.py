"""Start and stop Spark sessions with pinned connector jars, and settings for one small machine."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / "build" / "jars" / "spark"
LOG4J = Path(__file__).resolve().parents[1] / "log4j2.properties"

SHARED_PROPERTIES = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
# In local mode one JVM is driver and executor. The C1 compiler and the serial garbage collector shorten its start. All
# ports are bound to the loopback address.
LOCAL_PROPERTIES = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": (
        f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.configurationFile={LOG4J.as_uri()}"
    ),
}


def connector_jars() -> list[Path]:
    """Return the jars of Spark's Kafka connector and its dependencies. Raise RuntimeError if there are none."""
    jars = sorted(JARS.glob("*.jar"))
    if not jars:
        raise RuntimeError(f"{JARS} contains no jars: run `make setup` in a source tree of Odradek")
    return jars


def start_session(name: str, master: str, *, console: Path, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start a Spark session in a new JVM. The JVM terminates when this process terminates.

    Args:
        name: Application name.
        master: Any Spark master: local[2], spark://host:7077, yarn, k8s://...
        console: File to which the JVM's standard output and standard error are appended.
        settings: Spark properties that are added to, or replace, those of this module.

    Raises:
        RuntimeError: The connector's jars are missing.
    """
    # In local mode, Spark starts its Python workers with this interpreter. Another one may lack the packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setMaster(master).setAppName(name)
    conf.set("spark.jars", ",".join(str(jar) for jar in connector_jars()))
    local = LOCAL_PROPERTIES if master.startswith("local") else {}
    conf.setAll([*SHARED_PROPERTIES.items(), *local.items(), *(settings or {}).items()])
    with console.open("ab") as output:
        # SparkContext's own gateway would print the JVM's output on the terminal. launch_gateway has no annotations.
        gateway = launch_gateway(conf, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
    return SparkSession(SparkContext(conf=conf, gateway=gateway))


def kill_session() -> None:
    """Kill the JVM. This function may be called from any thread, also while another thread waits for the JVM."""
    # py4j logs every call that fails because of the kill. Without a handler, the root logger would print it.
    logging.getLogger().addHandler(logging.NullHandler())
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.proc.kill()
        gateway.proc.wait()


def stop_session(session: SparkSession) -> None:
    """Stop the session and its JVM. `SparkSession.stop` alone would leave the JVM running until Python exits."""
    gateway = session.sparkContext._gateway
    session.stop()
    if gateway is not None:
        gateway.shutdown()
        process = gateway.proc
        process.stdin.close()  # the JVM exits when its standard input ends
        process.wait()
        SparkContext._gateway = None
        SparkContext._jvm = None
