"""The page of records, against a broker in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek import client
from odradek.console.model import memory_limit, records
from odradek.console.settings import Settings
from tests.support.console_client import SMALL, browser
from tests.support.ports import free_port
from tests.support.running_node import running

if TYPE_CHECKING:
    from pathlib import Path

PARTITIONS, READ = 3, 2


async def test_page_of_many_partitions_says_which_it_reads_and_offers_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "PARTITIONS_MAX", READ)
    async with running(tmp_path, *SMALL) as broker:
        bootstrap = f"127.0.0.1:{broker.node.listeners[0].port}"
        async with client.Cluster(bootstrap) as cluster:
            await client.create_topic(cluster, "payments", partitions=PARTITIONS)
            for partition, value in ((0, b"of the first"), (PARTITIONS - 1, b"of the last")):
                record = client.ProducerRecord(None, value, partition=partition)
                await client.Producer(cluster).send("payments", [record])
        async with browser(Settings(bootstrap)) as console:
            every = (await console.get("/topics/payments/records")).text
            last = (await console.get(f"/topics/payments/records?partition={PARTITIONS - 1}")).text
    assert f"This page reads the first {READ} of {PARTITIONS} partitions." in every
    assert "of these partitions from this position" in every
    assert f"<option>{PARTITIONS - 1}</option>" in every
    assert "of the first" in every
    assert "of the last" not in every
    assert f"<option selected>{PARTITIONS - 1}</option>" in last
    assert "This page reads" not in last
    assert "of the last" in last


async def test_page_says_that_the_console_is_busy_while_other_pages_hold_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_limit, "WAIT_S", 0.0)
    async with running(tmp_path, *SMALL) as broker:
        bootstrap = f"127.0.0.1:{broker.node.listeners[0].port}"
        async with client.Cluster(bootstrap) as cluster:
            await client.create_topic(cluster, "payments", partitions=PARTITIONS)
            await client.Producer(cluster).send("payments", [client.ProducerRecord(None, b"v", partition=0)])
        async with browser(Settings(bootstrap)) as console:
            paths = "/topics/payments/records", "/topics/payments/records/0/0"
            with console.app.state.memory.page() as other:
                await other.reserve(memory_limit.BYTES_MAX)
                busy = [await console.get(path) for path in paths]
            after = [await console.get(path) for path in paths]
    for page in busy:
        assert (page.status, page.headers["retry-after"]) == (503, "5")
        assert "The console is busy" in page.text
        assert "hold the memory that they may take together, 512 MiB" in page.text
    assert [page.status for page in after] == [200, 200]


@pytest.mark.parametrize("place", ["-1/0", "0/-1", "x/0", "0/x", "0/99999999999999999999", "1e1/0"])
async def test_address_of_a_record_with_other_than_numbers_is_not_found(place: str) -> None:
    async with browser(Settings(f"127.0.0.1:{free_port()}")) as console:
        assert (await console.get(f"/topics/payments/records/{place}")).status == 404


async def test_address_with_a_name_that_no_request_can_hold_is_invalid(tmp_path: Path) -> None:
    async with (
        running(tmp_path, *SMALL) as broker,
        browser(Settings(f"127.0.0.1:{broker.node.listeners[0].port}")) as console,
    ):
        page = await console.get("/topics/" + 40_000 * "x")
    assert (page.status, "The address is not valid" in page.text) == (400, True)


async def test_page_keeps_the_selected_partition_if_the_cluster_does_not_respond() -> None:
    async with browser(Settings(f"127.0.0.1:{free_port()}")) as console:
        page = await console.get("/topics/payments/records?partition=7")
    assert "<option selected>7</option>" in page.text
