"""The source, the sink and the stock connector of Spark by SASL_SSL, with one set of options."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from odradek import LocalCluster
from odradek.client import Cluster, Security, Settings, create_topic
from odradek.pipeline.audit import RunningCluster, audit
from odradek.spark import OdradekDataSource
from tests.support.pyspark_versions import connector_fits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.full]
TOPIC = "secured"
ROWS = 100


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(security="sasl_ssl") as running:
        yield running


def settings_of(cluster: LocalCluster) -> Settings:
    return Settings(security=Security.of(cluster.client_config("java")))


def test_rows_of_the_sink_are_read_by_both_sources_and_audited(
    spark: SparkSession, cluster: LocalCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    async def create() -> None:
        async with Cluster(cluster.bootstrap, settings_of(cluster)) as connected:
            await create_topic(connected, TOPIC, partitions=2)

    asyncio.run(create())
    spark.dataSource.register(OdradekDataSource)
    options = cluster.client_config("spark")
    written = spark.range(ROWS).selectExpr("cast(id as string) as value")
    written.write.format("odradek").options(**options, sink="secured", topic=TOPIC, batchId="0").mode("append").save()
    for kind in ("odradek", *(("kafka",) if connector_fits() else ())):
        read = spark.read.format(kind).options(**options, subscribe=TOPIC).load()
        values = {int(row.value) for row in read.selectExpr("cast(value as string) as value").collect()}
        assert values == set(range(ROWS)), kind
        read.explain(mode="extended")
    password = cluster.client_config("confluent")["sasl.password"]
    assert password not in capfd.readouterr().out
    result = audit(spark, RunningCluster(cluster.bootstrap, settings_of(cluster)))
    assert result.ok, result.lines()


def test_refused_password_is_in_no_error(spark: SparkSession, cluster: LocalCluster) -> None:
    spark.dataSource.register(OdradekDataSource)
    password = cluster.client_config("confluent")["sasl.password"]
    name = "kafka.sasl.jaas.config"
    options = cluster.client_config("spark")
    options[name] = options[name].replace(password, "wrong-secret")
    with pytest.raises(PySparkException, match="check the user 'admin' and its password") as failed:
        spark.read.format("odradek").options(**options, subscribe=TOPIC).load().collect()
    assert "wrong-secret" not in str(failed.value)
