"""The dispatcher with hooks in a node: effects on the wire, and on the state of the node."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

import pytest

from odradek.broker.hooks.channel import HookChannel
from odradek.broker.hooks.dispatcher import HookedDispatcher
from odradek.broker.node import Node
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.messages.metadata import MetadataRequest
from tests.support.raw_client import RawClient
from tests.support.running_node import make_node

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

METADATA, CREATE_TOPICS = 3, 19
IMPORTS = "import sys, odradek.broker.__main__; sys.exit('odradek.broker.hooks' in sys.modules)"


class FakeChannel(HookChannel):
    """Channel whose decisions a test sets, by the API key."""

    def __init__(self) -> None:
        super().__init__()
        self.actions: dict[int, Mapping[str, Any]] = {}
        self.requests: list[Mapping[str, Any]] = []
        self.rewritten: list[int] = []
        """Error codes of the responses that were rewritten to INVALID_CONFIG."""

    def watches(self, api_key: int, *, of_broker: bool) -> bool:
        return api_key in self.actions and not of_broker

    def decide(self, request: Mapping[str, Any]) -> asyncio.Future[Mapping[str, Any] | None]:
        self.requests.append(request)
        future: asyncio.Future[Mapping[str, Any] | None] = asyncio.get_running_loop().create_future()
        future.set_result(self.actions[request["api_key"]])
        return future

    def rewrite(self, number: int, response: str) -> asyncio.Future[Mapping[str, Any] | None]:
        message = decode(CreateTopicsResponse, 5, b64decode(response))
        self.rewritten.append(message.topics[0].error_code)
        message.topics[0].error_code = ErrorCode.INVALID_CONFIG
        future: asyncio.Future[Mapping[str, Any] | None] = asyncio.get_running_loop().create_future()
        future.set_result(action("respond", response=b64encode(encode(message, 5)).decode()))
        return future


def action(kind: str, **values: Any) -> dict[str, Any]:
    return {"kind": kind, "code": 0, "ms": 0, "executed": False, **values}


async def create(client: RawClient, name: str) -> Any:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    response = await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 5, timeout=10)
    return response.topics[0].error_code


async def names(client: RawClient) -> set[str]:
    return {topic.name for topic in (await client.call(MetadataRequest(topics=None), 12, timeout=10)).topics}


async def test_effects_on_requests(tmp_path: Path) -> None:
    channel = FakeChannel()
    plain, unexpected = make_node(tmp_path)
    node = Node(
        plain.config,
        plain.env,
        on_unexpected=lambda where, exception: unexpected.append((where, exception)),
        make_dispatcher=lambda *arguments, **options: HookedDispatcher(channel, *arguments, **options),
    )
    await node.start()
    port = node.listeners[0].port
    client = await RawClient.connect("127.0.0.1", port)
    try:
        channel.actions[CREATE_TOPICS] = action("error", code=ErrorCode.POLICY_VIOLATION)
        assert await create(client, "refused") == ErrorCode.POLICY_VIOLATION
        assert channel.requests[0]["topics"] == ["refused"]
        assert channel.requests[0]["fields"]["timeout_ms"] == 5_000
        channel.actions[CREATE_TOPICS] = action("error", code=ErrorCode.POLICY_VIOLATION, executed=True)
        assert await create(client, "executed") == ErrorCode.POLICY_VIOLATION
        channel.actions[CREATE_TOPICS] = action("delay", ms=1)
        assert await create(client, "delayed") == ErrorCode.NONE
        canned = CreateTopicsResponse(
            topics=[CreatableTopicResult(name="canned", error_code=ErrorCode.TOPIC_DELETION_DISABLED)]
        )
        channel.actions[CREATE_TOPICS] = action("respond", response=b64encode(encode(canned, 5)).decode())
        assert await create(client, "canned") == ErrorCode.TOPIC_DELETION_DISABLED
        channel.actions[CREATE_TOPICS] = action("rewrite", rewrite=1)
        assert await create(client, "rewritten") == ErrorCode.INVALID_CONFIG
        assert await create(client, "rewritten") == ErrorCode.INVALID_CONFIG
        assert channel.rewritten == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
        for kind in ("disconnect_before", "disconnect_after"):
            channel.actions[CREATE_TOPICS] = action(kind)
            other = await RawClient.connect("127.0.0.1", port)
            with pytest.raises((OSError, EOFError)):
                await create(other, kind)
            other.close()
        for kind in ("drop_request", "drop_response"):
            channel.actions[CREATE_TOPICS] = action(kind)
            other = await RawClient.connect("127.0.0.1", port)
            sent = asyncio.create_task(create(other, kind))
            count = len(channel.requests)
            while len(channel.requests) == count:
                await asyncio.sleep(0)
            await names(client)  # another connection is served meanwhile
            assert not sent.done()
            sent.cancel()
            other.close()
        channel.actions.clear()
        assert await create(client, "last") == ErrorCode.NONE
        assert {"executed", "delayed", "disconnect_after", "last", "drop_response", "rewritten"} == await names(client)
    finally:
        client.close()
        await node.stop()
    assert unexpected == []


def test_broker_process_does_not_import_the_hooks() -> None:
    assert subprocess.run([sys.executable, "-c", IMPORTS], check=False).returncode == 0
