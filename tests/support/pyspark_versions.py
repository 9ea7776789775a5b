"""Versions of pyspark: whether the jars of Spark's own Kafka connector fit to the installed one."""

from __future__ import annotations

import pyspark

from odradek.pipeline.spark.session import connector_jars


def connector_fits() -> bool:
    """Return True if the connector has the version of pyspark. Another version does not work."""
    return any(jar.name.endswith(f"-{pyspark.__version__}.jar") for jar in connector_jars())
