"""Two-phase commit over TCP (KIP-939): an owner prepares, the broker restarts, and the owner ends its transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from odradek.client import (
    Cluster,
    Fenced,
    HolderState,
    InvalidArgument,
    InvalidState,
    PreparedTransaction,
    Producer,
    ProducerRecord,
    UnsupportedRequest,
    blocked_partitions,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.list_transactions import ListTransactionsRequest
from tests.support.raw_client import ConnectionLost
from tests.support.running_node import READ_COMMITTED, RunningNode, running

if TYPE_CHECKING:
    from pathlib import Path

ENABLED = "transaction.two.phase.commit.enable=true"
OWNER = "owner"


async def init(node: RunningNode, *, keep: bool = False) -> Any:
    """Send InitProducerId v6 as a 2PC owner does. Return its response."""
    await node.init("any")  # creates __transaction_state
    request = InitProducerIdRequest(OWNER, 0, enable2_pc=True, keep_prepared_txn=keep)
    response = await node.until_not_busy(request, 6)
    assert response.error_code == ErrorCode.NONE
    return response


async def produce(node: RunningNode, value: bytes, producer_id: int, epoch: int) -> int:
    partition = await node.produce(
        "t",
        value,
        version=13,
        transactional_id=OWNER,
        base_sequence=0,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    return int(partition.error_code)


async def state_of_owner(node: RunningNode) -> str:
    response = await node.call(ListTransactionsRequest(), 1)
    states = {row.transactional_id: row.transaction_state for row in response.transaction_states}
    return str(states[OWNER])


async def ended(node: RunningNode, producer_id: int, epoch: int, *, commit: bool) -> Any:
    """End the transaction, and wait until its markers are written. Return the response."""
    response = await node.until_not_busy(EndTxnRequest(OWNER, producer_id, epoch, committed=commit), 5)
    while (await state_of_owner(node)).startswith("Prepare"):
        pass
    return response


@pytest.mark.parametrize("commit", [True, False])
async def test_owner_ends_its_transaction_after_restarts_of_the_broker(tmp_path: Path, commit: bool) -> None:
    async with running(tmp_path, ENABLED) as node:
        await node.metadata("t")
        first = await init(node)
        assert (first.ongoing_txn_producer_id, first.ongoing_txn_producer_epoch) == (-1, -1)
        producer_id, epoch = first.producer_id, first.producer_epoch
        assert await produce(node, b"prepared", producer_id, epoch) == ErrorCode.NONE
    for restarts in (1, 2):
        async with running(tmp_path, ENABLED) as node:
            owner = await init(node, keep=True)
            assert (owner.ongoing_txn_producer_id, owner.ongoing_txn_producer_epoch) == (producer_id, epoch)
            assert (owner.producer_id, owner.producer_epoch) == (producer_id, epoch + restarts)
            assert await node.values("t", READ_COMMITTED) == []
    async with running(tmp_path, ENABLED) as node:
        await node.metadata("t")
        await node.init("any")
        former = await ended(node, producer_id, epoch, commit=commit)
        assert former.error_code == ErrorCode.PRODUCER_FENCED
        end = await ended(node, producer_id, epoch + 2, commit=commit)
        assert (end.error_code, end.producer_id, end.producer_epoch) == (0, producer_id, epoch + 3)
        assert await state_of_owner(node) == ("CompleteCommit" if commit else "CompleteAbort")
        visible = [b"prepared"] if commit else []
        assert await node.values("t", READ_COMMITTED) == visible
        assert await produce(node, b"next", producer_id, epoch + 3) == ErrorCode.NONE
        assert (await ended(node, producer_id, epoch + 3, commit=True)).error_code == ErrorCode.NONE
        assert await node.values("t", READ_COMMITTED) == [*visible, b"next"]


async def test_owner_of_a_kept_transaction_cannot_write(tmp_path: Path) -> None:
    async with running(tmp_path, ENABLED, "num.partitions=1") as node:
        await node.metadata("t")
        first = await init(node)
        assert await produce(node, b"prepared", first.producer_id, first.producer_epoch) == ErrorCode.NONE
        owner = await init(node, keep=True)
        error = await produce(node, b"late", owner.producer_id, owner.producer_epoch)
        assert error == ErrorCode.INVALID_TXN_STATE
        assert (await ended(node, owner.producer_id, owner.producer_epoch, commit=True)).error_code == ErrorCode.NONE
        assert await node.values("t", READ_COMMITTED) == [b"prepared"]


@pytest.mark.parametrize("commit", [True, False])
async def test_client_prepares_recovers_and_completes(tmp_path: Path, commit: bool) -> None:
    stored = ""

    async with running(tmp_path, ENABLED) as node:
        await node.metadata("t")
        await node.init("any")
        async with Cluster(bootstrap(node)) as cluster:
            producer = owner_of(cluster)
            assert await producer.recover() is None
            await producer.begin()
            await producer.send("t", [ProducerRecord(None, b"first")])
            first = await producer.prepare()
            with pytest.raises(InvalidState):
                await producer.send("t", [ProducerRecord(None, b"late")])
            with pytest.raises(InvalidState):
                await producer.complete(first)
            await producer.commit()
            await producer.begin()
            await producer.send("t", [ProducerRecord(None, b"second")])
            stored = str(await producer.prepare())
    async with running(tmp_path, ENABLED) as node:
        await node.metadata("t")
        await node.init("any")
        async with Cluster(bootstrap(node)) as cluster:
            failed_again, producer = owner_of(cluster), owner_of(cluster)
            prepared = PreparedTransaction.parse(stored)
            assert await failed_again.recover() == prepared
            assert await producer.recover() == prepared
            [blocked] = (await blocked_partitions(cluster, ["t"])).rows
            assert blocked.state is HolderState.IN_DOUBT
            assert blocked.transaction is not None
            assert (blocked.transaction.transactional_id, blocked.transaction.in_doubt) == (OWNER, True)
            with pytest.raises(InvalidArgument, match=r"PreparedTransaction\.parse"):
                await producer.complete(stored)  # type: ignore[arg-type]  # the text, as the application stored it
            with pytest.raises(Fenced):
                await failed_again.complete(prepared)
            assert await producer.complete(prepared if commit else first) is commit
            await producer.begin()
            await producer.send("t", [ProducerRecord(None, b"third")])
            await producer.commit()
        while (await state_of_owner(node)).startswith("Prepare"):
            pass
        expected = [b"first", *([b"second"] if commit else []), b"third"]
        assert await node.values("t", READ_COMMITTED) == expected


async def test_client_is_refused_if_the_broker_does_not_permit_a_two_phase_commit(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.init("any")
        async with Cluster(bootstrap(node)) as cluster:
            with pytest.raises(UnsupportedRequest):
                await owner_of(cluster).recover()
            with pytest.raises(InvalidState):
                await Producer(cluster, OWNER).recover()


def bootstrap(node: RunningNode) -> str:
    return f"127.0.0.1:{node.node.listeners[0].port}"


def owner_of(cluster: Cluster) -> Producer:
    return Producer(cluster, OWNER, two_phase_commit=True)


@pytest.mark.parametrize("text", ["", "7", "7:", ":1", "a:1", "-1:-1"])
def test_text_that_is_no_prepared_transaction_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        PreparedTransaction.parse(text)


@pytest.mark.parametrize(("settings", "version"), [((), 5), ((ENABLED,), 6)])
async def test_version_6_is_announced_and_served_only_if_it_is_enabled(
    tmp_path: Path, settings: tuple[str, ...], version: int
) -> None:
    async with running(tmp_path, *settings) as node:
        announced = await node.call(ApiVersionsRequest("t", "1"), 4)
        assert next(api.max_version for api in announced.api_keys if api.api_key == 22) == version
        request = InitProducerIdRequest(None, 0)
        if version == 6:
            assert (await node.until_not_busy(request, 6)).error_code == ErrorCode.NONE
        else:
            with pytest.raises(ConnectionLost):
                await node.call(request, 6)
