"""One way to a Spark session: pinned connector jars, little noise, quick on a small machine."""

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

COMMON = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
# One JVM does it all: tier-one compilation and the serial collector start quickest; nothing listens outside the machine.
LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.configurationFile={LOG4J.as_uri()}",
}


def connector_jars() -> list[Path]:
    """The stock connector and what it needs beside pyspark; RuntimeError when set-up has not fetched them."""
    jars = sorted(JARS.glob("*.jar"))
    if not jars:
        raise RuntimeError(f"no jars in {JARS}: run `make setup` in a source tree of Odradek")
    return jars


def start_session(name: str, master: str, *, console: Path, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark; the JVM's standard error goes to ``console``. The JVM ends when this process does.

    Args:
        name: application name.
        master: any Spark master: local[2], spark://host:7077, yarn, k8s://...
        console: file for everything that the JVM prints.
        settings: Spark properties over those set here.
    """
    # Executors of local mode start Python workers by this name; another python would lack the packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setMaster(master).setAppName(name)
    conf.set("spark.jars", ",".join(str(jar) for jar in connector_jars()))
    conf.setAll([*COMMON.items(), *(LOCAL.items() if master.startswith("local") else ()), *(settings or {}).items()])
    with console.open("ab") as output:
        # pyspark has no annotations here, and no other way to keep the JVM's noise out of the terminal.
        gateway = launch_gateway(conf, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
    return SparkSession(SparkContext(conf=conf, gateway=gateway))


def kill_session() -> None:
    """End the JVM at once, from any thread, whatever another thread is waiting for from it."""
    # py4j reports every call that this cuts off to the root logger, which prints when nobody has given it a handler.
    logging.getLogger().addHandler(logging.NullHandler())
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.proc.kill()
        gateway.proc.wait()


def stop_session(session: SparkSession) -> None:
    """Stop Spark and its JVM. (Stopping the session alone leaves the JVM running until Python exits.)"""
    gateway = session.sparkContext._gateway
    session.stop()
    if gateway is not None:
        gateway.shutdown()
        process = gateway.proc
        process.stdin.close()  # what the JVM waits for
        process.wait()
        SparkContext._gateway = None
        SparkContext._jvm = None
