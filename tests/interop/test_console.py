"""The pages of the console on Odradek and on Apache Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek import client
from odradek.console.settings import Settings
from tests.support.console_client import browser

if TYPE_CHECKING:
    from odradek import LocalCluster
    from tests.support.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]


@pytest.fixture(params=[pytest.param("odradek", marks=pytest.mark.full), "kafka"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    running: LocalCluster | KafkaBroker
    running = request.getfixturevalue("odradek_cluster" if request.param == "odradek" else "kafka_broker")
    return running.bootstrap


async def test_pages_show_the_cluster_and_the_states_of_transactions(bootstrap: str, name: str) -> None:
    async with client.Cluster(bootstrap) as cluster:
        await client.create_topic(cluster, name, partitions=1, replication_factor=1)
        committed, aborted, open_one = (client.Producer(cluster, transactional_id=f"{name}-{i}") for i in range(3))
        for producer, value in ((committed, b"v1"), (aborted, b"v2"), (open_one, b"v3"), (committed, b"v4")):
            await producer.begin()
            await producer.send(name, [client.ProducerRecord(b"k", value)])
            if producer is committed:
                await producer.commit()
            elif producer is aborted:
                await producer.abort()
        async with browser(Settings(bootstrap)) as console:
            paths = ("/cluster", "/topology", f"/topics?q={name}", f"/topics/{name}", f"/topics/{name}/configs")
            pages = {path: await console.get(path) for path in paths}
            records = await console.get(f"/topics/{name}/records")
            found = await console.get(f"/topics/{name}/records?key=k&partition=0&markers=1")
            single = await console.get(f"/topics/{name}/records/0/0")
        await open_one.abort()
    for path, page in pages.items():
        assert page.status == 200, path
        assert "failed" not in page.text, path
    assert '<span class="state good">running</span>' in pages["/cluster"].text
    assert "retention.ms" in pages[f"/topics/{name}/configs"].text
    states = ['good">committed', 'warn">open', 'bad">aborted', 'good">committed']
    positions = [records.text.index(value) for value in ("v4", "v3", "v2", "v1")]
    assert positions == sorted(positions)
    rows = records.text.split("<tr>")[2:]
    assert [state in row for state, row in zip(states, rows, strict=True)] == [True] * 4
    assert found.text.count("<tr>") == 5
    assert "v1" in single.text
