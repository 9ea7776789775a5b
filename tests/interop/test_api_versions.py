"""ApiVersions: both brokers announce the same APIs in the same versions, except for a list with reasons."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.broker.dispatch.doc import FEATURES_LEFT_OUT, LEFT_OUT, NODE_APIS_LEFT_OUT
from odradek.broker.dispatch.table import API_TABLE
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import APIS
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.interop.drivers.base import TIMEOUT_S
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from tests.support.kafka_broker import KafkaBroker
    from tests.support.tool_comparison import ToolComparison

import pytest

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]


def announcement(bootstrap: str) -> ApiVersionsResponse:
    async def fetch_versions() -> ApiVersionsResponse:
        host, _, port = bootstrap.partition(",")[0].rpartition(":")
        client = await RawClient.connect(host, int(port))
        response: ApiVersionsResponse = await client.call(
            ApiVersionsRequest(client_software_name="test", client_software_version="1"), 5, timeout=TIMEOUT_S
        )
        client.close()
        return response

    return asyncio.run(fetch_versions())


def announced(bootstrap: str) -> dict[str, tuple[int, int]]:
    """Return the announced (minimum, maximum) version by API name."""
    return {APIS[api.api_key][1]: (api.min_version, api.max_version) for api in announcement(bootstrap).api_keys}


def levels(bootstrap: str) -> dict[str, set[int]]:
    """Return the supported levels by feature."""
    features = announcement(bootstrap).supported_features
    return {row.name: set(range(row.min_version, row.max_version + 1)) for row in features}


def refused(bootstrap: str, cluster_id: str | None, node_id: int) -> int:
    """Return the error code of ApiVersions v5 with a cluster id and a node id."""

    async def fetch_error() -> int:
        host, _, port = bootstrap.partition(",")[0].rpartition(":")
        client = await RawClient.connect(host, int(port))
        request = ApiVersionsRequest("test", "1", cluster_id or await own_cluster_id(client), node_id)
        response: ApiVersionsResponse = await client.call(request, 5, timeout=TIMEOUT_S)
        client.close()
        return response.error_code

    return asyncio.run(fetch_error())


async def own_cluster_id(client: RawClient) -> str:
    response: MetadataResponse = await client.call(MetadataRequest(topics=[]), 12, timeout=TIMEOUT_S)
    assert response.cluster_id is not None
    return response.cluster_id


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "error"),
    [
        (None, 1, ErrorCode.NONE),
        (None, 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        (None, -1, ErrorCode.INVALID_REQUEST),
        ("other", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
    ],
    ids=["own", "other node", "no node", "other cluster"],
)
def test_cluster_and_node_of_the_request_are_checked(
    pair: ToolComparison, cluster_id: str | None, node_id: int, error: ErrorCode
) -> None:
    errors = {name: refused(address, cluster_id, node_id) for name, address in pair.bootstraps.items()}
    assert errors == {"odradek": error, "kafka": error}


def test_announced_versions_equal_those_of_apache_kafka(pair: ToolComparison) -> None:
    odradek, kafkas = (announced(pair.bootstraps[name]) for name in ("odradek", "kafka"))
    assert {name: versions for name, versions in odradek.items() if kafkas.get(name) != versions} == {}
    reasons = [name for names in LEFT_OUT.values() for name in names]
    assert sorted(kafkas.keys() - odradek.keys()) == sorted(reasons)


def test_apis_between_nodes_of_apache_kafka_are_served_or_listed(kafka_broker: KafkaBroker) -> None:
    served = {api.name: api.max_version for api in API_TABLE}
    clients = [name for names in LEFT_OUT.values() for name in names]
    left_out = [
        name if name not in served else f"{name} v{maximum}"
        for name, (_, maximum) in announced(kafka_broker.controller_bootstrap).items()
        if name not in clients and served.get(name, -1) < maximum
    ]
    assert sorted(left_out) == sorted(NODE_APIS_LEFT_OUT)


def test_feature_levels_of_apache_kafka_are_supported_or_listed(pair: ToolComparison) -> None:
    odradek, kafka = (levels(pair.bootstraps[name]) for name in ("odradek", "kafka"))
    missing = {name: numbers - odradek.get(name, set()) for name, numbers in kafka.items()}
    listed = {name: set(range(low, high + 1)) for name, (low, high, _) in FEATURES_LEFT_OUT.items()}
    assert {name: numbers for name, numbers in missing.items() if numbers} == listed
    assert all(numbers <= kafka[name] for name, numbers in odradek.items())
