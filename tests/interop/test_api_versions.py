"""ApiVersions: both brokers announce the same APIs in the same versions, except for a list with reasons."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.broker.dispatch.doc import LEFT_OUT
from odradek.protocol.messages import APIS
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.interop.drivers.base import TIMEOUT_S
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from tests.support.tool_comparison import ToolComparison

import pytest

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]


def announced(bootstrap: str) -> dict[str, tuple[int, int]]:
    """Return the announced (minimum, maximum) version by API name."""

    async def fetch_versions() -> ApiVersionsResponse:
        host, _, port = bootstrap.partition(",")[0].rpartition(":")
        client = await RawClient.connect(host, int(port))
        response: ApiVersionsResponse = await client.call(
            ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4, timeout=TIMEOUT_S
        )
        client.close()
        return response

    return {APIS[api.api_key][1]: (api.min_version, api.max_version) for api in asyncio.run(fetch_versions()).api_keys}


def test_announced_versions_equal_those_of_apache_kafka(pair: ToolComparison) -> None:
    odradek, kafkas = (announced(pair.bootstraps[name]) for name in ("odradek", "kafka"))
    assert {name: versions for name, versions in odradek.items() if kafkas.get(name) != versions} == {}
    reasons = [name for names in LEFT_OUT.values() for name in names]
    assert sorted(kafkas.keys() - odradek.keys()) == sorted(reasons)
