"""The pages of the console on Odradek and on Apache Kafka, and while brokers fail."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from odradek import LocalCluster, client
from odradek.console.settings import Settings
from tests.support.console_client import browser

if TYPE_CHECKING:
    from tests.support.console_client import Browser, Page
    from tests.support.kafka_broker import KafkaBroker

LOADS = 50
"""Pages that are loaded at the same time."""
PAGE_S = 20.0
"""Maximum seconds of a page: 12 for records, 6 for parts one after the other, and some for a loaded machine."""

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


def paths(name: str) -> list[str]:
    """Return addresses of LOADS pages, of each kind."""
    topic = f"/topics/{name}"
    kinds = ["/cluster", "/topology", "/topics", topic, f"{topic}/configs", f"{topic}/records", f"{topic}/records/0/0"]
    kinds += [f"{topic}/records?key=k", f"{topic}/records?time=0", "/groups", "/groups/id?id=g", "/metrics"]
    kinds += ["/transactions", f"/transactions/id?id={name}", "/transactions/log"]
    return [kinds[number % len(kinds)] for number in range(LOADS)]


async def loaded(console: Browser, name: str) -> dict[str, list[Page]]:
    """Load all pages at the same time, each within its deadline. Return them by address."""
    async with asyncio.timeout(PAGE_S):
        found = await asyncio.gather(*map(console.get, paths(name)))
    pages: dict[str, list[Page]] = {}
    for path, page in zip(paths(name), found, strict=True):
        assert page.status in {200, 404, 502, 504}, path
        assert page.status == 200 or 'role="alert">' in page.text, f"{path} says no reason"
        pages.setdefault(path, []).append(page)
    return pages


async def test_pages_respond_while_brokers_fail_and_recover_with_the_cluster(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalCluster(3) as running:
        async with client.Cluster(running.bootstrap) as cluster:
            await client.create_topic(cluster, name, partitions=3)
            producer = client.Producer(cluster, transactional_id=name)
            await producer.begin()
            await producer.send(name, [client.ProducerRecord(b"k", b"v", partition=index) for index in range(3)])
            await producer.commit()
        async with browser(Settings(running.bootstrap)) as console, console.stream("/cluster") as source:
            assert 'good">running' in await source.next_of("state")
            loading = asyncio.create_task(loaded(console, name))
            await asyncio.to_thread(running.kill, 2)
            await loading
            await loaded(console, name)
            for node_id in (1, 3):
                await asyncio.to_thread(running.kill, node_id)
            while "not read" not in await source.next_of("state"):
                pass
            away = await loaded(console, name)
            assert "cannot connect to a broker" in away["/cluster"][0].text
            await asyncio.to_thread(running.start)
            async with asyncio.timeout(PAGE_S):  # brokers know each other a moment later
                while 'class="failed"' in await source.next_of("state"):
                    pass
            back = await loaded(console, name)
    failures = {path for path, pages in back.items() if any(page.status != 200 for page in pages)}
    assert failures == set()
    assert [record.getMessage() for record in caplog.records if record.levelname in {"WARNING", "ERROR"}] == []
