"""Offsets in transactions: raw requests to one node over real sockets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tests.support.group_client import BUSY, running

if TYPE_CHECKING:
    from pathlib import Path

E = ErrorCode


@pytest.mark.parametrize("version", [2, 3, 4, 5])
async def test_offsets_become_visible_on_commit_and_vanish_on_abort(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as client:
        await client.ready()
        end_version = 5 if version == 5 else 3
        producer = await client.producer()
        assert await client.commit(1) == E.NONE
        for offset, commit in ((7, False), (8, True)):
            if version < 5:
                if version == 4:  # the partition of the group was not added to the transaction
                    assert await client.commit_in_transaction(producer, offset, version) == E.TRANSACTION_ABORTABLE
                added = await client.until_not_busy(AddOffsetsToTxnRequest("tx", *producer, "g"), 3)
                assert added.error_code == E.NONE
            assert await client.commit_in_transaction(producer, offset, version) == E.NONE
            assert (await client.fetched())[0] == 1
            assert await client.fetched(stable=True) == (-1, "", E.UNSTABLE_OFFSET_COMMIT)
            producer = await client.end(producer, commit=commit, version=end_version)
            async with asyncio.timeout(10):
                while (await client.fetched(stable=True))[2] is E.UNSTABLE_OFFSET_COMMIT:
                    await asyncio.sleep(0.001)
            assert (await client.fetched(stable=True))[0] == (offset if commit else 1)


async def test_after_a_restart_committed_offsets_are_visible_and_open_ones_pending(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as client:
        await client.ready()
        producer = await client.producer()
        assert await client.commit_in_transaction(producer, 7, 5) == E.NONE
        producer = await client.end(producer, commit=True, version=5)
        assert await client.commit_in_transaction(producer, 8, 5) == E.NONE
    async with running(tmp_path, seed=8) as client:
        async with asyncio.timeout(10):
            while (committed := await client.fetched()) in BUSY:
                await asyncio.sleep(0.01)
        assert committed[0] == 7
        assert await client.fetched(stable=True) == (-1, "", E.UNSTABLE_OFFSET_COMMIT)
        await client.end(producer, commit=True, version=5)
        async with asyncio.timeout(10):
            while (committed := await client.fetched(stable=True))[2] is E.UNSTABLE_OFFSET_COMMIT:
                await asyncio.sleep(0.001)
        assert committed[0] == 8


async def test_fenced_producer_commits_no_offsets(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        await client.ready()
        producer = await client.producer()
        assert await client.commit_in_transaction(producer, 7, 5) == E.NONE
        await client.producer()
        assert await client.commit_in_transaction(producer, 8, 5) == E.INVALID_PRODUCER_EPOCH
        assert (await client.fetched(stable=True))[0] == -1
